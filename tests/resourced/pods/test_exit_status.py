"""A pod on a virtual node ends as one with a container does."""

import json

import pytest

from redbox_api.models import Job, OwnerRef, Phase
from redbox_resourced.pods.exit_status import (
    JobRefusal,
    end_of,
    explanation_of,
    termination_message_of,
)
from redbox_shared.job_end import EXIT_BY_STATE, MESSAGE_BYTES, JobEnd

OWNER = OwnerRef(cluster="prod", namespace="alice", account="default")
PHASES = (Phase.SUCCEEDED, Phase.FAILED, Phase.CANCELLED, Phase.LOST)


def ended(phase: Phase, state: str | None, code: int | None, signal: int | None) -> Job:
    return Job(
        key="k",
        attempt=1,
        owner=OWNER,
        user="alice",
        phase=phase,
        state=state,
        exit_code=code,
        signal=signal,
        job_id="7",
        message="It ended so.",
    )


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("state", [*EXIT_BY_STATE, "FAILED", "COMPLETED", None])
@pytest.mark.parametrize(("code", "signal"), [(0, None), (3, None), (256, None), (0, 9), (None, None)])
def test_exit_code_and_termination_message_are_the_companions(
    phase: Phase, state: str | None, code: int | None, signal: int | None
) -> None:
    job = ended(phase, state, code, signal)
    companion = JobEnd(json.loads(job.model_dump_json(by_alias=True)))
    assert end_of(job).pod_exit_code() == companion.pod_exit_code()
    assert json.loads(termination_message_of(job)) == companion.termination_message(logs="complete")
    assert explanation_of(job) == companion.explanation()


def test_a_job_that_runs_has_no_explanation_of_its_end() -> None:
    assert explanation_of(ended(Phase.RUNNING, "RUNNING", None, None)) is None


def test_a_refusal_of_any_length_fits_a_termination_message() -> None:
    message = JobRefusal("ä" * 10_000, "urn:redbox:refused").termination_message()
    assert len(message.encode()) <= MESSAGE_BYTES
    assert json.loads(message)["refused"].startswith("ää")
