"""`redbox-companion exec` and `shell` in the pod of a SlurmJob, where no companion runs to take them. Pure.

kubectl cannot name a node or a task of the job, the companion's program can: so the same command enters them
whichever way the SlurmJob is delivered.
"""

from __future__ import annotations

import getopt
from collections.abc import Sequence
from dataclasses import dataclass

from redbox_resourced.kubelet.rejection import RequestRejected
from redbox_shared.pod_contract import COMPANION_PROGRAM, EXEC, LOGIN_SHELL, SHELL

USAGE = f"{COMPANION_PROGRAM} {EXEC} [--node NODE] [--task INDEX] -- COMMAND, or {COMPANION_PROGRAM} {SHELL}"


@dataclass(frozen=True)
class SessionCommand:
    """What runs in the job, and where: by default on its first node."""

    command: Sequence[str]
    node: str | None = None
    task: str | None = None


def read_session_command(words: Sequence[str]) -> SessionCommand:
    """Of any other program the words themselves."""
    if not words or words[0] != COMPANION_PROGRAM:
        return SessionCommand(words)
    try:
        given, command = getopt.getopt(list(words[2:]), "", ["node=", "task="])
    except getopt.GetoptError as error:
        raise RequestRejected(f"{COMPANION_PROGRAM}: {error}: {USAGE}") from None
    options = dict(given)
    program = words[1] if len(words) > 1 else ""
    if program not in {EXEC, SHELL} or bool(command) is (program == SHELL):
        raise RequestRejected(f"{COMPANION_PROGRAM} has no such command here: {USAGE}")
    return SessionCommand(command or LOGIN_SHELL, options.get("--node"), options.get("--task"))
