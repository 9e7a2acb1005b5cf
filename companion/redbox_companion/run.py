"""One run of a companion: its settings, its signals, and what becomes of an error."""

from __future__ import annotations

import os
import signal
import sys

from redbox_companion import settings
from redbox_companion.companion import CompanionProcess, exit_on_signal, write_termination_message
from redbox_companion.redbox_client import BlockingClient
from redbox_shared import job_end
from redbox_shared.printable import printable
from redbox_shared.wire import PROBLEMS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MODES = {f"--{mode}": mode for mode in settings.MODES}


def run(arguments: Sequence[str]) -> int:
    signal.signal(signal.SIGTERM, exit_on_signal)
    signal.signal(signal.SIGINT, exit_on_signal)
    try:
        pod = settings.CompanionSettings(os.environ, _mode(arguments))
        return CompanionProcess(pod, BlockingClient(pod)).run()
    except settings.PodMisconfigured as error:
        sys.stderr.write(f"redbox-companion: {printable(error)}\n")
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
