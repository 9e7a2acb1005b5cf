"""The life of containers, in Kubernetes' order and words, with a stand-in for Apptainer."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from redbox.runner.program_source import runner_source
from tests.redbox.runner.harness import BOX, LIMIT_S, REGISTRY, Node, container, end_of, reasons, state_of

PYTHONS = [
    path
    for path in (f"/root/.pyenv/versions/{v}/bin/python3" for v in ("3.6.15", "3.7.16", "3.13.0"))
    if os.access(path, os.X_OK)
]


def test_it_is_the_same_each_time() -> None:
    first = runner_source()
    runner_source.cache_clear()
    assert runner_source() == first
    assert first.startswith(b"#!/usr/bin/python3 -IS\n")


@pytest.mark.parametrize("python", PYTHONS)
def test_it_runs_with_old_and_new_pythons(python: str, tmp_path: Path) -> None:
    """And in a locale of ASCII, in which 3.6 has no other letters."""
    node = Node(tmp_path, python)
    node.serve({BOX: {**REGISTRY[BOX], "Env": [*REGISTRY[BOX]["Env"], "Y=ö"]}})
    env = [{"name": "X", "value": "ü"}]
    run = node.start(containers=[container("a", 'echo "é$X$Y"; exit 3', env=env)], hostsFile="10.0.0.1 ä\n")
    assert end_of(run.wait(), "a") == (3, "Error")
    assert run.log("a") == "éüö\n"


def test_a_container_gets_its_variables_and_its_log(node: Node) -> None:
    env = [{"name": "X", "value": "1"}, {"name": "Y", "value": "$(X)$$(X) $(OF_IMAGE) 'é\n"}]
    run = node.start(containers=[container("a", 'echo "$Y|$OF_IMAGE|$HOME"; exit 7', env=env)])
    report = run.wait()
    assert run.process.returncode == 7
    assert end_of(report, "a") == (7, "Error")
    assert run.log("a") == "1$(X) $(OF_IMAGE) 'é\n|$HOME|/root\n"
    assert reasons(report, "a") == ["Pulling", "Pulled", "Created", "Started"]


def test_without_a_command_the_images_entry_point_runs(node: Node) -> None:
    run = node.start(containers=[{"name": "a", "image": BOX}])
    assert end_of(run.wait(), "a") == (0, "Completed")
    assert run.log("a") == "default\n"


def test_a_program_that_is_not_there_is_a_start_error(node: Node) -> None:
    report = node.run(containers=[{"name": "a", "image": BOX, "command": ["/nope"]}])
    assert end_of(report, "a") == (128, "StartError")
    assert "Started" not in reasons(report, "a")


@pytest.mark.parametrize(
    ("image", "policy", "reason"),
    [
        ("docker://absent:1", "IfNotPresent", "ErrImagePull"),
        ("docker://absent:1", "Never", "ErrImageNeverPull"),
        ("docker://Not/A/Name", "Always", "InvalidImageName"),
        ("/no/such.sif", "IfNotPresent", "ErrImagePull"),
    ],
)
def test_an_image_that_does_not_come_is_waited_for(node: Node, image: str, policy: str, reason: str) -> None:
    run = node.start(containers=[{"name": "a", "image": image, "pullPolicy": policy}])
    run.wait_for(lambda report: "Failed" in reasons(report, "a"))
    run.wait_for(lambda report: (w := state_of(report, "a").state.waiting) is not None and w.reason == reason)
    run.delete()
    run.wait()


def test_a_pull_is_tried_again_and_waited_for_with_kubernetes_words(node: Node) -> None:
    node.serve({})
    run = node.start(containers=[container("a", "true")])
    report = run.wait_for(
        lambda report: (
            (w := state_of(report, "a").state.waiting) is not None and w.reason == "ImagePullBackOff"
        )
    )
    waiting = state_of(report, "a").state.waiting
    assert waiting is not None
    assert waiting.message.startswith(f'Back-off pulling image "{BOX}": ErrImagePull: ')
    assert reasons(report, "a") == ["Pulling", "Failed", "Failed", "BackOff"]
    run.delete()
    run.wait()


def test_a_pod_whose_image_does_not_come_fails_after_a_while_and_gives_back_its_nodes(node: Node) -> None:
    absent = container("b", "true", image="docker://absent:1")
    run = node.start(
        images_within_s=1.0, restartPolicy="Always", containers=[container("a", "exec sleep 600"), absent]
    )
    report = run.wait()
    assert run.process.returncode != 0
    assert report.reason == "ImagePullFailed"
    assert report.message is not None
    assert report.message.startswith('image "docker://absent:1" of container b could not be pulled for 1 s: ')
    assert "ImagePullFailed" in [event.reason for event in report.events]


def test_a_restart_whose_image_does_not_come_keeps_the_end_before(node: Node, tmp_path: Path) -> None:
    script = f"while [ ! -e {tmp_path}/go ]; do sleep .05; done; exit 3"
    run = node.start(restartPolicy="OnFailure", containers=[container("a", script, pullPolicy="Always")])
    run.wait_for(lambda report: state_of(report, "a").state.running is not None)
    node.serve({})
    (tmp_path / "go").touch()
    row = state_of(run.wait_for(lambda report: state_of(report, "a").state.waiting is not None), "a")
    assert row.state.waiting is not None
    assert row.last_state.terminated is not None
    assert (row.state.waiting.reason, row.last_state.terminated.exit_code) == ("ErrImagePull", 3)
    run.delete()
    assert end_of(run.wait(), "a") == (3, "Error")


def test_a_signal_before_anything_was_started_is_said(node: Node, tmp_path: Path) -> None:
    """As in each report: a preemption looks like a deletion, and neither is the pod's own end."""
    for name in ("squashfuse", "squashfuse_ll"):
        script = f"#!/bin/sh\ntouch {tmp_path}/asked\nexec sleep {LIMIT_S}\n"
        (tmp_path / "bin" / name).write_text(script)
        (tmp_path / "bin" / name).chmod(0o755)
    run = node.start(containers=[container("a", "true")])
    until = time.monotonic() + LIMIT_S
    while not (tmp_path / "asked").exists() and time.monotonic() < until:
        time.sleep(0.02)
    run.delete()
    report = run.wait()
    assert report.stopped
    assert state_of(report, "a").state.waiting is not None


def test_init_containers_run_in_turn_and_a_sidecar_until_the_end(node: Node, tmp_path: Path) -> None:
    note = f"echo $0 >>{tmp_path}/order"
    trap = f"trap 'echo sidecar >>{tmp_path}/order; exit 0' TERM"
    sidecar = f"{trap}; touch {tmp_path}/up; while :; do sleep .05; done"
    probe = {"exec": ["test", "-e", f"{tmp_path}/up"], "periodS": 1, "timeoutS": LIMIT_S}
    probe["failureThreshold"] = LIMIT_S
    report = node.run(
        initContainers=[
            container("one", f"sleep .2; {note.replace('$0', 'one')}"),
            container("side", sidecar, alwaysRestarts=True, startupProbe=probe),
            container("two", f"test -e {tmp_path}/up && {note.replace('$0', 'two')}"),
        ],
        containers=[container("main", f"sleep .2; {note.replace('$0', 'main')}")],
    )
    assert (tmp_path / "order").read_text().split() == ["one", "two", "main", "sidecar"]
    assert [end_of(report, name) for name in ("one", "side", "two", "main")] == [(0, "Completed")] * 4
    assert [row.kind for row in report.containers] == ["init", "sidecar", "init", "main"]


def test_an_init_container_that_fails_ends_a_pod_that_never_restarts(node: Node) -> None:
    run = node.start(initContainers=[container("i", "exit 5")], containers=[container("a", "true")])
    report = run.wait()
    assert run.process.returncode == 5
    waiting = state_of(report, "a").state.waiting
    assert waiting is not None
    assert waiting.reason == "PodInitializing"


def test_a_failed_container_is_started_again_each_time_with_a_log_of_its_own(
    node: Node, tmp_path: Path
) -> None:
    script = f"echo run; test -e {tmp_path}/f && exit 0; touch {tmp_path}/f; exit 1"
    run = node.start(restartPolicy="OnFailure", containers=[container("a", script)])
    row = state_of(run.wait(), "a")
    assert row.restart_count == 1
    assert row.last_state.terminated is not None
    assert row.last_state.terminated.exit_code == 1
    assert [run.log("a"), run.log("a", 1)] == ["run\n", "run\n"]


def test_the_second_restart_waits_as_a_crash_loop(node: Node) -> None:
    run = node.start(restartPolicy="Always", containers=[container("a", "exit 2")])
    report = run.wait_for(
        lambda report: (
            (w := state_of(report, "a").state.waiting) is not None and w.reason == "CrashLoopBackOff"
        )
    )
    waiting = state_of(report, "a").state.waiting
    assert waiting is not None
    assert waiting.message == "back-off 10s restarting failed container=a pod=web_team(u-1)"
    run.delete()
    report = run.wait()
    assert end_of(report, "a") == (2, "Error")
    assert state_of(report, "a").restart_count == 1


def test_a_deleted_pod_gets_its_hook_its_signal_and_its_grace(node: Node, tmp_path: Path) -> None:
    trap = f"trap 'echo stopped >>{tmp_path}/order; exit 9' USR1"
    script = f"{trap}; touch {tmp_path}/up; while :; do sleep .05; done"
    hook = {"exec": ["sh", "-c", f"echo hook >>{tmp_path}/order"]}
    run = node.start(
        restartPolicy="Always", containers=[container("a", script, preStop=hook, stopSignal="SIGUSR1")]
    )
    run.wait_for(lambda _: (tmp_path / "up").exists() and state_of(run.reports()[-1], "a").ready)
    run.delete()
    report = run.wait()
    assert (tmp_path / "order").read_text().split() == ["hook", "stopped"]
    assert end_of(report, "a") == (9, "Error")
    assert reasons(report, "a")[-1] == "Killing"
    assert report.stopped


def test_a_signal_to_the_batch_script_is_the_programs(node: Node, tmp_path: Path) -> None:
    """As by sbatch --signal=B:USR1@300. It is for main containers alone."""
    script = f"trap 'exit 7' USR1; touch {tmp_path}/up; while :; do sleep .05; done"
    waits = f"trap 'exit 0' TERM; touch {tmp_path}/waits; while :; do sleep .05; done"
    sidecar = {**container("s", waits), "alwaysRestarts": True}
    run = node.start(initContainers=[sidecar], containers=[container("a", script)])
    run.wait_for(lambda _: (tmp_path / "waits").exists())
    run.wait_for(lambda _: (tmp_path / "up").exists() and state_of(run.reports()[-1], "a").ready)
    run.process.send_signal(signal.SIGUSR1)
    report = run.wait()
    assert (end_of(report, "a"), end_of(report, "s")[0]) == ((7, "Error"), 0)


@pytest.mark.parametrize("name", ["SIGRTMIN+3", "RTMAX-27", "37"])
def test_an_image_may_end_by_a_signal_without_a_name(node: Node, tmp_path: Path, name: str) -> None:
    node.serve({BOX: {**REGISTRY[BOX], "StopSignal": name}})
    script = f"trap 'exit 9' 37; touch {tmp_path}/up; while :; do sleep .05; done"
    run = node.start(containers=[container("a", script)])
    run.wait_for(lambda _: (tmp_path / "up").exists() and state_of(run.reports()[-1], "a").ready)
    run.delete()
    assert end_of(run.wait(), "a") == (9, "Error")


def test_a_container_that_ignores_its_signal_is_killed_after_the_grace_period(node: Node) -> None:
    run = node.start(terminationGraceS=1, containers=[container("a", "sleep 1000")])
    run.wait_for(lambda report: state_of(report, "a").ready)
    run.delete()
    assert end_of(run.wait(), "a") == (137, "Error")


def test_the_deadline_ends_the_pod(node: Node) -> None:
    run = node.start(activeDeadlineS=1, terminationGraceS=0, containers=[container("a", "sleep 1000")])
    assert run.wait().reason == "DeadlineExceeded"
    assert run.process.returncode in {1, 137, 143}  # killed, or ended before its program ran, or began


def test_a_liveness_probe_restarts_a_container_and_a_readiness_probe_does_not(
    node: Node, tmp_path: Path
) -> None:
    alive, ready = tmp_path / "alive", tmp_path / "ready"
    alive.touch()
    often = {"periodS": 1, "timeoutS": LIMIT_S, "failureThreshold": 1}
    run = node.start(
        restartPolicy="Always",
        terminationGraceS=0,
        containers=[
            container(
                "a",
                "while :; do sleep .05; done",
                livenessProbe={"exec": ["test", "-e", str(alive)], **often},
                readinessProbe={"exec": ["test", "-e", str(ready)], **often},
            )
        ],
    )
    run.wait_for(lambda report: "Unhealthy" in reasons(report, "a") and state_of(report, "a").started)
    ready.touch()
    assert state_of(run.wait_for(lambda report: state_of(report, "a").ready), "a").restart_count == 0
    alive.unlink()
    report = run.wait_for(lambda report: state_of(report, "a").restart_count > 0)
    assert "Container a failed liveness probe, will be restarted" in [e.message for e in report.events]
    run.delete()
    run.wait()


@pytest.mark.parametrize("policy", ["OnFailure", "Never"])
def test_a_program_that_a_probe_has_ended_has_not_finished(node: Node, tmp_path: Path, policy: str) -> None:
    """Also if it ends well on its signal; what never restarts ends as it does, as for kubelets."""
    once, hung = tmp_path / "once", tmp_path / "hung"
    probe = {"exec": ["test", "!", "-e", str(hung)], "periodS": 1, "timeoutS": LIMIT_S}
    ends_well = f"[ ! -e {once} ] || exit 0; trap 'rm {hung}; exit 0' TERM"
    hangs = f"{ends_well}; touch {once} {hung}; while :; do sleep .05; done"
    run = node.start(
        restartPolicy=policy,
        containers=[container("a", hangs, livenessProbe={**probe, "failureThreshold": 1})],
    )
    report = run.wait()
    messages = [event.message for event in report.events if event.reason == "Killing"]
    assert end_of(report, "a") == (0, "Completed")
    suffix, restarted = (", will be restarted", 1) if policy == "OnFailure" else ("", 0)
    assert messages == [f"Container a failed liveness probe{suffix}"]
    assert state_of(report, "a").restart_count == restarted
    ends = [state_of(each, "a").state.terminated is not None for each in run.reports()]
    assert ends == sorted(ends), "the API server lets no container leave an end with code 0"


def test_while_a_pod_is_deleted_its_liveness_is_not_probed(node: Node, tmp_path: Path) -> None:
    """Probing container should disable liveness probes while the pod is in progress of terminating."""
    alive = tmp_path / "alive"
    alive.touch()
    ends = f"rm {alive}; sleep 1.5; exit 9"
    probe = {"exec": ["test", "-e", str(alive)], "periodS": 1, "timeoutS": LIMIT_S, "failureThreshold": 1}
    probe["terminationGraceS"] = 0
    script = f"trap '{ends}' TERM; touch {tmp_path}/up; while :; do sleep .05; done"
    run = node.start(containers=[container("a", script, livenessProbe=probe)])
    run.wait_for(lambda _: (tmp_path / "up").exists() and state_of(run.reports()[-1], "a").ready)
    run.delete()
    report = run.wait()
    assert end_of(report, "a") == (9, "Error")
    assert "Unhealthy" not in reasons(report, "a")


def test_a_port_that_another_process_listens_on_is_named(node: Node) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        report = node.run(containers=[container("a", "true", ports=[port])])
    assert end_of(report, "a") == (128, "PortInUse")
    end = state_of(report, "a").state.terminated
    assert end is not None
    assert f"port {port} of container a is in use" in end.message


def test_a_host_path_that_is_no_folder_is_waited_for(node: Node, tmp_path: Path) -> None:
    volume = {"name": "v", "hostPath": {"path": str(tmp_path / "late"), "type": "Directory"}}
    run = node.start(volumes=[volume], containers=[container("a", "true")])
    report = run.wait_for(lambda report: bool(report.events))
    assert report.events[0].reason == "FailedMount"
    run.delete()
    run.wait()


def test_a_sub_path_that_leaves_its_volume_is_a_config_error(node: Node) -> None:
    mounts = [{"volume": "v", "mountPath": "/v", "subPath": "../x"}]
    run = node.start(
        volumes=[{"name": "v", "emptyDir": {}}], containers=[container("a", "true", mounts=mounts)]
    )
    report = run.wait_for(lambda report: "Failed" in reasons(report, "a"))
    waiting = state_of(report, "a").state.waiting
    assert waiting is not None
    assert waiting.reason == "CreateContainerConfigError"
    run.delete()
    run.wait()


def test_a_node_without_scratch_is_one_sentence(node: Node) -> None:
    report = node.run(scratch="/no/such/folder", containers=[container("a", "true")])
    assert report.reason == "ScratchUnavailable"
    assert report.message.endswith("Ask the cluster's administrator for another pods.scratch.")


def test_credentials_are_in_the_environment_of_the_pull_and_nowhere_else(node: Node, tmp_path: Path) -> None:
    apptainer = node.folder / "bin/apptainer"
    spy = apptainer.with_name("spy")
    apptainer.rename(spy)
    apptainer.write_text(
        f'#!/bin/sh\nenv >>{tmp_path}/env; echo "$@" >>{tmp_path}/argv\n'
        f'exec {sys.executable} -IS {spy} "$@"\n'
    )
    apptainer.chmod(0o755)
    image = "docker://host.example/app:1"
    node.serve({image: {"Env": [f"PATH={os.environ['PATH']}"]}})
    run = node.start(
        registries={"host.example": {"username": "u", "password": "hidden"}},
        containers=[{"name": "a", "image": image, "command": ["env"]}],
    )
    run.wait()
    assert "APPTAINER_DOCKER_PASSWORD" in (tmp_path / "env").read_text()
    assert "hidden" not in (tmp_path / "argv").read_text()
    assert "DOCKER" not in run.log("a")
    assert not [path for path in run.folder.rglob("*") if path.is_file() and b"hidden" in path.read_bytes()]


def test_the_private_folder_keeps_logs_and_report_alone(node: Node) -> None:
    run = node.start(containers=[container("a", "true")])
    run.wait()
    assert json.loads((run.folder / "report.jsonl").read_text().splitlines()[-1])["done"] is True
    assert sorted(path.name for path in run.folder.iterdir()) == ["logs", "report.jsonl"]


def test_a_pod_whose_slurmstepd_is_killed_ends_by_itself(node: Node) -> None:
    """A shell stands for slurmstepd; its child is the runner."""
    node.start_by = ["sh", "-c", '"$@" & wait', "sh"]
    run = node.start(terminationGraceS=0, containers=[container("a", "sleep 1000")])
    run.wait_for(lambda report: state_of(report, "a").ready)
    run.process.kill()
    run.process.wait(LIMIT_S)
    report = run.wait_done()
    assert (report.reason, end_of(report, "a")) == ("NodeLost", (137, "Error"))
    assert list(run.scratch.iterdir()) == []


def test_a_volume_over_its_limit_ends_the_pod(node: Node) -> None:
    volume = {"name": "v", "emptyDir": {"sizeLimit": 4096}}
    mounts = [{"volume": "v", "mountPath": "/v"}]
    fill = f"cd {node.folder}/scratch/redbox-pod-*/volumes/v && dd if=/dev/zero of=x bs=64k count=1"
    script = f"{fill}; sleep 1000"
    report = node.run(volumes=[volume], containers=[container("a", script, mounts=mounts)])
    assert report.reason == "Evicted"
