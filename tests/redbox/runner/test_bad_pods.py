"""What pods and nodes have wrong with them: one sentence each, and nothing stays behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from redbox.runner.program.containers import ContainerLife
from redbox.runner.program.reports import StatusReport
from redbox.runner.program.starts import PodContext
from tests.redbox.runner.harness import BOX, LIMIT_S, Node, container, end_of, reasons, state_of


def message_of(node: Node, **pod: object) -> str:
    report = node.run(**pod)
    assert end_of(report, "a") == (128, "StartError")
    end = state_of(report, "a").state.terminated
    assert end is not None
    return end.message


def test_a_node_without_apptainer_is_one_sentence(node: Node, tmp_path: Path) -> None:
    node.path = str(tmp_path)
    report = node.run(containers=[container("a", "true")])
    assert report.reason == "StartError"
    assert report.message == f"Neither apptainer nor singularity is in PATH on {report.node_name}: {tmp_path}"


def test_a_job_that_slurm_starts_again_runs_no_container_again_and_says_so(
    node: Node, tmp_path: Path
) -> None:
    run = node.start(containers=[container("a", f"echo once >> {tmp_path}/runs")])
    run.wait()
    before = run.reports()
    again = subprocess.run(
        run.process.args, env={"PATH": node.path}, cwd="/", stderr=subprocess.PIPE, check=False
    )
    assert (again.returncode, b"a pod is not run twice\n" in again.stderr) == (70, True)
    assert again.stderr.count(b"\n") == 1
    assert (run.reports(), (tmp_path / "runs").read_text()) == (before, "once\n")


def test_an_image_of_another_architecture_is_a_start_error_in_apptainers_words(node: Node) -> None:
    words = "the image's architecture (arm64) could not run on the host's (amd64)"
    node.serve({BOX: {"Entrypoint": ["true"], "FATAL": words}})
    message = message_of(node, containers=[{"name": "a", "image": BOX}])
    assert message == f"failed to start container a: {words}"


def test_five_hundred_variables_reach_the_container(node: Node) -> None:
    env = [{"name": f"NAME_{number}", "value": f"{number} 'and\n$(NAME_0)"} for number in range(500)]
    run = node.start(containers=[container("a", 'env | grep -c ^NAME_; echo "$NAME_499"', env=env)])
    assert end_of(run.wait(), "a") == (0, "Completed")
    assert run.log("a") == "500\n499 'and\n0 'and\n$(NAME_0)\n"


def test_ten_containers_run_at_once(node: Node, tmp_path: Path) -> None:
    """Each waits for all of the others."""
    names = [f"c{number}" for number in range(10)]
    waits = f"touch {tmp_path}/is-$0; until [ $(ls {tmp_path} | grep -c is-) = 10 ]; do sleep .05; done"
    report = node.run(
        containers=[{"name": name, "image": BOX, "command": ["sh", "-c", waits, name]} for name in names]
    )
    assert [end_of(report, name) for name in names] == [(0, "Completed")] * 10


def test_a_scratch_without_room_is_a_start_error_that_names_the_node(node: Node) -> None:
    mount = f"mount -t tmpfs -o nr_inodes=5 none {node.folder}/scratch"
    root = ["-m"] if os.geteuid() == 0 else ["-Urm"]
    node.start_by = ["unshare", *root, "sh", "-c", f'{mount} && exec "$@"', "sh"]
    message = message_of(node, containers=[container("a", "true")])
    assert "No space left on device" in message
    assert os.uname().nodename in message


def test_a_fault_of_the_runners_own_ends_the_container_with_its_words(tmp_path: Path) -> None:
    class NoThreads:
        def find(self, _spec: object) -> None:
            raise RuntimeError("can't start new thread")

    spec = {"name": "a", "image": BOX}
    pod = {
        "name": "web",
        "namespace": "n",
        "uid": "u",
        "paths": {"logs": str(tmp_path)},
        "containers": [spec],
    }
    context = PodContext(pod, str(tmp_path), "n1", "10.0.0.1")
    context.report = StatusReport([("a", "main")], {"nodeName": "n1", "hostIP": "10.0.0.1"})
    context.images = NoThreads()  # type: ignore[assignment]
    life = ContainerLife(context, spec, "main")
    with pytest.raises(RuntimeError):
        life._live()  # the thread's function
    end = context.report.state("a")["terminated"]
    assert (end["exitCode"], end["reason"], life.exit_code) == (128, "StartError", 128)
    assert "can't start new thread" in end["message"]
    assert life.ended.is_set()


def test_a_start_error_is_tried_again_where_the_restart_policy_says_so(node: Node) -> None:
    node.serve({BOX: {"Entrypoint": ["true"], "FATAL": "not now"}})
    run = node.start(restartPolicy="OnFailure", containers=[{"name": "a", "image": BOX}])
    run.wait_for(lambda report: state_of(report, "a").restart_count > 0)
    run.delete()
    assert end_of(run.wait(), "a") == (128, "StartError")


def test_a_program_that_ends_as_apptainer_does_has_its_own_exit_code(node: Node) -> None:
    go = node.folder / "go"
    script = f"until [ -e {go} ]; do sleep 0.02; done; echo 'FATAL: no database' >&2; exit 255"
    run = node.start(containers=[container("a", script)])
    run.wait_for(lambda report: state_of(report, "a").state.running is not None)
    go.touch()
    assert end_of(run.wait(), "a") == (255, "Error")


@pytest.mark.parametrize(("same_s", "code", "stopped"), [(0, 0, False), (LIMIT_S, 143, True)])
def test_a_signal_after_the_main_containers_end_stops_nothing(
    node: Node, tmp_path: Path, same_s: int, code: int, *, stopped: bool
) -> None:
    """A pod that Slurm preempts, or whose time is over, while it ends its sidecars has succeeded.

    But what comes within some seconds may be the signal by which they have ended.
    """
    source = node.program.read_text()
    node.program.write_text(re.sub(r"(?m)^SAME_S = .*$", f"SAME_S = {same_s}", source))
    up, end = tmp_path / "up", tmp_path / "end"
    trap = f"trap 'until [ -e {end} ]; do sleep .05; done; exit 0' TERM"
    sidecar = {**container("s", f"{trap}; touch {up}; while :; do sleep .05; done"), "alwaysRestarts": True}
    main = container("a", f"until [ -e {up} ]; do sleep .05; done")
    run = node.start(initContainers=[sidecar], containers=[main])
    run.wait_for(lambda report: "Killing" in reasons(report, "s"))
    run.delete()
    run.wait_for(lambda _: not signals_left(run.process.pid))
    end.touch()
    report = run.wait()
    assert (run.process.returncode, end_of(report, "a")) == (code, (0, "Completed"))
    assert report.stopped is stopped


def signals_left(pid: int) -> int:
    """Of a process: whether SIGTERM has been sent and not been taken."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = [line.split()[1] for line in lines if line.startswith(("SigPnd", "ShdPnd"))]
    return sum(int(mask, 16) >> (signal.SIGTERM - 1) & 1 for mask in masks)
