"""Candidates for a shell: commands, options, names; and command lines that are wrong."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kubectl_slurm.command_table import COMMANDS
from tests.cli.harness import PROGRAM, Kubectl, run, terminal

COMPLETE = str(Path(PROGRAM).with_name("kubectl_complete-slurm"))


@pytest.mark.parametrize(
    ("words", "candidates", "last"),
    [
        ([""], [*COMMANDS], ":4"),
        (["expl"], ["explain"], ":4"),
        (["-n", "alice", "logs", "tr"], ["train-abc12"], ":4"),
        (["logs", "--foll"], ["--follow"], ":4"),
        (["exec", ""], ["train-abc12"], ":4"),
        (["cancel", ""], ["new-ghi56", "train-abc12", "wait-def34"], ":4"),
        (["history", ""], ["done-jkl78"], ":4"),
        (["cp", ""], ["train-abc12:"], ":0"),
        (["submit", "-n", "4", "-p", ""], ["debug", "long"], ":4"),
        (["submit", "job"], [], ":0"),
        (["submit", "--ntasks-p"], ["--ntasks-per-node"], ":4"),
        (["completion", "f"], ["fish"], ":4"),
        (["nonsense", ""], [], ":4"),
    ],
)
def test_the_last_word_is_completed(
    kubectl: Kubectl, words: list[str], candidates: list[str], last: str
) -> None:
    """`kubectl slurm <TAB>` and the scripts of shells ask alike."""
    for command in ([COMPLETE, *words], [PROGRAM, "__complete", *words]):
        ended = subprocess.run(command, capture_output=True, text=True, check=True, env=kubectl.environment())
        assert ended.stdout.splitlines() == [*candidates, last]


def test_a_cluster_that_is_away_completes_nothing(kubectl: Kubectl) -> None:
    kubectl.program.write_text("#!/bin/sh\necho 'error: no' >&2\nexit 1\n")
    ended = run(kubectl, "__complete", "logs", "")
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, ":4\n", "")


@pytest.mark.parametrize(
    ("shell", "options", "load"),
    [
        ("bash", ["--norc"], "source <(kubectl-slurm completion bash)"),
        ("zsh", ["-f"], "autoload -U compinit; compinit -u -D; source <(kubectl-slurm completion zsh)"),
        ("fish", ["--no-config"], "kubectl-slurm completion fish | source"),
    ],
)
def test_a_shell_completes_a_command_an_option_and_a_name_on_a_terminal(
    kubectl: Kubectl, tmp_path: Path, shell: str, options: list[str], load: str
) -> None:
    program = shutil.which(shell)
    if program is None:
        pytest.skip(
            f"{shell} is not installed here: tests/run installs it, as root and where systemd does not run"
        )
    path = f"{Path(PROGRAM).parent}:/usr/bin:/bin"
    environment = kubectl.environment(PATH=path, PS1="$ ", HOME=str(tmp_path))
    with terminal(*options, env=environment, program=program) as shown:
        shown.press(f"{load}; echo rea''dy\n".encode())
        shown.until(lambda lines: "ready" in lines)
        shown.press(b"kubectl-slurm lo\t--foll\ttr\t")
        shown.until(lambda lines: any("kubectl-slurm logs --follow train-abc12" in line for line in lines))


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_each_command_describes_itself(kubectl: Kubectl, command: str) -> None:
    ended = run(kubectl, command, "--help")
    assert ended.returncode == 0, ended.stderr
    assert f"kubectl slurm {command}" in ended.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nonsense"], "there is no command 'nonsense'; there are submit, queue"),
        (["--nonsense", "queue"], "no option --nonsense before a command"),
        (["queue", "--nonsense"], "unrecognized arguments: --nonsense"),
        (["submit", "/nonexistent.sh"], "/nonexistent.sh cannot be read: No such file or directory"),
        (["submit", "--wrap", "a", "b.sh"], "--wrap is the whole command"),
        (["submit", "--container", "x", "--wrap", "a"], "one of SCRIPT, --wrap and --container"),
        (["exec", "train-abc12"], "which command?"),
        (["cp", "here", "there"], "exactly one of SOURCE and TARGET is NAME:PATH"),
        (["forward", "train-abc12", "99999"], "with ports from 1 to 65535"),
        (["completion", "csh"], "there is for bash, zsh, fish"),
        (["queue", "--watch=nonsense"], "is not a number of seconds"),
        (["history", "-S", "soon"], "is not a time"),
    ],
)
def test_a_wrong_command_line_gets_one_sentence(kubectl: Kubectl, words: list[str], sentence: str) -> None:
    ended = run(kubectl, *words)
    assert ended.returncode == 2
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert line.startswith("kubectl slurm: ")
    assert sentence in line


def test_without_kubectl_there_is_a_sentence(kubectl: Kubectl, tmp_path: Path) -> None:
    environment = kubectl.environment(PATH=str(tmp_path / "empty"))
    del environment["KUBECTL"]
    ended = run(kubectl, "queue", env=environment)
    assert ended.returncode == 1
    assert (
        ended.stderr
        == "kubectl slurm: kubectl is not there, or not in PATH: install kubectl, or name it in the "
        "variable KUBECTL\n"
    )
