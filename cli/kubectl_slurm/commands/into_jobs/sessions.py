"""`shell` and `exec`: a session in a running job. kubectl carries it, with the terminal and the exit code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kubectl_slurm.errors import BadUsage
from kubectl_slurm.options import invocation_of, parser_of
from kubectl_slurm.slurmjobs.entering import add_place, entry_of
from redbox_shared.pod_contract import LOGIN_SHELL

TEXTS = {
    "shell": "Open a shell in a running job.",
    "exec": "Run a command in a running job; exits as the command does.",
}
USAGE = "kubectl slurm exec NAME [--node NODE] [--task INDEX] -- COMMAND [ARGUMENT...]"


def run(command: str, words: Sequence[str], given: Sequence[str], environment: Mapping[str, str]) -> int:
    own, program = _split(words)
    parser = parser_of(command, TEXTS[command], usage=USAGE if command == "exec" else None)
    parser.add_argument("name", metavar="NAME", help="a SlurmJob, or its Slurm job id")
    add_place(parser)
    options = parser.parse_args(own)
    if command == "exec" and not program:
        raise BadUsage(f"which command? {USAGE}")
    if command == "shell" and program:
        raise BadUsage("a shell takes no command: use `kubectl slurm exec`")
    call = invocation_of(options, given, environment)
    entry = entry_of(call.kubectl, options.name, options)
    call.kubectl.become(*entry.arguments(program or LOGIN_SHELL, stdin=True))


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    if "--" not in words:
        return list(words), []
    at = list(words).index("--")
    return list(words[:at]), list(words[at + 1 :])
