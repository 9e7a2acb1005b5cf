"""A changed configuration is tried in a pod of its own, and mounted only then."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any

import pytest

from redbox_hosting.controllers.clusters.trials import GIVEN_UP_AFTER, TrialResult, result_of
from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiRefused, Object, ResourcePath
from redbox_slurmpod.trial.scratch_cluster import REFUSED
from tests.hosting.controllers.controller_bench import (
    SLURM,
    api,
    at,
    change,
    condition,
    digest_of,
    eventually,
    operator,
    put_in_service,
)
from tests.kube.fakes import FakeApiServer

__all__ = ["api", "operator"]
MOUNTED = at(kinds.CONFIG_MAP, "slurm-config")
WORDS = "slurmd: fatal: error opening/reading gres.conf"


def ended(status: int, message: str = "") -> Object:
    terminated = {"exitCode": status, "reason": "Error", "message": message}
    return {"containerStatuses": [{"name": "trial", "state": {"terminated": terminated}}]}


REFUSES = ended(REFUSED, WORDS)


def trials(api: FakeApiServer) -> list[str]:
    return [name for name in api.names("Pod") if "-trial-" in name]


async def the_trial(api: FakeApiServer) -> ResourcePath:
    await eventually(lambda: len(trials(api)) == 1)
    (name,) = trials(api)
    return at(kinds.POD, name)


async def in_service(api: FakeApiServer, **spec: object) -> str:
    """A cluster that runs, and whose user has changed it; returns the digest of what runs."""
    api.put(SLURM, spec={})
    await eventually(lambda: condition(api, "Configuration").get("status") == "True")
    return put_in_service(api, **spec)


def ends(api: FakeApiServer, where: ResourcePath, status: Object) -> None:
    api.put(where, {**api.objects[where], "status": status})


async def test_the_first_configuration_is_mounted_without_a_trial(api: FakeApiServer) -> None:
    api.put(SLURM, spec={})
    await eventually(lambda: condition(api, "Configuration").get("status") == "True")
    assert not trials(api)
    assert not condition(api, "ConfigurationTried")


async def test_a_change_is_mounted_once_its_trial_has_accepted_it(api: FakeApiServer) -> None:
    runs = await in_service(api, extraConf="KillWait=7")
    trial = await the_trial(api)
    await eventually(lambda: "the trial of the configuration" in condition(api, "Ready")["message"])
    assert condition(api, "ConfigurationTried")["reason"] == "Trying"
    assert digest_of(api, MOUNTED) == runs
    (volume, *_) = api.objects[trial]["spec"]["volumes"]
    record = at(kinds.CONFIG_MAP, volume["configMap"]["name"])
    assert "KillWait=7" in api.objects[record]["data"]["slurm.conf"]
    ends(api, trial, ended(0, "accepted"))
    await eventually(lambda: not trials(api))
    await eventually(lambda: condition(api, "ConfigurationTried").get("status") == "True")
    assert "KillWait=7" in api.objects[MOUNTED]["data"]["slurm.conf"]
    assert sum(str(request) == "create Pod" for request in api.requests) == 1


async def test_a_refusal_is_named_and_what_runs_stays_mounted(api: FakeApiServer) -> None:
    runs = await in_service(api, extraConf="KillWait=7")
    ends(api, await the_trial(api), REFUSES)
    refused = f"Slurm refused the configuration: in a trial, {WORDS}: correct it, or delete ConfigMap"
    await eventually(lambda: refused in condition(api, "Configuration").get("message", ""))
    await eventually(lambda: not trials(api))
    assert condition(api, "ConfigurationTried")["status"] == "False"
    assert condition(api, "Degraded")["status"] == "True"
    assert digest_of(api, MOUNTED) == runs
    change(api, {"extraConf": "KillWait=8"})
    ends(api, await the_trial(api), ended(0))
    await eventually(lambda: "KillWait=8" in api.objects[MOUNTED]["data"]["slurm.conf"])
    await eventually(lambda: condition(api, "Degraded")["status"] == "False")


async def test_what_runs_is_not_tried_again_when_a_change_is_taken_back(api: FakeApiServer) -> None:
    runs = await in_service(api, extraConf="KillWait=7")
    ends(api, await the_trial(api), REFUSES)
    await eventually(lambda: condition(api, "Degraded").get("status") == "True")
    change(api, {})
    await eventually(lambda: condition(api, "Degraded")["status"] == "False")
    assert digest_of(api, MOUNTED) == runs
    assert not trials(api)


async def test_a_trial_that_a_newer_change_has_overtaken_is_removed(api: FakeApiServer) -> None:
    await in_service(api, extraConf="KillWait=7")
    first = await the_trial(api)
    change(api, {"extraConf": "KillWait=8"})
    await eventually(lambda: trials(api) not in ([first.name], []) and first not in api.objects)
    ends(api, await the_trial(api), ended(0))
    await eventually(lambda: "KillWait=8" in api.objects[MOUNTED]["data"]["slurm.conf"])


@pytest.mark.parametrize(
    ("status", "why"),
    [
        (ended(2, "invalid choice: 'trial'"), "exit status 2: invalid choice: 'trial'"),
        (ended(137), "exit status 137: Error"),
        ({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}, "failed: low on memory"),
    ],
)
async def test_a_trial_that_says_nothing_does_not_keep_the_change(
    api: FakeApiServer, status: Object, why: str
) -> None:
    await in_service(api, extraConf="KillWait=7")
    ends(api, await the_trial(api), status)
    await eventually(lambda: "KillWait=7" in api.objects[MOUNTED]["data"]["slurm.conf"])
    await eventually(lambda: condition(api, "ConfigurationTried").get("status") == "Unknown")
    await eventually(lambda: why in condition(api, "ConfigurationTried")["message"])
    assert condition(api, "Degraded")["status"] == "False"


async def test_a_pod_that_is_not_scheduled_in_time_does_not_keep_the_change(api: FakeApiServer) -> None:
    await in_service(api, extraConf="KillWait=7")
    trial = await the_trial(api)
    unscheduled = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}
    created = (datetime.now(UTC) - GIVEN_UP_AFTER).isoformat()
    metadata = {**api.objects[trial]["metadata"], "creationTimestamp": created}
    api.put(trial, {**api.objects[trial], "status": {"conditions": [unscheduled]}}, metadata=metadata)
    await eventually(lambda: "KillWait=7" in api.objects[MOUNTED]["data"]["slurm.conf"])
    await eventually(lambda: "Unschedulable: no room" in condition(api, "ConfigurationTried")["message"])


async def test_a_quota_without_room_for_the_pod_does_not_keep_the_change(api: FakeApiServer) -> None:
    api.fail(ApiRefused(HTTPStatus.FORBIDDEN, "exceeded quota: team"), verb="create", kind="Pod")
    await in_service(api, extraConf="KillWait=7")
    await eventually(lambda: "KillWait=7" in api.objects[MOUNTED]["data"]["slurm.conf"])
    await eventually(
        lambda: "exceeded quota: team" in condition(api, "ConfigurationTried").get("message", "")
    )


async def test_an_api_server_that_fails_is_asked_again(api: FakeApiServer) -> None:
    error = ApiRefused(HTTPStatus.SERVICE_UNAVAILABLE, "etcd has no leader")
    api.fail(error, verb="create", kind="Pod", times=1)
    runs = await in_service(api, extraConf="KillWait=7")
    await the_trial(api)
    assert digest_of(api, MOUNTED) == runs


async def test_without_trials_a_change_is_mounted_at_once(api: FakeApiServer) -> None:
    await in_service(api, extraConf="KillWait=7", redbox={"trial": False})
    await eventually(lambda: "KillWait=7" in api.objects[MOUNTED]["data"]["slurm.conf"])
    assert not trials(api)


async def test_a_pod_of_somebody_else_is_no_trial(api: FakeApiServer) -> None:
    runs = await in_service(api, extraConf="KillWait=7")
    trial = await the_trial(api)
    labels = api.objects[trial]["metadata"]["labels"]
    api.put(trial, metadata={"labels": labels, "uid": "other"}, status=ended(0))
    belongs = f"Pod {trial.name} exists and does not belong to Controller slurm"
    await eventually(lambda: belongs in condition(api, "Configuration").get("message", ""))
    assert digest_of(api, MOUNTED) == runs
    api.remove(trial)
    await eventually(lambda: is_ours(api, trial))


def is_ours(api: FakeApiServer, where: ResourcePath) -> bool:
    uid = api.objects[SLURM]["metadata"]["uid"]
    references = api.objects.get(where, {"metadata": {}})["metadata"].get("ownerReferences") or []
    return [each["uid"] for each in references] == [uid]


NOW = datetime(2026, 1, 1, tzinfo=UTC)


def pod(age: timedelta, **status: Any) -> Object:
    return {"metadata": {"creationTimestamp": (NOW - age).isoformat()}, "status": status}


@pytest.mark.parametrize(
    "made",
    [
        pod(timedelta(0)),
        pod(GIVEN_UP_AFTER - timedelta(seconds=1), phase="Running"),
        pod(timedelta(0), containerStatuses=[{"name": "trial", "state": {"running": {}}}]),
    ],
)
def test_a_trial_that_may_still_end_has_no_result(made: Object) -> None:
    assert result_of(made, NOW) is None


def test_the_result_of_a_trial_that_ended_late_counts() -> None:
    assert result_of({**pod(GIVEN_UP_AFTER * 2), "status": REFUSES}, NOW) == TrialResult(
        f"in a trial, {WORDS}", refused=True
    )


async def test_the_words_of_a_pod_are_made_printable_and_short(api: FakeApiServer) -> None:
    await in_service(api, extraConf="KillWait=7")
    ends(api, await the_trial(api), ended(REFUSED, "\x1b[2J" + "x" * 4_000))
    await eventually(lambda: condition(api, "Degraded").get("status") == "True")
    message = condition(api, "Configuration")["message"]
    assert "\x1b" not in message
    assert len(message) < 1_400
