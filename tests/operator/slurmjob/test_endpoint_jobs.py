"""SlurmJobs that run by a SlurmEndpoint of their namespace."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_api.models import Phase
from redbox_clusters.names import LABEL_CLUSTER
from redbox_kube.api import kinds
from redbox_kube.api.objects import ResourcePath
from redbox_operator.api.slurmjob import SlurmJobRef
from redbox_operator.slurmjob.validation import problem_of
from tests.operator.factories import slurm_endpoint, slurm_job
from tests.operator.harness import DELETED, Link, Stand


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch) -> Stand:
    made = Stand(monkeypatch)
    made.link.cluster = slurm_endpoint()
    made.links.clear()
    made.links["farm/mine"] = made.link
    return made


async def test_it_is_submitted_there_with_the_computed_audience(stand: Stand) -> None:
    await stand.apply(cluster=None, endpoint="mine")
    await stand.at_redbox(Phase.RUNNING)
    assert (stand.status.get("cluster"), stand.status["endpoint"]) == (None, "mine")
    assert stand.conditions["Submitted"] == ("True", "Submitted")
    pod = stand.api.objects[ResourcePath(kinds.POD, "cow-job", "farm")]
    token = next(volume for volume in pod["spec"]["volumes"] if volume["name"] == "token")
    assert token["projected"]["sources"][0]["serviceAccountToken"]["audience"] == (
        "redbox.dev/ns/farm/uid-of-mine"
    )
    labels = pod["metadata"]["labels"]
    assert labels["redbox.dev/endpoint"] == "mine"
    assert "redbox.dev/cluster" not in labels


async def test_one_of_another_namespace_wakes_nobody_here(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its users change it as often as they like."""
    await stand.apply(cluster=None, endpoint="other")
    assert stand.conditions["Submitted"] == ("False", "NoSuchEndpoint")
    woken: list[SlurmJobRef] = []
    monkeypatch.setattr(stand.reconciler.queue, "add", woken.append)
    for key, times in (("barn/theirs", 0), ("farm/mine", 1), ("hpc1", 2)):
        stand.reconciler.wake_cluster(key)
        assert woken == [stand.ref] * times


async def test_the_only_one_need_not_be_named(stand: Stand) -> None:
    stand.links["barn/theirs"] = Link()
    await stand.apply(cluster=None)
    assert stand.status["endpoint"] == "mine"


async def test_beside_a_slurmcluster_one_of_them_is_named(stand: Stand) -> None:
    """Nothing moves silently from one to the other."""
    stand.links["hpc1"] = Link()
    await stand.apply(cluster=None)
    assert stand.conditions["Submitted"] == ("False", "ClusterNotNamed")
    assert "SlurmEndpoint mine, hpc1" in stand.status["message"]


@pytest.mark.parametrize(
    "named",
    [
        {"cluster": None, "endpoint": "theirs"},
        {"cluster": None, "node_selector": {LABEL_CLUSTER: "barn/theirs"}},
        {"cluster": "theirs"},
    ],
)
async def test_that_of_another_namespace_is_out_of_reach(stand: Stand, named: dict[str, Any]) -> None:
    stand.links["barn/theirs"] = theirs = Link()
    theirs.cluster = slurm_endpoint("theirs", "barn")
    stand.links["hpc1"] = Link()
    await stand.apply(**named)
    assert stand.conditions["Submitted"][0] == "False"
    assert stand.pod_names == []
    assert "barn" not in stand.status["message"]


async def test_a_slurmendpoint_that_is_gone_holds_no_deleted_slurmjob(stand: Stand) -> None:
    """It goes with its namespace, together with its red-box: that namespace could never end."""
    await stand.apply(cluster=None, endpoint="mine")
    await stand.at_redbox(Phase.RUNNING)
    stand.links.clear()
    await stand.look()
    assert "SlurmEndpoint mine is gone" in stand.status["message"]
    await stand.change(**DELETED)
    assert stand.finalizers == []
    events = [event["reason"] for event in stand.api.of_kind("Event")]
    assert "Abandoned" in events


async def test_one_that_cannot_be_reached_still_holds_it(stand: Stand) -> None:
    await stand.apply(cluster=None, endpoint="mine")
    await stand.at_redbox(Phase.RUNNING)
    stand.link.away = True
    await stand.change(**DELETED)
    assert stand.finalizers
    assert "SlurmEndpoint farm/mine is away" in stand.status["message"]


def test_a_cluster_and_an_endpoint_contradict_each_other_in_a_selector() -> None:
    job = slurm_job(cluster=None, endpoint="mine", node_selector={LABEL_CLUSTER: "hpc1"})
    problem = problem_of(job)
    assert problem is not None
    assert problem.reason == "Contradiction"
