"""The program `redbox-companion`. It imports what the arguments need: sessions are small processes."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

HELP = """\
usage: redbox-companion [--submit-only | --helper] [--version]
       redbox-companion exec [--node NODE] [--task TASK] -- COMMAND...
       redbox-companion shell [--node NODE] [--task TASK]

Represents one Slurm job in a pod: submits it, relays its output, collects its results, exits as it did.
Its settings are environment variables of the pod, which the Red Box operator creates.

exec and shell are for `kubectl exec -it POD -- redbox-companion shell`: a session in the running job.
"""
USAGE = 2
SESSIONS = frozenset({"exec", "shell"})


def main(argv: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else argv
    if arguments and arguments[0] in SESSIONS:
        from redbox_companion.exec_program import main as exec_main  # noqa: PLC0415

        return exec_main(arguments)
    if arguments and not arguments[0].startswith("-"):
        sys.stderr.write(f"redbox-companion: there is no command {arguments[0]!r}\n{HELP}")
        return USAGE
    if "--version" in arguments:
        return _print(f"redbox-companion {_version()}")
    if "--help" in arguments or "-h" in arguments:
        return _print(HELP.rstrip())
    from redbox_companion.run import run  # noqa: PLC0415

    return run(arguments)


def _print(text: str) -> int:
    sys.stdout.write(f"{text}\n")
    return 0


def _version() -> str:
    from importlib import metadata  # noqa: PLC0415 - costs 20 ms, and only --version needs it

    return metadata.version("red-box")
