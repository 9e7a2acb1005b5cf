"""Kubernetes' own NodeConformance cases for pods; docs/reference/conformance-pods.md has the others.

The pods are applied at once, when the file begins; each has what many cases need.
"""

from __future__ import annotations

from datetime import datetime
from functools import cache
from typing import Any

import pytest

from tests.e2e.harness import conformance_pods
from tests.e2e.harness.conformance_cases import LOGGED
from tests.e2e.harness.conformance_pods import DELAY_S, SPECS, name_of
from tests.e2e.harness.registry_pods import ARGUMENTS
from tests.e2e.harness.slurm_pods import SlurmPod, SlurmPods, condition, ended
from tests.e2e.harness.waiting import eventually

# The other files of this folder are the short form.
pytestmark = [pytest.mark.timeout(300), pytest.mark.nightly]
TWICE = 2
Object = dict[str, Any]


class Ran:
    """The pods, and the log of each that has ended."""

    def __init__(self, pods: SlurmPods) -> None:
        self._pods = pods
        self.log = cache(self._log)

    def __getitem__(self, name: str) -> SlurmPod:
        return self._pods.of(name_of(name))

    def _log(self, name: str, container: str) -> list[str]:
        self[name].ends()
        return self[name].log("-c", container).splitlines()


@pytest.fixture(scope="module")
def ran(lasting: SlurmPods) -> Ran:
    lasting.apply_all(*conformance_pods.pods())
    return Ran(lasting)


@pytest.mark.parametrize("case", [case for case, (pod, *_) in LOGGED.items() if pod != "hooks"])
def test_what_a_container_finds(ran: Ran, case: str) -> None:
    pod, container, lines = LOGGED[case]
    log = ran.log(pod, container)
    manifest = ran[pod].manifest
    values = {
        "name": manifest["metadata"]["name"],
        "uid": manifest["metadata"]["uid"],
        "host_ip": manifest["status"]["hostIP"],
    }
    assert [line for line in lines if line.format(**values) not in log] == [], log


def test_containers_use_or_override_the_images_default_command_and_arguments(
    pods: SlurmPods, image: str, pull_secret: list[Object]
) -> None:
    """The four cases of "Containers should ..." (use the image defaults, override args, command, both)."""
    name, own = image.rpartition("/")[2], " ".join(ARGUMENTS)
    show = ["sh", "-c", 'echo "$*"', "sh"]
    overridden: dict[str, tuple[Object, str]] = {
        "defaults": ({}, f"{name} {own}\n"),
        "arguments": ({"args": ["override"]}, f"{name} override\n"),
        "command": ({"command": show}, "\n"),
        "both": ({"command": show, "args": ["override", "arguments"]}, "override arguments\n"),
    }
    pulled = {"image": f"{image}:1", "imagePullPolicy": "IfNotPresent"}
    containers = [{"name": which, **pulled, **fields} for which, (fields, _) in overridden.items()]
    pod = pods.run(*containers, imagePullSecrets=pull_secret)
    assert pod.ends()["phase"] == "Succeeded", pod.events()
    assert {which: pod.log("-c", which) for which in overridden} == {
        which: log for which, (_, log) in overridden.items()
    }
    assert "Pulled" in [reason for reason, _ in pod.events()]


@pytest.mark.parametrize(
    ("container", "message"),
    [("empty", ""), ("from-file", "OK"), ("from-log", "DONE"), ("own-path", "DONE")],
)
def test_container_runtime_reports_the_termination_message(ran: Ran, container: str, message: str) -> None:
    """As empty, from file, from log output, at a non-default path."""
    assert ended(ran["messages"].ends(), container).get("message", "") == message


@pytest.mark.parametrize(
    ("pod", "phase", "restarts"),
    [("always", "Running", 2), ("on-failure", "Succeeded", 1), ("never", "Failed", 0)],
)
def test_container_runtime_should_run_with_the_expected_status(
    ran: Ran, pod: str, phase: str, restarts: int
) -> None:
    def is_so(status: Object) -> bool:
        (row,) = status.get("containerStatuses") or [{}]
        shown = (status.get("phase"), row.get("restartCount"), row.get("ready"))
        return shown == (phase, restarts, phase == "Running")

    assert ran[pod].until(is_so, f"{phase} after {restarts} restarts")


def test_init_containers_are_invoked_on_a_restart_always_pod(ran: Ran) -> None:
    status = ran["init-always"].is_ready()
    assert condition(status, "Initialized")["status"] == "True"
    codes = [row["state"]["terminated"]["exitCode"] for row in status["initContainerStatuses"]]
    assert (codes, status["phase"]) == ([0, 0], "Running")


def test_init_containers_are_invoked_on_a_restart_never_pod(ran: Ran) -> None:
    status = ran["init-never"].ends()
    assert (status["phase"], condition(status, "Initialized")["status"]) == ("Succeeded", "True")
    assert [row["ready"] for row in status["initContainerStatuses"]] == [True, True]


def test_app_containers_do_not_start_if_init_containers_fail_on_a_restart_never_pod(ran: Ran) -> None:
    status = ran["init-failed"].ends()
    assert ended(status, "init1", "initContainerStatuses")["exitCode"] == 1
    waiting = [*status["initContainerStatuses"][1:], *status["containerStatuses"]]
    assert {row["state"]["waiting"]["reason"] for row in waiting} == {"PodInitializing"}
    assert (status["phase"], condition(status, "Initialized")["status"]) == ("Failed", "False")


def test_app_containers_do_not_start_if_init_containers_fail_on_a_restart_always_pod(ran: Ran) -> None:
    status = ran["init-failing"].until(
        lambda status: _first_init(status).get("restartCount", 0) >= TWICE,
        "two restarts",
    )
    assert (status["phase"], condition(status, "Initialized")["status"]) == ("Pending", "False")
    assert "waiting" in status["containerStatuses"][0]["state"]


def test_previous_is_the_start_before_or_in_backoff_the_one_that_has_ended(ran: Ran) -> None:
    """As kubelets have it: what waits for its next start has one log, which both commands print."""
    restarted = ran["always"]
    restarted.until(
        lambda status: "running" in _main(status)["state"] and _main(status)["restartCount"] == TWICE,
        "its third start",
    )
    assert [restarted.log(), restarted.log("-c", "main")] == ["3\n"] * 2
    assert [restarted.log("--previous"), restarted.log("-c", "main", "--previous")] == ["2\n"] * 2
    waits = ran["init-failing"]

    def in_backoff() -> tuple[int, list[str]] | None:
        before, of_init = _first_init(waits.status), ("-c", "init1")
        if before.get("restartCount", 0) < TWICE or "waiting" not in before["state"]:
            return None
        logs = [waits.log(*of_init), waits.log(*of_init, "--previous")]
        return (before["restartCount"], logs) if _first_init(waits.status) == before else None

    restarts, logs = eventually(in_backoff, what="a back-off after two restarts")
    assert logs == [f"{restarts + 1}\n"] * 2


def _main(status: Object) -> Object:
    (row,) = status.get("containerStatuses") or [{"state": {}, "restartCount": 0}]
    return dict(row)


def _first_init(status: Object) -> Object:
    return dict((status.get("initContainerStatuses") or [{}])[0])


def test_kubelet_should_not_write_to_root_filesystem(ran: Ran) -> None:
    (line,) = ran.log("roots", "read-only")
    assert "Read-only file system" in line


def test_a_container_is_unprivileged(ran: Ran) -> None:
    """Security Context should run the container as unprivileged when false."""
    assert "privileged" not in ran.log("roots", "unprivileged")


def test_probing_restarts_those_containers_alone_whose_liveness_fails(ran: Ran) -> None:
    """Probing container should (not) be restarted by exec, http, tcp; monotonic count; never ready.

    Also: a startup probe delays liveness, a startup probe fails, an exec probe with timeout.
    """

    def rows(status: Object) -> dict[str, Object]:
        return {row["name"]: row for row in status.get("containerStatuses", [])}

    def is_so(status: Object) -> bool:
        counts = {name: row["restartCount"] for name, row in rows(status).items()}
        wanted = {"file-gone": 2, "http-fails": 2, "never-starts": 1, "hangs": 1}
        return all(counts.get(name, 0) >= count for name, count in wanted.items())

    status = ran["probes"].until(is_so, "so many restarts")
    stays = {name: (rows(status)[name]["restartCount"], rows(status)[name]["ready"]) for name in rows(status)}
    assert {name: stays[name] for name in ("file", "http", "tcp", "never-ready", "starts-late")} == {
        "starts-late": (0, True),
        "file": (0, True),
        "http": (0, True),
        "tcp": (0, True),
        "never-ready": (0, False),
    }
    assert condition(status, "Ready")["status"] == "False"


def test_a_container_is_not_ready_before_its_initial_delay(ran: Ran) -> None:
    """Probing container with readiness probe should not be ready before initial delay and never restart."""
    status = ran["delayed"].is_ready()
    (row,) = status["containerStatuses"]
    began = datetime.fromisoformat(row["state"]["running"]["startedAt"])
    ready = datetime.fromisoformat(condition(status, "Ready")["lastTransitionTime"])
    assert (row["restartCount"], (ready - began).total_seconds() >= DELAY_S) == (0, True)


@pytest.mark.parametrize("pod", ["back-step", "absolute"])
def test_a_subpath_that_leaves_its_volume_fails(ran: Ran, pod: str) -> None:
    """Variable Expansion should fail substituting ... a volume subpath with absolute path, backticks."""
    assert "is not below the volume" in ran[pod].waits("CreateContainerConfigError")


def test_a_limit_that_is_not_set_is_refused_as_the_node_is_not_known(ran: Ran) -> None:
    """Downward API should provide default limits.cpu/memory from node allocatable: here it cannot."""
    status = ran["no-limit"].ends()
    assert (status["phase"], status["reason"]) == ("Failed", "Unsupported")
    assert "set the limit" in status["message"]


def test_lifecycle_hooks_run_after_the_start_and_before_the_end(ran: Ran) -> None:
    """Container Lifecycle Hook should execute poststart and prestop exec and http hooks properly."""
    pod = ran["hooks"]
    begun = pod.until(
        lambda status: (
            {"exec": "terminated", "http": "running", "exec-at-end": "running"}.items()
            <= {
                row["name"]: next(iter(row["state"]), "") for row in status.get("containerStatuses", [])
            }.items()
        ),
        "all that it starts with",
    )
    assert ended(begun, "exec")["exitCode"] == 0
    assert pod.log("-c", "exec") == "started\n"
    folder = pod.work_dir
    assert "/started" in pod.log("-c", "server")
    pod.delete()
    logs = pod.login.run("cat", f"{folder}/server-0.log", f"{folder}/exec-at-end-0.log").stdout
    assert ("/stopped" in logs, logs.endswith("stopped\n")) == (True, True)
    assert not pod.manifest


def test_a_pod_that_failed_can_be_deleted(ran: Ran) -> None:
    """Kubelet should be possible to delete, and should have a terminated reason."""
    pod = ran["never"]
    assert ended(pod.ends())["reason"] == "Error"
    pod.delete()
    assert not pod.manifest


def test_every_pod_of_the_cases_is_looked_at() -> None:
    in_tables = {pod for pod, *_ in LOGGED.values()}
    others = {"messages", "always", "on-failure", "never", "probes", "delayed", "hooks", "no-limit"}
    others |= {"init-always", "init-never", "init-failed", "init-failing", "back-step", "absolute"}
    assert SPECS.keys() == in_tables | others
