"""No pod is evicted because resourced was away, and of a pod nothing else is changed."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiRefused, Object, ResourcePath
from redbox_resourced.pods.pod_view import BoundPod, read_pod
from redbox_resourced.pods.tolerations import TolerationLifter
from tests.kube.fakes import FakeApiServer

P = ResourcePath(kinds.POD, "p", "alice")
NAMES_TAINT: Object = {"key": "redbox.dev/slurm", "operator": "Exists", "effect": "NoSchedule"}
UNREADY: Object = {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute"}
AWAY: Object = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
TIMED: Object = {"tolerationSeconds": 300}
DEFAULTS: list[Object] = [NAMES_TAINT, UNREADY | TIMED, AWAY | TIMED]


def stored(api: FakeApiServer, tolerations: list[Object], phase: str = "Running", **metadata: Any) -> None:
    identity = {"creationTimestamp": "2026-11-21T13:00:00Z", "uid": "u", **metadata}
    spec = {"nodeName": "hpc1.debug", "containers": [{"name": "main"}], "tolerations": tolerations}
    api.put(P, {"metadata": identity, "spec": spec, "status": {"phase": phase}})


def seen(api: FakeApiServer) -> list[BoundPod]:
    return [read_pod(body) for body in api.of_kind("Pod")]


def lifter(api: FakeApiServer, *, runs_pods: bool = True) -> TolerationLifter:
    return TolerationLifter(api.client, lambda: seen(api), lambda _: runs_pods)


def tolerations(api: FakeApiServer) -> list[Object]:
    found: list[Object] = api.objects[P]["spec"]["tolerations"]
    return found


async def test_both_default_tolerations_hold_for_ever_after_one_pass() -> None:
    api = FakeApiServer()
    stored(api, DEFAULTS)
    await lifter(api).lift_all()
    assert tolerations(api) == [NAMES_TAINT, UNREADY, AWAY]
    await lifter(api).lift_all()
    assert api.asked == ["patch Pod"]


async def test_seconds_of_other_taints_stay() -> None:
    api = FakeApiServer()
    other: Object = {"key": "example.org/maintenance", "operator": "Exists", "effect": "NoExecute", **TIMED}
    every: Object = {"operator": "Exists", "effect": "NoExecute", **TIMED}
    stored(api, [NAMES_TAINT, other, every, AWAY | TIMED])
    await lifter(api).lift_all()
    assert tolerations(api) == [NAMES_TAINT, other, every, AWAY]


@pytest.mark.parametrize("why", ["ended", "being deleted", "foreign", "off"])
async def test_a_pod_that_does_not_run_as_a_job_is_not_changed(why: str) -> None:
    api = FakeApiServer()
    deleted = {"deletionTimestamp": "2026-11-21T14:00:00Z"} if why == "being deleted" else {}
    given = DEFAULTS[1:] if why == "foreign" else DEFAULTS
    stored(api, given, "Failed" if why == "ended" else "Running", **deleted)
    await lifter(api, runs_pods=why != "off").lift_all()
    assert api.requests == []


@pytest.mark.parametrize("change", ["other tolerations", "another pod of its name"])
async def test_what_has_changed_since_it_was_seen_is_left_alone(change: str) -> None:
    api = FakeApiServer()
    stored(api, DEFAULTS)
    views = seen(api)
    if change == "other tolerations":
        stored(api, [NAMES_TAINT, AWAY | TIMED, UNREADY | TIMED])
    else:
        stored(api, DEFAULTS, uid="v")
    before = tolerations(api)
    changed = TolerationLifter(api.client, lambda: views, lambda _: True)
    await changed.lift_all()
    assert tolerations(api) == before
    assert not changed.warnings.failing


async def test_what_the_policy_refuses_is_reported_and_tried_again() -> None:
    api = FakeApiServer()
    stored(api, DEFAULTS)
    api.fail(ApiRefused(422, "ValidatingAdmissionPolicy 'redbox-pods' denied request: no"), times=1)
    lifting = lifter(api)
    await lifting.lift_all()
    assert set(lifting.warnings.failing) == {"alice/p"}
    await lifting.lift_all()
    assert not lifting.warnings.failing
    assert tolerations(api) == [NAMES_TAINT, UNREADY, AWAY]
