"""Ending an earlier agent of this user that does not answer its server: one that is stopped or traced.

The server's account may not signal it. A stopped agent is continued, sees the end of its input, and exits; it
is killed if it has not when its recorded commands must have ended.
"""

import os
import signal
import time
from contextlib import suppress
from typing import Any, Dict

from redbox.agents.program.command_records import is_alive
from redbox.agents.program.session import SHUTDOWN_S, WorkerStream, start_thread

CHECK_S = 1.0


def end_agent(stream: WorkerStream) -> Dict[str, Any]:
    process = stream.request["process"]
    send_signal(process, signal.SIGCONT)
    start_thread(lambda: kill_late(process))
    return {}


def kill_late(process: Dict[str, Any]) -> None:
    kill_at = time.monotonic() + SHUTDOWN_S
    while is_alive(process) and time.monotonic() < kill_at:
        time.sleep(CHECK_S)
        send_signal(process, signal.SIGCONT)
    send_signal(process, signal.SIGKILL)


def send_signal(process: Dict[str, Any], number: int) -> None:
    if is_alive(process):
        with suppress(OSError):  # it has just ended
            os.kill(process["pid"], number)
