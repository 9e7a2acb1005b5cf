"""A pod on a virtual node ends as one with a container does."""

import json

import pytest

from redbox_api.models import Job, OwnerRef, Phase
from redbox_companion import outcome
from redbox_resourced.pods.exit_status import (
    BY_STATE,
    LONGEST_WORD,
    Refusal,
    exit_code_of,
    sentence_of,
    word_of,
)

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
@pytest.mark.parametrize("state", [*BY_STATE, "FAILED", "COMPLETED", None])
@pytest.mark.parametrize(("code", "signal"), [(0, None), (3, None), (256, None), (0, 9), (None, None)])
def test_exit_code_and_word_are_the_companions(
    phase: Phase, state: str | None, code: int | None, signal: int | None
) -> None:
    job = ended(phase, state, code, signal)
    answer = json.loads(job.model_dump_json(by_alias=True))
    assert exit_code_of(job) == outcome.exit_code_of(answer)
    assert json.loads(word_of(job)) == outcome.word_of(answer, logs="complete")
    assert sentence_of(job) == outcome.sentence_of(answer)


def test_a_refusal_of_any_length_fits_a_termination_message() -> None:
    word = Refusal("ä" * 10_000, "urn:redbox:refused").word()
    assert len(word.encode()) <= LONGEST_WORD
    assert json.loads(word)["refused"].startswith("ää")
