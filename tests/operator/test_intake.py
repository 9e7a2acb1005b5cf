"""What the API server let through and the operator cannot read: said to its author, and to nobody's harm."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_operator.intake import read_job
from redbox_operator.kinds import SLURM_JOBS, Resource
from redbox_operator.known import packed
from redbox_operator.spec_problems import problem_of
from redbox_operator.sylabs import OLD_SLURM_JOBS

METADATA = {"name": "cow", "namespace": "farm", "uid": "0aa6-11"}
NO_SERVER = {"from": "x", "mount": {"name": "data", "nfs": {"path": "/data"}}}


@pytest.mark.parametrize(
    ("resource", "spec", "words"),
    [
        (SLURM_JOBS, {"batch": "#!/bin/sh\n", "backoffLimit": "often"}, "backoffLimit"),
        (OLD_SLURM_JOBS, {"batch": "#!/bin/sh\n", "results": NO_SERVER}, "nfs.server: Field required"),
        (OLD_SLURM_JOBS, {"batch": "#!/bin/sh\n", "results": {"from": "x"}}, "results.mount"),
    ],
)
def test_a_spec_that_cannot_be_read_is_a_problem_that_names_the_field(
    resource: Resource, spec: dict[str, Any], words: str
) -> None:
    job = read_job(resource, {"metadata": METADATA, "spec": spec})
    kept = packed(job).unpacked().job
    for one in (job, kept):
        problem = problem_of(one)
        assert problem
        assert (problem.reason, problem.final) == ("Unreadable", True)
        assert words in problem.message


def test_one_that_can_be_read_has_no_such_problem() -> None:
    job = read_job(SLURM_JOBS, {"metadata": METADATA, "spec": {"batch": "#!/bin/sh\n"}})
    assert problem_of(packed(job).unpacked().job) is None


def test_its_job_in_slurm_is_still_known_by_its_account() -> None:
    spec = {"batch": "#!/bin/sh\n", "backoffLimit": "often", "serviceAccountName": "builder"}
    job = read_job(SLURM_JOBS, {"metadata": METADATA, "spec": spec, "status": {"jobID": "7"}})
    assert job.spec.service_account_name == "builder"
    assert job.status == {"jobID": "7"}
