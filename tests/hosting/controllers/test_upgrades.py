"""An upgrade of Slurm in its order, at the API server of the tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from redbox_hosting.api import names
from redbox_hosting.build.config.releases import SlurmRelease
from redbox_hosting.controllers.clusters.upgrades import configured_release, oldest_slurmd
from redbox_hosting.controllers.context import DefaultImages
from redbox_hosting.controllers.workers.revisions import is_outdated
from redbox_hosting.controllers.workers.worker_releases import check_not_newer, of_the_release
from redbox_hosting.controllers.workers.worker_views import WorkerView
from redbox_hosting.slurm.answers import RestNode
from redbox_kube.api import kinds
from redbox_kube.controller.steps import StepFailed
from tests.hosting.controllers.access_bench import IMAGES, AccessBench, at, operator, stopped_bench
from tests.hosting.controllers.access_bench import bench as running_bench
from tests.hosting.factories import cell, node_set, worker

OLD, NEW = "registry.example.org/redbox-slurm:24.11-a", "registry.example.org/redbox-slurm:26.05-a"
SLURMCTLD, SLURMDBD = (at(kinds.STATEFUL_SET, name) for name in ("slurm-controller", "acct-accounting"))
CONTROL, REST_API = (at(kinds.DEPLOYMENT, name) for name in ("slurm-control", "api-restapi"))
LOGIN = at(kinds.STATEFUL_SET, "login-login")
FOLLOWING = (CONTROL, REST_API, LOGIN)


@pytest.fixture
async def bench() -> AsyncIterator[AccessBench]:
    async with running_bench() as made:
        made.has_kubelet = False
        yield made


def put_controller(bench: AccessBench, image: str, **spec: Any) -> None:
    bench.put(names.CONTROLLERS, "slurm", slurmctld={"image": image}, **spec)


def image_of(bench: AccessBench, where: Any) -> str:
    found = bench.api.objects.get(where)
    return str(found["spec"]["template"]["spec"]["containers"][0]["image"]) if found else ""


def rolls_out(bench: AccessBench, where: Any) -> None:
    """As Kubernetes does it."""
    found = bench.api.objects[where]
    status = {"observedGeneration": found["metadata"].get("generation")}
    bench.api.put(where, found, status={**status, "updatedReplicas": 1, "readyReplicas": 1})
    bench.reconcile_all()


def blocked(bench: AccessBench) -> str:
    found = bench.condition(names.CONTROLLERS, "slurm", "UpgradeBlocked")
    return str(found.get("message", "")) if found.get("status") == "True" else ""


async def runs(bench: AccessBench, image: str) -> None:
    """All daemons of one cluster with accounting, a RestApi and a LoginSet."""
    bench.put(names.ACCOUNTINGS, "acct", redbox={"database": {"enabled": True}})
    put_controller(bench, image, accountingRef={"name": "acct"})
    bench.put(names.REST_APIS, "api", controllerRef={"name": "slurm"})
    bench.put(names.LOGIN_SETS, "login", controllerRef={"name": "slurm"})
    for where in (SLURMDBD, SLURMCTLD, CONTROL):
        await bench.has(lambda where=where: image_of(bench, where) == image)  # type: ignore[misc]
        rolls_out(bench, where)
    await bench.has(lambda: status_of(bench).get("image") == image)
    await bench.has(lambda: image_of(bench, REST_API) == image_of(bench, LOGIN) == image)


def status_of(bench: AccessBench) -> Mapping[str, Any]:
    found: Mapping[str, Any] = bench.api.objects[at(names.CONTROLLERS, "slurm")].get("status", {})
    return found


async def test_slurmdbd_goes_first_then_slurmctld_then_those_that_follow_it(bench: AccessBench) -> None:
    await runs(bench, OLD)
    put_controller(bench, NEW, accountingRef={"name": "acct"})
    await bench.has(lambda: image_of(bench, SLURMDBD) == NEW)
    await bench.has(lambda: "acct-accounting" in blocked(bench))
    assert {image_of(bench, where) for where in (SLURMCTLD, *FOLLOWING)} == {OLD}
    rolls_out(bench, SLURMDBD)
    await bench.has(lambda: image_of(bench, SLURMCTLD) == NEW)
    await bench.has(lambda: not blocked(bench))
    assert {image_of(bench, where) for where in FOLLOWING} == {OLD}
    assert status_of(bench)["image"] == OLD
    rolls_out(bench, SLURMCTLD)
    for where in FOLLOWING:
        await bench.has(lambda where=where: image_of(bench, where) == NEW)  # type: ignore[misc]


async def test_an_operator_with_other_default_images_replaces_no_daemon() -> None:
    database, accounting = at(kinds.STATEFUL_SET, "acct-database"), at(names.ACCOUNTINGS, "acct")
    ref = {"accountingRef": {"name": "acct"}}
    async with stopped_bench() as bench:
        bench.has_kubelet = False
        async with operator(bench):
            bench.put(names.ACCOUNTINGS, "acct", redbox={"database": {"enabled": True}})
            bench.put(names.CONTROLLERS, "slurm", **ref)
            bench.put(names.REST_APIS, "api", controllerRef={"name": "slurm"})
            bench.put(names.LOGIN_SETS, "login", controllerRef={"name": "slurm"})
            for where in (database, SLURMDBD, SLURMCTLD, CONTROL, REST_API, LOGIN):
                await bench.has(lambda where=where: image_of(bench, where))  # type: ignore[misc]
                rolls_out(bench, where)
            await bench.has(lambda: status_of(bench).get("image") == IMAGES.slurm)
            await bench.has(lambda: bench.api.objects[accounting]["status"].get("databaseImage"))
        bench.images = DefaultImages(f"{IMAGES.slurm}-next", f"{IMAGES.database}-next")
        async with operator(bench):
            bench.put(names.CONTROLLERS, "slurm", **ref, extraConf="KillWait=7\n")
            config = at(kinds.CONFIG_MAP, "slurm-config")
            await bench.has(lambda: "KillWait=7" in bench.api.objects[config]["data"]["slurm.conf"])
            await bench.settled()
            assert {image_of(bench, each) for each in (SLURMDBD, SLURMCTLD, *FOLLOWING)} == {IMAGES.slurm}
            assert image_of(bench, database) == IMAGES.database
            put_controller(bench, bench.images.slurm, **ref)
            await bench.has(lambda: image_of(bench, SLURMDBD) == bench.images.slurm)


async def test_an_image_that_never_ran_is_not_kept() -> None:
    """As one that cannot be pulled: the next operator's default is its cure."""
    async with stopped_bench() as bench:
        bench.has_kubelet = False
        async with operator(bench):
            bench.put(names.CONTROLLERS, "slurm")
            await bench.has(lambda: image_of(bench, SLURMCTLD) == IMAGES.slurm)
        bench.images = DefaultImages(f"{IMAGES.slurm}-next")
        async with operator(bench):
            await bench.has(lambda: image_of(bench, SLURMCTLD) == bench.images.slurm)


async def test_a_slurmdbd_whose_image_is_named_is_named_with_the_cure(bench: AccessBench) -> None:
    await runs(bench, OLD)
    bench.put(
        names.ACCOUNTINGS, "acct", redbox={"database": {"enabled": True}}, slurmdbd={"image": f"{OLD}2"}
    )
    await bench.has(lambda: image_of(bench, SLURMDBD) == f"{OLD}2")
    rolls_out(bench, SLURMDBD)
    put_controller(bench, NEW, accountingRef={"name": "acct"})
    await bench.has(lambda: "set spec.slurmdbd.image of Accounting acct to one of 26.05" in blocked(bench))
    assert image_of(bench, SLURMCTLD) == OLD


async def test_a_slurmdbd_never_goes_back(bench: AccessBench) -> None:
    await runs(bench, NEW)
    await bench.has(
        lambda: bench.api.objects[at(names.ACCOUNTINGS, "acct")]["status"].get("version") == "26.05"
    )
    put_controller(bench, OLD, accountingRef={"name": "acct"})
    await bench.has(
        lambda: "slurmdbd 26.05 cannot go back to 24.11" in bench.says(names.ACCOUNTINGS, "acct", "Slurmdbd")
    )
    assert image_of(bench, SLURMDBD) == NEW


@pytest.mark.parametrize(
    ("versions", "oldest"),
    [
        (["24.11.5", "26.05.5"], "24.11"),
        (["26.05.5", "26.05.5"], "26.05"),
        (["", "26.05.5"], "26.05"),
        ([], None),
    ],
)
def test_the_keys_of_slurm_conf_are_those_of_the_oldest_slurmd(
    versions: list[str], oldest: str | None
) -> None:
    nodes = [
        RestNode.model_validate({"name": f"w-{number}", "state": ["IDLE"], "version": version})
        for number, version in enumerate(versions)
    ]
    assert oldest_slurmd(nodes) == oldest
    expected = SlurmRelease(oldest) if oldest else SlurmRelease.R26_05
    assert configured_release(cell(), oldest) is expected


def test_slurmctld_that_is_older_than_its_image_has_its_own_keys() -> None:
    assert configured_release(cell(), "26.05", SlurmRelease.R24_11) is SlurmRelease.R24_11


def test_a_slurmd_that_is_newer_than_slurmctld_is_not_made() -> None:
    old = cell(release=SlurmRelease.R24_11)
    limits = {"resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}
    with pytest.raises(StepFailed, match=r"UpgradeBlocked: slurmd of 26.05 .* runs 24.11"):
        check_not_newer(node_set(slurmd={**limits, "image": NEW}), old)
    check_not_newer(node_set(slurmd={**limits, "image": OLD}), cell())
    check_not_newer(node_set(slurmd={**limits, "image": "own/slurm:latest"}), old)
    check_not_newer(node_set(), old)


@pytest.mark.parametrize(
    ("image", "own", "is_replaced"),
    [(OLD, "", True), (NEW, "", False), (OLD, OLD, False), ("own/slurm:latest", "", False), ("", "", False)],
)
def test_workers_of_an_older_release_are_replaced(image: str, own: str, *, is_replaced: bool) -> None:
    view: WorkerView = replace(worker(0), image=image)
    limits = {"resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}
    given = node_set(slurmd={**limits, **({"image": own} if own else {})})
    seen = of_the_release(view, given, cell())
    assert is_outdated(seen.revision, seen.pod_format, view.revision) == is_replaced
