"""`completion`, and the candidates that shells ask for: commands, options, and names of SlurmJobs.

`kubectl slurm <TAB>` is completed by kubectl, in each shell that has kubectl's own completion: it runs
`kubectl_complete-slurm`. The scripts here are for the program's other name, `kubectl-slurm`.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import re
import sys
from collections.abc import Mapping, Sequence

from kubectl_slurm.command_table import COMMANDS
from kubectl_slurm.errors import BadUsage, PluginError
from kubectl_slurm.options import GLOBAL_VALUES, invocation, take_global
from kubectl_slurm.slurmjobs.access import list_jobs
from kubectl_slurm.slurmjobs.clusters import list_clusters
from kubectl_slurm.slurmjobs.job import SlurmJobView
from redbox_shared.printable import printable

NAMES_OF = {
    "cancel": "unfinished", "hold": "unfinished", "release": "unfinished", "requeue": "running",
    "suspend": "unfinished", "resume": "unfinished", "shell": "running", "exec": "running", "cp": "running",
    "forward": "running", "logs": "all", "explain": "all", "top": "all", "queue": "unfinished",
    "history": "ended",
}  # fmt: skip
SHELLS = ("bash", "zsh", "fish")
PARTITION = ("-p", "--partition")
NO_FILES, FILES = ":4", ":0"
"""Of cobra's protocol: whether the shell adds names of files."""
BASH = """\
_kubectl_slurm() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        case $line in
        :0) [ "${#COMPREPLY[@]}" -eq 0 ] && compopt -o default ;;
        :*) ;;
        *) COMPREPLY+=("$line") ;;
        esac
    done < <(kubectl-slurm __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _kubectl_slurm kubectl-slurm
"""
ZSH = """\
#compdef kubectl-slurm
_kubectl_slurm() {
    local -a lines candidates
    lines=("${(@f)$(kubectl-slurm __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    candidates=("${(@)lines:#:*}")
    if (( ${#candidates} )); then
        compadd -a candidates
    elif [[ ${lines[-1]} == :0 ]]; then
        _files
    fi
}
compdef _kubectl_slurm kubectl-slurm
"""
FISH = """\
function __kubectl_slurm
    set -l words (commandline -opc) (commandline -ct)
    kubectl-slurm __complete $words[2..-1] 2>/dev/null | string match -v ':*'
end
complete -c kubectl-slurm -f -a '(__kubectl_slurm)'
complete -c kubectl-slurm -n '__fish_seen_subcommand_from submit cp convert' -F
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
HELP = """\
usage: kubectl slurm completion bash|zsh|fish

Print the completion script of a shell, for the program's name kubectl-slurm:

  bash   source <(kubectl-slurm completion bash)
  zsh    source <(kubectl-slurm completion zsh)     # after compinit
  fish   kubectl-slurm completion fish | source

`kubectl slurm` itself is completed by kubectl's completion (kubectl completion --help), in each of these
shells, as long as the program kubectl_complete-slurm is in PATH beside kubectl-slurm.
"""
LONG_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


def run(command: str, words: Sequence[str], given: Sequence[str], environment: Mapping[str, str]) -> int:
    del command, given, environment
    if not words or {"-h", "--help"} & set(words):
        sys.stdout.write(HELP)
        return 0
    if words[0] not in SCRIPTS:
        raise BadUsage(f"there is no completion for {words[0]!r}; there is for {', '.join(SHELLS)}")
    sys.stdout.write(SCRIPTS[words[0]])
    return 0


def print_candidates(words: Sequence[str]) -> int:
    """One a line; the last line says whether names of files are added. Faults complete nothing."""
    try:
        candidates, last = candidates_of(list(words), dict(os.environ))
    except PluginError:
        candidates, last = [], NO_FILES
    sys.stdout.write("".join(f"{printable(candidate)}\n" for candidate in candidates) + f"{last}\n")
    return 0


def candidates_of(words: list[str], environment: Mapping[str, str]) -> tuple[list[str], str]:
    """Candidates for the last of the words behind the program's name, and whether files are added."""
    *before, typed = words or [""]
    options, command, rest = _read(before)
    last, found = NO_FILES, list[str]()
    if not command:
        found = [*(GLOBAL_VALUES if typed.startswith("-") else COMMANDS)]
    elif typed.startswith("-") and command in COMMANDS:
        found = _options(command)
    elif command == "completion":
        found = [*SHELLS]
    elif rest and rest[-1] in PARTITION:
        found = _partitions(options, environment)
    elif command in {"submit", "convert"} or (command == "cp" and ("/" in typed or typed.startswith("."))):
        last = FILES
    elif command in NAMES_OF:
        found, last = _jobs(command, options, environment), FILES if command == "cp" else NO_FILES
    return [candidate for candidate in found if candidate.startswith(typed)], last


def _read(words: list[str]) -> tuple[list[str], str, list[str]]:
    """Options of kubectl, the command, and the other words."""
    options: list[str] = []
    command, rest = "", []
    while words:
        is_ntasks = command == "submit" and words[0].startswith("-n")
        taken = take_global(words) if words[0].startswith("-") and not is_ntasks else []
        if taken:
            options += taken
        elif not command:
            command = words.pop(0)
        else:
            rest.append(words.pop(0))
    return options, command, rest


def _options(command: str) -> list[str]:
    """Those in the command's help."""
    text = io.StringIO()
    module = importlib.import_module(f"kubectl_slurm.commands.{COMMANDS[command][0]}")
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(text):
        module.run(command, ["--help"], [], {})
    return [*dict.fromkeys(LONG_OPTION.findall(text.getvalue()))]


def _jobs(command: str, options: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    which = NAMES_OF[command]
    suffix = ":" if command == "cp" else ""
    return [
        job.name + suffix
        for job in list_jobs(invocation(options, environment).kubectl)
        if _is_wanted(job, which)
    ]


def _partitions(options: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    clusters = list_clusters(invocation(options, environment).kubectl)
    names = {name for cluster in clusters for name in cluster.partition_names}
    return sorted(name for name in names if name.isprintable())


def _is_wanted(job: SlurmJobView, which: str) -> bool:
    match which:
        case "running":
            return job.running
        case "ended":
            return job.finished
        case "unfinished":
            return not job.finished
    return True
