"""Dependencies of a SlurmJob, in Slurm or before its submission."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_api.models import Phase
from redbox_operator.api.slurmjob import SlurmJob
from redbox_operator.api.slurmjob_status import SlurmJobStatus
from redbox_operator.object_cache import ObjectCache, PackedJob
from redbox_operator.slurmjob.dependencies import Lookup, are_met, resolve
from redbox_operator.slurmjob.status import status_of
from tests.operator.factories import job_row, slurm_job, status_inputs

SUBMITTED = status_of(status_inputs(job_row(Phase.PENDING)))
SUCCEEDED = status_of(status_inputs(job_row(Phase.SUCCEEDED)))
FAILED = status_of(status_inputs(job_row(Phase.FAILED)))
SUSPENDING = status_of(status_inputs(job_row(Phase.RUNNING), job=slurm_job(suspend=True)))
SUSPENDED = status_of(status_inputs(job_row(Phase.CANCELLED), before=SUSPENDING))


def others(status: SlurmJobStatus, **spec: Any) -> Lookup:
    first = slurm_job(**spec)
    first = first.model_copy(update={"metadata": {**first.metadata, "name": "first", "uid": "u1"}})
    return lambda name: first.model_copy(update={"status": status}) if name == "first" else None


def resolved(job: SlurmJob, cluster: str, lookup: Lookup) -> Any:
    def names(name: str) -> list[str]:
        return [wanted.name for wanted in other.spec.depends_on] if (other := lookup(name)) else []

    return resolve(job, cluster, lookup, names)


def after(kind: str = "afterok", name: str = "first") -> Any:
    return slurm_job(dependsOn=[{"name": name, "type": kind}])


@pytest.mark.parametrize("kind", ["after", "afterok", "afternotok", "afterany", "aftercorr"])
def test_slurm_waits_for_a_job_that_it_has(kind: str) -> None:
    noted, problem = resolved(after(kind), "hpc1", others(SUBMITTED))
    assert problem is None
    assert [(item.type, item.key) for item in noted] == [(kind, "u1")]


@pytest.mark.parametrize(
    ("kind", "status"),
    [("afterok", SUCCEEDED), ("afterany", FAILED), ("afternotok", FAILED), ("after", FAILED)],
)
def test_what_is_fulfilled_is_not_told(kind: str, status: SlurmJobStatus) -> None:
    assert resolved(after(kind), "hpc1", others(status)) == ([], None)


@pytest.mark.parametrize(
    ("kind", "status"), [("afterok", FAILED), ("afternotok", SUCCEEDED), ("aftercorr", FAILED)]
)
def test_what_can_never_be_fulfilled_is_the_end(kind: str, status: SlurmJobStatus) -> None:
    _, problem = resolved(after(kind), "hpc1", others(status))
    assert problem is not None
    assert problem.final
    assert "first" in problem.message


def test_one_that_does_not_exist_yet_is_waited_for() -> None:
    _, problem = resolved(after(name="missing"), "hpc1", others(SUBMITTED))
    assert problem is not None
    assert (problem.reason, problem.final) == ("DependencyMissing", False)


@pytest.mark.parametrize(
    ("status", "cluster", "spec"),
    [
        (status_of(status_inputs()), "hpc1", {}),
        (SUBMITTED, "elsewhere", {}),
        (SUBMITTED, "hpc1", {"serviceAccountName": "other"}),
        (SUBMITTED, "hpc1", {"backoffLimit": 2}),
        (SUBMITTED, "hpc1", {"suspend": True}),
        (SUSPENDING, "hpc1", {}),
        (SUSPENDED, "hpc1", {}),
    ],
    ids=[
        *("not submitted", "another cluster", "another owner", "may be tried again", "suspended"),
        *("resumed while it is being cancelled", "resumed"),
    ],
)
def test_where_slurm_cannot_wait_the_operator_does(status: Any, cluster: str, spec: Any) -> None:
    noted, problem = resolved(after(), cluster, others(status, **spec))
    assert noted == []
    assert problem is not None
    assert problem.reason == "DependencyWaiting"


def test_jobs_of_slurm_itself_are_left_to_slurm() -> None:
    job = slurm_job(dependsOnJobs=[{"jobID": "12"}, {"jobID": "13_4", "type": "afterany"}])
    noted, problem = resolved(job, "hpc1", others(SUBMITTED))
    assert problem is None
    assert [(each.type, each.job_id) for each in noted] == [("afterok", "12"), ("afterany", "13_4")]


def test_a_retry_does_not_wait_for_a_job_of_slurm_again() -> None:
    job = slurm_job(dependsOnJobs=[{"jobID": "12"}])
    begun = status_of(status_inputs(job_row(Phase.RUNNING, nodes=["n1"]), job=job))
    assert are_met(begun)


def test_waiting_for_oneself_is_the_end() -> None:
    _, problem = resolved(after(name="cow"), "hpc1", others(SUBMITTED))
    assert problem is not None
    assert (problem.reason, problem.final) == ("DependencyCycle", True)


def test_a_longer_way_back_to_oneself_is_found_too() -> None:
    lookup = others(SUBMITTED, dependsOn=[{"name": "cow"}])
    _, problem = resolved(after(), "hpc1", lookup)
    assert problem is not None
    assert "cow -> first -> cow" in problem.message


def test_a_long_chain_is_looked_through_without_unpacking_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of thousands of SlurmJobs of one user each is looked at, and all others wait for that."""
    cache, length = ObjectCache(), 1000
    for number in range(length):
        link = slurm_job(f"n{number}", dependsOn=[{"name": f"n{(number + 1) % length}"}])
        metadata = {**link.metadata, "uid": f"u{number}", "resourceVersion": str(number + 1)}
        cache.update_job(link.model_copy(update={"metadata": metadata}))
    job = cache.get(slurm_job("n0").ref)
    assert job is not None
    monkeypatch.delattr(PackedJob, "unpacked")
    _, problem = resolve(job, "hpc1", lambda _: None, lambda name: cache.depends_on(job.ref, name))
    assert problem is not None
    assert "(n0 -> n1 -> " in problem.message
    assert "-> n9 -> 990 more -> n0)" in problem.message


def of_several(**statuses: SlurmJobStatus) -> Lookup:
    first = slurm_job()

    def lookup(name: str) -> SlurmJob | None:
        metadata = {**first.metadata, "name": name, "uid": name}
        status = statuses.get(name)
        return first.model_copy(update={"metadata": metadata, "status": status}) if status else None

    return lookup


def any_of(*names: str, kind: str = "afterok") -> Any:
    return slurm_job(dependsOnAny=True, dependsOn=[{"name": name, "type": kind} for name in names])


def test_one_of_several_that_is_met_is_enough() -> None:
    """Whatever became of the others, and of one that does not exist yet."""
    lookup = of_several(a=FAILED, b=SUCCEEDED, c=SUBMITTED)
    assert resolved(any_of("a", "b", "c", "ghost"), "hpc1", lookup) == ([], None)


def test_until_one_of_several_is_met_it_is_not_submitted() -> None:
    noted, problem = resolved(any_of("a", "b"), "hpc1", of_several(a=FAILED, b=SUBMITTED))
    assert (noted, problem.reason, problem.final) == ([], "DependencyWaiting", False)
    assert "one of a (`afterok`), b (`afterok`)" in problem.message


def test_where_none_of_several_can_be_met_any_more_it_is_the_end() -> None:
    _, problem = resolved(any_of("a", "b"), "hpc1", of_several(a=FAILED, b=FAILED))
    assert (problem.reason, problem.final) == ("DependencyFailed", True)


@pytest.mark.parametrize(
    ("others", "is_cycle"),
    [
        ({"b": ["a"]}, False),
        ({"b": ["a"], "c": []}, False),
        ({"b": ["x"], "x": ["a"], "c": ["x", "y"], "y": []}, True),
        ({"b": ["a"], "c": ["c"]}, False),
        ({"b": ["a"], "c": ["d"], "d": ["a"]}, True),
        ({"b": ["a"], "c": ["any", "d"], "any": ["a", "e"]}, False),
    ],
)
def test_any_of_several_is_a_cycle_only_where_each_leads_back(
    others: dict[str, list[str]], *, is_cycle: bool
) -> None:
    """a depends on any of b and c: one that does not wait for a lets it start."""
    cache = ObjectCache()
    for number, (name, names) in enumerate({"a": ["b", "c"], **others}.items()):
        wanted = [{"name": each} for each in names]
        job = slurm_job(name, dependsOn=wanted, dependsOnAny=name in ("a", "any"))
        metadata = {**job.metadata, "uid": f"u{number}", "resourceVersion": str(number + 1)}
        cache.update_job(job.model_copy(update={"metadata": metadata}))
    first = cache.get(slurm_job("a").ref)
    assert first is not None
    _, problem = resolve(
        first,
        "hpc1",
        lambda name: cache.dependency(first.ref, name),
        lambda name: cache.depends_on(job.ref, name),
    )
    assert problem is not None
    expected = ("DependencyCycle", True) if is_cycle else ("DependencyWaiting", False)
    assert (problem.reason, problem.final) == expected


def test_a_wait_that_may_outlive_a_job_of_slurm_says_so() -> None:
    job = slurm_job(dependsOn=[{"name": "first"}], dependsOnJobs=[{"jobID": "4711"}])
    _, problem = resolved(job, "hpc1", others(status_of(status_inputs())))
    assert problem.reason == "DependencyWaiting"
    assert "should it have forgotten job 4711 by then" in problem.message


def test_any_of_several_does_not_go_with_jobs_of_slurm() -> None:
    with pytest.raises(ValueError, match="dependsOnAny and dependsOnJobs are set"):
        slurm_job(dependsOnAny=True, dependsOnJobs=[{"jobID": "4711"}])
