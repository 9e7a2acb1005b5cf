"""The program `redbox-companion`."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from redbox_companion import settings
from redbox_companion.companion import CompanionProcess, exit_on_signal, write_termination_message
from redbox_companion.redbox_client import BlockingClient
from redbox_shared import job_end
from redbox_shared.wire import PROBLEMS

if TYPE_CHECKING:
    from collections.abc import Sequence

HELP = """\
usage: redbox-companion [--submit-only | --results-only | --ports-only] [--version]

Represents one Slurm job in a pod: submits it, relays its output, collects its results, exits as it did.
Its settings are environment variables of the pod, which the Red Box operator creates.
"""
MODES = {f"--{mode}": mode for mode in settings.MODES}


def main(argv: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    if "--version" in arguments:
        return _print(f"redbox-companion {_version()}")
    if "--help" in arguments or "-h" in arguments:
        return _print(HELP.rstrip())
    signal.signal(signal.SIGTERM, exit_on_signal)
    signal.signal(signal.SIGINT, exit_on_signal)
    try:
        pod = settings.CompanionSettings(os.environ, _mode(arguments))
        return CompanionProcess(pod, BlockingClient(pod)).run()
    except settings.PodMisconfigured as error:
        sys.stderr.write(f"redbox-companion: {error}\n")
        message = job_end.refusal_message(str(error), problem_type=f"{PROBLEMS}bad-settings")
        write_termination_message(settings.termination_file(os.environ), message)
        return job_end.EXIT_BAD_SETTINGS
    except Exception:  # noqa: BLE001 - 1 would be taken for the job's own exit code
        sys.excepthook(*sys.exc_info())
        return job_end.EXIT_LOST


def _mode(arguments: Sequence[str]) -> str:
    unknown = [argument for argument in arguments if argument not in MODES]
    if unknown:
        raise settings.PodMisconfigured(f"unknown option {unknown[0]}: see --help")
    return MODES[arguments[-1]] if arguments else ""


def _print(text: str) -> int:
    sys.stdout.write(f"{text}\n")
    return 0


def _version() -> str:
    from importlib import metadata  # noqa: PLC0415 - costs 20 ms, and only --version needs it

    return metadata.version("red-box")
