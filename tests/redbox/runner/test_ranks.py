"""Pods with `mpi`: what srun starts on all nodes of the job, and what it does not."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from redbox.runner.program.steps import write_start
from redbox.runner.program.volumes import MEMORY, Scratch
from tests.redbox.runner.harness import LIMIT_S, Node, Run, container, end_of, state_of

SRUN = """#!/bin/sh
echo "$*" >>{folder}/calls
while case $1 in -*) true ;; *) false ;; esac; do shift; done
( ( "$@"; echo $? >{folder}/code.$$ ) & )
until [ -s {folder}/code.$$ ]; do sleep .05; done
exit $(cat {folder}/code.$$)
"""
"""The program is not its child, as where Slurm's daemon starts it."""


def start(node: Node, **pod: Any) -> Run:
    """A pod of two nodes, which are one here."""
    srun = node.folder / "bin/srun"
    srun.write_text(SRUN.format(folder=node.folder))
    srun.chmod(0o755)
    node.start_by = ["env", "SLURM_JOB_NUM_NODES=2"]
    return node.start(mpi="pmix", **pod)


def calls(node: Node) -> list[list[str]]:
    return [line.split() for line in (node.folder / "calls").read_text().splitlines()]


def test_the_main_container_is_started_by_srun_and_its_init_containers_are_not(node: Node) -> None:
    run = start(node, initContainers=[container("first", "true")], containers=[container("main", "true")])
    report = run.wait()
    assert (end_of(report, "first")[0], end_of(report, "main")[0]) == (0, 0)
    assert [words[0] for words in calls(node) if "task" in words] == ["--mpi=pmix"]


def test_a_rank_is_not_looked_for_below_srun(node: Node, tmp_path: Path) -> None:
    """It is a child of Slurm's daemon: the pod would be shown as one that begins, for a minute."""
    script = f"until [ -e {tmp_path}/go ]; do sleep .05; done"
    run = start(node, containers=[container("main", script)])
    try:
        run.wait_for(lambda report: state_of(report, "main").state.running is not None)
    finally:
        (tmp_path / "go").touch()
    assert end_of(run.wait(), "main")[0] == 0


def test_memory_and_disk_of_the_other_nodes_are_cleaned_up(node: Node) -> None:
    volumes = [{"name": "m", "emptyDir": {"inMemory": True}}, {"name": "d", "emptyDir": {}}]
    run = start(node, volumes=volumes, containers=[container("main", "true")])
    run.wait()
    cleaned_up = sorted(str(Path(words[-1]).parent) for words in calls(node) if "cleanup" in words)
    assert cleaned_up == sorted([MEMORY, str(node.folder / "scratch")])


def test_what_ranks_have_on_another_node_than_their_runners_is_not_removed_while_they_run(
    node: Node, tmp_path: Path
) -> None:
    """No runner is there to lock it, and the user's next pod on that node removes what is not locked."""
    scratch = tmp_path / "scratch"
    volume = scratch / "redbox-pod-7-1-abc/volumes/data"
    up = tmp_path / "up"
    argv = ["sh", "-c", f"touch {volume}/file {up}; exec sleep {LIMIT_S}"]
    path = tmp_path / "start"
    write_start(str(path), argv, {"PATH": node.path}, image="sh", scratch=str(scratch), folders=[str(volume)])
    task = subprocess.Popen([sys.executable, "-IS", str(node.program), "task", str(path)])
    try:
        until = time.monotonic() + LIMIT_S
        while not up.exists() and time.monotonic() < until:
            time.sleep(0.02)
        os.utime(scratch / "redbox-pod-7-1-abc", (1, 1))
        Scratch(str(scratch), "8").remove()
        assert (volume / "file").exists()
    finally:
        task.terminate()
        task.wait(LIMIT_S)
    Scratch(str(scratch), "9").remove()
    assert list(scratch.iterdir()) == []
