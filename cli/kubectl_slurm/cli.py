"""The program `kubectl-slurm`, which kubectl runs as `kubectl slurm`: finds the command, reports its failure.

A command's module is imported only where it is called: `--help` and completion have no time for the others.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
from collections.abc import Sequence

from kubectl_slurm.command_table import COMMANDS
from kubectl_slurm.errors import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_USAGE, PluginError
from kubectl_slurm.options import GLOBAL_VALUES, take_global
from kubectl_slurm.terminal.screen import note, silence

HELP = """\
usage: kubectl slurm [-n NAMESPACE] [--context NAME] [--kubeconfig FILE] COMMAND ...

Slurm jobs on Kubernetes, for those who think in sbatch and squeue.

{commands}

`kubectl slurm COMMAND --help` describes a command. NAME is a SlurmJob, or its Slurm job id.
-n, --context, --kubeconfig, --as and --as-group mean what they mean for kubectl.
"""
FULL = (errno.ENOSPC, errno.EDQUOT)
BROKEN_PIPE = 141  # as a shell shows a program that SIGPIPE ended


def main(words: Sequence[str]) -> int:
    """Run the command; returns its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: a terminal may be without Unicode
    try:
        try:
            return _run(list(words))
        finally:
            if sys.stdout is not None:  # closed by the shell: >&-
                sys.stdout.flush()  # at the end of Python a broken pipe is two lines of noise, and code 120
    except PluginError as error:
        note(f"kubectl slurm: {error}")
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        silence(sys.stdout)
        return BROKEN_PIPE
    except OSError as error:  # a full disk below the output, a kubectl that cannot be started
        where = error.filename or ("the output cannot be written" if error.errno in FULL else "this machine")
        note(f"kubectl slurm: {where}: {error.strerror or error}")
        silence(sys.stdout)
        return EXIT_FAILED


def complete_main() -> None:
    """The program `kubectl_complete-slurm`, which kubectl's own completion runs."""
    words = sys.argv[1:]
    completion = importlib.import_module("kubectl_slurm.commands.completion")
    sys.exit(completion.print_candidates(words))


def _run(words: list[str]) -> int:
    options: list[str] = []
    while words and words[0].startswith("-"):
        if words[0] in {"-h", "--help"}:
            return _print(help_text())
        if words[0] == "--version":
            return _print(f"kubectl-slurm {_version()}\n")
        taken = take_global(words)
        if not taken:
            return _usage(
                f"there is no option {words[0]} before a command; there are {', '.join(GLOBAL_VALUES)}"
            )
        options += taken
    return _run_command(words, options) if words else _print(help_text())


def _run_command(words: list[str], options: list[str]) -> int:
    name, *rest = words
    if name == "__complete":
        return int(importlib.import_module("kubectl_slurm.commands.completion").print_candidates(rest))
    if name == "help":
        return _run([*rest[:1], "--help"])
    if name not in COMMANDS:
        return _usage(f"there is no command {name!r}; there are {', '.join(COMMANDS)}")
    module = importlib.import_module(f"kubectl_slurm.commands.{COMMANDS[name][0]}")
    return int(module.run(name, rest, options, dict(os.environ)))


def help_text() -> str:
    lines = (f"  {name:<11} {text}" for name, (_, text) in COMMANDS.items())
    return HELP.format(commands="\n".join(lines))


def _print(text: str) -> int:
    sys.stdout.write(text)
    sys.stdout.flush()
    return 0


def _usage(text: str) -> int:
    note(f"kubectl slurm: {text}")
    return EXIT_USAGE


def _version() -> str:
    from importlib import metadata  # noqa: PLC0415 (costs 20 ms, and only --version needs it)

    return metadata.version("red-box")
