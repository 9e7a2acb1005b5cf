"""The program `redbox-companion`."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from redbox_companion import outcome, settings
from redbox_companion.companion import Companion, leave
from redbox_companion.redbox import PROBLEMS, Redbox

if TYPE_CHECKING:
    from collections.abc import Sequence

HELP = """\
usage: redbox-companion [--submit-only | --results-only] [--version]

Stands for one Slurm job in Kubernetes: submits it, relays its output, brings its results, exits as it did.
It is told what to do by the environment of the pod that the Red Box operator makes.
"""
MODES = {f"--{mode}": mode for mode in settings.MODES}


def main(argv: Sequence[str] | None = None) -> int:
    """Stand for one Slurm job in a pod that the operator made."""
    arguments = sys.argv[1:] if argv is None else argv
    if "--version" in arguments:
        return _say(f"redbox-companion {_version()}")
    if "--help" in arguments or "-h" in arguments:
        return _say(HELP.rstrip())
    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    try:
        told = settings.settings_from(os.environ, _mode(arguments))
        return Companion(told, Redbox(told)).run()
    except settings.BadSettings as error:
        sys.stderr.write(f"redbox-companion: {error}\n")
        word = outcome.word_of_refusal(str(error), problem=f"{PROBLEMS}bad-settings")
        outcome.leave_word(settings.termination_file(os.environ), word)
        return outcome.BAD_SETTINGS
    except Exception:  # noqa: BLE001 - 1 would be taken for the job's own exit code
        sys.excepthook(*sys.exc_info())
        return outcome.LOST


def _mode(arguments: Sequence[str]) -> str:
    unknown = [argument for argument in arguments if argument not in MODES]
    if unknown:
        raise settings.BadSettings(f"{unknown[0]} is no option of this program: see --help")
    return MODES[arguments[-1]] if arguments else ""


def _say(text: str) -> int:
    sys.stdout.write(f"{text}\n")
    return 0


def _version() -> str:
    from importlib import metadata  # noqa: PLC0415 - costs 20 ms, and only --version needs it

    return metadata.version("red-box")
