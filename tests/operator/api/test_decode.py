"""Objects that the API server accepted and the operator cannot decode: reported to their author only."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_clusters.names import OLD_SLURM_JOBS, SLURM_JOBS, WLM_JOBS
from redbox_kube.api.kinds import Kind
from redbox_operator.api.decode import read_job
from redbox_operator.object_cache import packed
from redbox_operator.slurmjob.validation import problem_of

METADATA = {"name": "cow", "namespace": "farm", "uid": "0aa6-11"}
DEEP: dict[str, Any] = {}
for _ in range(300):
    DEEP = {"more": [DEEP]}
DEEP_CLAIM = {"ephemeral": {"volumeClaimTemplate": {"spec": DEEP}}}
NO_SERVER = {"from": "x", "mount": {"name": "data", "nfs": {"path": "/data"}}}


def nested(levels: int, kind: type = list) -> Any:
    made: Any = 1
    for _ in range(levels):
        made = {"a": made} if kind is dict else [made]
    return made


def into(claim: Any) -> dict[str, Any]:
    volume = {"ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
    return {"batch": "#!/bin/sh\n", "results": {"from": ["x"], "volume": volume}}


@pytest.mark.parametrize(
    ("resource", "spec", "words"),
    [
        (SLURM_JOBS, {"batch": "#!/bin/sh\n", "backoffLimit": "often"}, "backoffLimit"),
        (OLD_SLURM_JOBS, {"batch": "#!/bin/sh\n", "results": NO_SERVER}, "nfs.server: Field required"),
        (OLD_SLURM_JOBS, {"batch": "#!/bin/sh\n", "results": {"from": "x"}}, "results.mount"),
        (OLD_SLURM_JOBS, {"batch": "#!/bin/sh\n", "results": {"from": "x", "mount": DEEP}}, "32 deep"),
        (SLURM_JOBS, {"batch": "#!/bin/sh\n", "results": {"from": ["x"], "volume": DEEP_CLAIM}}, "32 deep"),
    ],
)
def test_a_spec_that_cannot_be_read_is_a_problem_that_names_the_field(
    resource: Kind, spec: dict[str, Any], words: str
) -> None:
    job = read_job(resource, {"metadata": METADATA, "spec": spec})
    kept = packed(job).unpacked()
    for item in (job, kept):
        problem = problem_of(item)
        assert problem
        assert (problem.reason, problem.final) == ("Unreadable", True)
        assert words in problem.message


@pytest.mark.parametrize("kind", [list, dict])
@pytest.mark.parametrize("levels", [40, 300, 3000])
def test_one_that_is_nested_without_end_is_a_problem_of_its_own(levels: int, kind: type) -> None:
    """Only its author can have meant that, and no serializer of ours follows it."""
    mount = {"from": "x", "mount": {"ephemeral": {"volumeClaimTemplate": nested(levels, kind)}}}
    for resource, spec, field in (
        (SLURM_JOBS, into(nested(levels, kind)), "results.volume.ephemeral.volumeClaimTemplate"),
        (OLD_SLURM_JOBS, {"batch": "#!/bin/sh\n", "results": mount}, "results.mount"),
    ):
        problem = problem_of(packed(read_job(resource, {"metadata": METADATA, "spec": spec})).unpacked())
        assert problem
        assert (problem.reason, problem.final) == ("Unreadable", True)
        assert f"{field}: is nested more than 32 deep" in problem.message


def test_a_claim_as_deep_as_any_that_kubernetes_knows_can_be_read() -> None:
    job = read_job(SLURM_JOBS, {"metadata": METADATA, "spec": into(nested(20, dict))})
    assert job.unreadable is None
    assert packed(job).unpacked() == job


@pytest.mark.parametrize("spec", [{}, {"spec": None}, {"spec": "text"}, {"spec": {"serviceAccountName": 7}}])
@pytest.mark.parametrize("resource", [SLURM_JOBS, OLD_SLURM_JOBS, WLM_JOBS])
def test_what_was_stored_before_there_was_a_schema_is_a_problem_of_its_own(
    resource: Kind, spec: dict[str, Any]
) -> None:
    job = packed(read_job(resource, {"metadata": METADATA, "status": "none", **spec})).unpacked()
    problem = problem_of(job)
    assert problem
    assert (problem.reason, job.spec.service_account_name) == ("Unreadable", "default")


def test_one_that_can_be_read_has_no_such_problem() -> None:
    job = read_job(SLURM_JOBS, {"metadata": METADATA, "spec": {"batch": "#!/bin/sh\n"}})
    assert problem_of(packed(job).unpacked()) is None


def test_its_job_in_slurm_is_still_known_by_its_account() -> None:
    spec = {"batch": "#!/bin/sh\n", "backoffLimit": "often", "serviceAccountName": "builder"}
    job = read_job(SLURM_JOBS, {"metadata": METADATA, "spec": spec, "status": {"jobID": "7"}})
    assert job.spec.service_account_name == "builder"
    assert job.status.job_id == "7"
