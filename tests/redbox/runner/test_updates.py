"""What red-box changes of a pod while its job exists, applied by a real runner."""

from __future__ import annotations

import io
import signal
import tarfile
import time
from pathlib import Path
from typing import Any

from redbox.slurm.submit.pod_updates import pack_update
from redbox_api.pod_parts import PodUpdate
from redbox_api.pod_report import PodReport, inputs_digest
from tests.redbox.runner.harness import Node, Run, container, end_of, state_of

OLD, NEW = "b2xk", "bmV3"
CONFIG = {
    "name": "config",
    "files": {"files": [{"path": "a", "content": OLD}, {"path": "b", "content": OLD}]},
}
UNTIL_NEW = "until grep -qs new {file}; do sleep 0.05; done; cat {folder}/*"


def update(*files: tuple[str, str], volume: str = "config", source: int = 0, **more: Any) -> PodUpdate:
    given = [{"path": path, "content": content} for path, content in files]
    sources = [{"volume": volume, "source": source, "files": given}] if files else []
    return PodUpdate.model_validate({"inputs": "v2 d", "sources": sources, **more})


def send(folder: Path, what: PodUpdate) -> None:
    with tarfile.open(fileobj=io.BytesIO(pack_update(what))) as tar:
        tar.extractall(folder, filter="data")


def signal_runner(run: Run) -> None:
    run.process.send_signal(signal.SIGURG)


def has_applied(report: PodReport) -> bool:
    return report.inputs == inputs_digest("v2 d")


def volume_of(run: Run, name: str = "config") -> Path:
    """On the node: the stand-in mounts nothing."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        if found := list(run.scratch.glob(f"*/files-{name}/..data")):
            return found[0].parent
        time.sleep(0.02)
    raise AssertionError(list(run.scratch.rglob("*")))


def reader(node: Node, file: str = "a") -> dict[str, Any]:
    folder = f"{node.folder}/scratch/*/files-config"
    return container("main", UNTIL_NEW.format(file=f"{folder}/{file}", folder=folder))


def test_a_running_container_finds_the_new_files(node: Node) -> None:
    run = node.start(containers=[reader(node)], volumes=[CONFIG])
    run.wait_for(lambda report: state_of(report, "main").state.running is not None)
    send(run.folder, update(("a", NEW)))
    signal_runner(run)
    report = run.wait()
    assert end_of(report, "main") == (0, "Completed")
    assert has_applied(report)
    assert run.log("main") == "new"  # and b is gone
    assert [path.name for path in run.folder.iterdir() if "." in path.name] == ["report.jsonl"]


def test_an_update_of_the_time_in_the_queue_is_there_before_the_first_container(node: Node) -> None:
    run = node.start(
        containers=[container("main", f"cat {node.folder}/scratch/*/files-config/a")],
        volumes=[CONFIG],
        prepare=lambda folder: send(folder, update(("a", NEW))),
    )
    assert has_applied(run.wait())
    assert run.log("main") == "new"


def test_a_lowered_deadline_ends_a_running_pod_and_a_later_one_does_not_count(node: Node) -> None:
    run = node.start(containers=[container("main", "sleep 100")], activeDeadlineS=90, terminationGraceS=0)
    run.wait_for(lambda report: state_of(report, "main").state.running is not None)
    send(run.folder, update(activeDeadlineS=95))
    signal_runner(run)
    run.wait_for(has_applied)
    send(run.folder, PodUpdate(inputs="v3 d1", active_deadline_s=1))
    signal_runner(run)
    assert run.wait().reason == "DeadlineExceeded"


def test_a_volume_that_cannot_be_written_keeps_its_files_and_an_event_says_why(node: Node) -> None:
    run = node.start(containers=[container("main", "sleep 100")], volumes=[CONFIG])
    volume = volume_of(run)
    run.wait_for(lambda report: state_of(report, "main").state.running is not None)
    outside = node.folder / "outside"
    outside.mkdir()
    aside = volume.with_name("aside")
    volume.rename(aside)
    volume.symlink_to(outside)
    send(run.folder, update(("a", NEW)))
    signal_runner(run)
    report = run.wait_for(lambda report: any(event.reason == "FailedMount" for event in report.events))
    event = next(event for event in report.events if event.reason == "FailedMount")
    assert event.message.startswith('MountVolume.SetUp failed for volume "config" : its files stay as they')
    assert "Not a directory" in event.message
    assert not has_applied(report)
    assert (list(outside.iterdir()), (aside / "a").read_text()) == ([], "old")
    run.delete()
    run.wait()
    assert list(run.folder.glob("*.config.0")) == []  # it may have been a Secret


def test_an_update_of_a_volume_that_the_pod_does_not_have_is_dropped_with_an_event(node: Node) -> None:
    run = node.start(containers=[container("main", "sleep 100")], volumes=[CONFIG])
    run.wait_for(lambda report: state_of(report, "main").state.running is not None)
    send(run.folder, update(("a", NEW), volume="other"))
    signal_runner(run)
    report = run.wait_for(has_applied)
    assert [event.reason for event in report.events if event.type == "Warning"] == ["FailedMount"]
    run.delete()
    run.wait()


def test_the_signal_ends_no_runner_that_has_nothing_to_apply(node: Node) -> None:
    run = node.start(containers=[container("main", "sleep 1")])
    run.wait_for(lambda report: state_of(report, "main").state.running is not None)
    signal_runner(run)
    assert end_of(run.wait(), "main") == (0, "Completed")
