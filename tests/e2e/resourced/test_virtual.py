"""Virtual delivery: a pod on a virtual node is its Slurm job, submitted once, whatever is killed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from redbox_bed import login_node
from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from redbox_shared.pod_contract import ATTACH_ONLY, MODE
from tests.e2e.harness.virtual_delivery import Companion, Stand, state_of, virtual_stand
from tests.e2e.harness.waiting import eventually

pytestmark = [pytest.mark.timeout(240), pytest.mark.usefixtures("bare")]
ENDS_WHEN_TOLD = """#!/bin/sh
until [ -e "$HOME/$SLURM_JOB_NAME.end" ]; do sleep 0.2; done
rm "$HOME/$SLURM_JOB_NAME.end"
exit 4
"""
FAILS = "#!/bin/sh\necho out\necho err >&2\nexit 3\n"
SLEEPS = "#!/bin/sh\necho begun\nsleep 600\n"
JOBS_UNDER_KILL = 24
AT_ONCE = 8


@pytest.fixture(scope="module")
def stand(bed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    with virtual_stand(bed, tmp_path_factory.mktemp("resourced")) as stand:
        yield stand


@pytest.fixture
def strangers(stand: Stand) -> Iterator[Callable[[str, dict[str, Any]], None]]:
    """Apply something that is no companion; it is deleted in the end."""
    made: list[str] = []

    def apply(kind: str, body: dict[str, Any]) -> None:
        stand.kubernetes("create", "--namespace=bob", "--filename=-", stdin=json.dumps(body))
        made.append(f"{kind}/{body['metadata']['name']}")

    yield apply
    for one in made:
        stand.kubernetes("delete", one, "--namespace=bob", "--ignore-not-found", "--wait=false")


def ids_of(stand: Stand, companion: Companion) -> list[str]:
    """Accounting hears of a job a moment after Slurm does."""
    return eventually(lambda: stand.jobs_in_slurm(companion.name))


def test_a_pod_becomes_a_job_of_its_accounts_user_and_ends_as_the_job_does(stand: Stand) -> None:
    companion = stand.submit(FAILS)
    status = companion.reaches("Failed", "Succeeded")
    ended = state_of(status)["terminated"]
    assert (status["phase"], ended["exitCode"], ended["reason"]) == ("Failed", 3, "Error")
    word = json.loads(ended["message"])
    assert (word["final"], word["logs"], word["phase"], word["state"]) == (
        True,
        "complete",
        "Failed",
        "FAILED",
    )
    assert ids_of(stand, companion) == [word["jobID"]]
    user = stand.login.run("sacct", "-X", "-n", "-P", "-o", "User", "-j", word["jobID"]).stdout.strip()
    assert user == "alice"


def test_a_running_job_is_a_pod_that_is_ready(stand: Stand) -> None:
    companion = stand.submit(SLEEPS)
    status = companion.reaches("Running")
    ready = next(one for one in status["conditions"] if one["type"] == "Ready")
    assert (ready["status"], "running" in state_of(status)) == ("True", True)
    assert any(one["type"] == "PodScheduled" for one in status["conditions"])


def test_what_has_not_changed_is_not_written_again(stand: Stand) -> None:
    companion = stand.submit(SLEEPS)
    companion.reaches("Running")
    time.sleep(1.5)  # what was under way is written
    before = companion.pod["metadata"]["resourceVersion"]
    stand.resourced.kill()
    stand.resourced.start()
    other = stand.submit(FAILS)
    other.reaches("Failed")
    assert companion.pod["metadata"]["resourceVersion"] == before


def test_a_job_that_waits_says_why_in_words(stand: Stand) -> None:
    companion = stand.submit(SLEEPS, hold=True)
    companion.has_condition("Submitted")
    waiting = state_of(companion.pod["status"])["waiting"]
    assert waiting["reason"] == "Queued"
    # Slurm's reason comes with red-box's next look at the queue.
    eventually(lambda: "held" in state_of(companion.pod["status"])["waiting"]["message"].lower())


def test_a_cancelled_job_ends_as_one_that_was_told_to(stand: Stand) -> None:
    companion = stand.submit(SLEEPS)
    companion.reaches("Running")
    stand.login.run("scancel", f"--name={companion.name}", user="alice")
    ended = state_of(companion.reaches("Failed"))["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (143, "Cancelled")


def test_what_slurm_refuses_fails_with_slurms_words(stand: Stand) -> None:
    companion = stand.submit("#!/bin/sh\n#SBATCH --partition=nowhere\ntrue\n")
    ended = state_of(companion.reaches("Failed"))["terminated"]
    assert "partition" in json.loads(ended["message"])["refused"].lower()
    assert ended["exitCode"] == 65
    with pytest.raises(BedError, match=r"the job was not submitted: .*invalid partition"):
        companion.logs()


def test_a_pod_that_the_operator_has_not_named_is_not_submitted_until_it_is(stand: Stand) -> None:
    companion = stand.slurm_job(FAILS)
    body = json.dumps({"batch": FAILS, "name": companion.name})
    stand.config_map(companion, body)
    pod = stand.pod(companion)
    stand.name_companion(companion, "00000000-0000-0000-0000-000000000000", body)
    companion.has_condition("NotTheCompanion", "has not named this pod")
    assert stand.jobs_in_slurm(companion.name) == []
    stand.name_companion(companion, pod["metadata"]["uid"], body)
    companion.reaches("Failed")
    assert len(ids_of(stand, companion)) == 1


def test_a_request_that_is_not_the_operators_is_not_submitted(stand: Stand) -> None:
    companion = stand.slurm_job(FAILS)
    stand.config_map(companion, json.dumps({"batch": "#!/bin/sh\nid\n", "name": companion.name}))
    pod = stand.pod(companion)
    stand.name_companion(companion, pod["metadata"]["uid"], json.dumps({"batch": FAILS}))
    companion.has_condition("RequestChanged", "not the one the operator made")
    assert stand.jobs_in_slurm(companion.name) == []


def test_a_companion_of_another_account_than_its_slurmjobs_is_not_submitted(stand: Stand) -> None:
    stand.kubernetes("create", "serviceaccount", "other", "--namespace=alice")
    try:
        companion = stand.slurm_job(FAILS)
        body = json.dumps({"batch": FAILS, "name": companion.name})
        stand.config_map(companion, body)
        pod = stand.pod(companion, serviceAccountName="other")
        stand.name_companion(companion, pod["metadata"]["uid"], body)
        companion.has_condition("NotTheCompanion", "account")
        assert stand.jobs_in_slurm(companion.name) == []
    finally:
        stand.kubernetes("delete", "serviceaccount", "other", "--namespace=alice")


def test_a_job_with_secrets_is_followed_and_submitted_by_another(stand: Stand) -> None:
    companion = stand.slurm_job(FAILS)
    body = json.dumps({"batch": FAILS, "name": companion.name})
    stand.config_map(companion, body)
    pod = stand.pod(companion, env=[{"name": MODE, "value": ATTACH_ONLY}])
    stand.name_companion(companion, pod["metadata"]["uid"], body)
    companion.has_condition("WaitsForSubmitter")
    assert stand.jobs_in_slurm(companion.name) == []


def test_a_pod_of_a_stranger_fails_once_and_says_why(
    stand: Stand, strangers: Callable[[str, dict[str, Any]], None]
) -> None:
    container = {"name": "main", "image": "bed.local/nowhere:1"}
    metadata = {"name": "stranger"}
    spec = {"nodeName": "hpc1.debug", "containers": [container], "restartPolicy": "Never"}
    strangers("pod", {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def failed() -> dict[str, Any] | None:
        found = json.loads(stand.kubernetes("get", "pod", "stranger", "--namespace=bob", "--output=json"))
        status: dict[str, Any] = found["status"]
        return status if status["phase"] == "Failed" else None

    assert eventually(failed)["reason"] == "NotRunOnVirtualNode"


def test_a_daemonsets_pod_is_ready_so_that_its_rollout_goes_on(
    stand: Stand, strangers: Callable[[str, dict[str, Any]], None]
) -> None:
    labels = {"app": "everywhere"}
    pod = {
        "tolerations": [{"operator": "Exists"}],
        "nodeSelector": {"redbox.dev/virtual": "true"},
        "containers": [{"name": "main", "image": "bed.local/nowhere:1"}],
    }
    spec = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    metadata = {"name": "everywhere"}
    strangers("daemonset", {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec})
    stand.kubernetes("rollout", "status", "daemonset/everywhere", "--namespace=bob", "--timeout=60s")
    pods = json.loads(
        stand.kubernetes("get", "pods", "--namespace=bob", "--selector=app=everywhere", "--output=json")
    )["items"]
    assert {one["status"]["reason"] for one in pods} == {"NotRunOnVirtualNode"}


def test_a_deleted_pod_is_gone_at_once_and_its_job_lives_on(stand: Stand) -> None:
    companion = stand.submit(SLEEPS)
    companion.reaches("Running")
    stand.kubernetes("delete", "pod", companion.pod_name, "--namespace=alice", "--timeout=20s")
    state = stand.login.run("squeue", "-h", "-o", "%T", f"--name={companion.name}").stdout.split()
    assert state == ["RUNNING"]


def test_another_pod_of_the_same_attempt_attaches_to_the_job_that_there_is(stand: Stand) -> None:
    companion = stand.submit(SLEEPS)
    companion.reaches("Running")
    body = json.dumps({"batch": SLEEPS, "name": companion.name})
    stand.kubernetes("delete", "pod", companion.pod_name, "--namespace=alice", "--timeout=20s")
    pod = stand.pod(companion)
    stand.name_companion(companion, pod["metadata"]["uid"], body)
    companion.reaches("Running")
    assert len(ids_of(stand, companion)) == 1


def test_each_attempt_is_a_job_and_the_previous_ones_log_is_kubectls_previous(stand: Stand) -> None:
    first = stand.submit("#!/bin/sh\necho first\nexit 1\n")
    first.reaches("Failed")
    second = replace(first, attempt=2)
    stand.attempt(second, "#!/bin/sh\necho second\n")
    second.reaches("Succeeded")
    assert (second.logs(), second.logs("--previous"), first.logs()) == ("second\n", "first\n", "first\n")
    eventually(lambda: len(ids_of(stand, first)) == 2, what="both jobs in the accounting")


def test_killed_while_it_submits_it_submits_each_job_once(stand: Stand) -> None:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        submitting = [pool.submit(stand.submit, FAILS) for _ in range(JOBS_UNDER_KILL)]
        eventually(lambda: sum(one.done() for one in submitting) >= JOBS_UNDER_KILL // 3)
        stand.resourced.kill()
        stand.resourced.launch()
        eventually(lambda: sum(one.done() for one in submitting) >= 2 * JOBS_UNDER_KILL // 3)
        stand.resourced.kill()
        stand.resourced.start()

        def ended(companion: Companion) -> tuple[int, int]:
            status = companion.reaches("Failed")
            return state_of(status)["terminated"]["exitCode"], len(ids_of(stand, companion))

        ends = list(pool.map(ended, [one.result() for one in submitting]))
    assert ends == [(3, 1)] * JOBS_UNDER_KILL


def test_a_job_that_ended_while_nobody_looked_is_told_when_it_is_back(stand: Stand) -> None:
    companion = stand.submit(ENDS_WHEN_TOLD)
    companion.reaches("Running")
    stand.resourced.kill()
    stand.login.run("touch", f"/home/alice/{companion.name}.end", user="alice")
    eventually(lambda: not stand.login.run("squeue", "-h", f"--name={companion.name}").stdout)
    stand.resourced.start()
    assert state_of(companion.reaches("Failed"))["terminated"]["exitCode"] == 4
    assert companion.logs() == ""


def test_with_red_box_away_a_pod_waits_and_says_for_whom(stand: Stand) -> None:
    running = stand.submit(SLEEPS)
    running.reaches("Running")
    stand.login.kill(login_node.SERVICE)
    try:
        companion = stand.submit(FAILS)
        companion.has_condition("RedboxUnreachable", "red-box")
        assert running.pod["status"]["phase"] == "Running"
    finally:
        login_node.start(stand.login)
    companion.reaches("Failed")
    assert len(ids_of(stand, companion)) == 1
