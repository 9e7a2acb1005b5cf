import json

import pytest

from redbox_shared.job_end import MESSAGE_BYTES, JobEnd, contradiction, encode_message, refusal_message


def end(phase: str = "Failed", **fields: object) -> JobEnd:
    return JobEnd({"phase": phase, **fields})


@pytest.mark.parametrize(
    ("job", "code"),
    [
        (end("Succeeded", state="COMPLETED", exitCode=0), 0),
        (end(state="FAILED", exitCode=3), 3),
        (end(state="FAILED", exitCode=256), 1),
        (end(state="FAILED", exitCode=0, signal=9), 137),
        (end(state="TIMEOUT", exitCode=0, signal=9), 124),
        (end(state="NODE_FAIL"), 75),
        (end(state="CANCELLED", reason="LaunchFailed"), 75),
        (end("Cancelled", state="CANCELLED", signal=15), 143),
        (end("Lost"), 70),
        (end("Lost", state="CANCELLED", reason="LaunchFailed"), 70),
        (end(state="FAILED", exitCode="3"), 1),
        (end(), 1),
    ],
)
def test_the_exit_code_stands_for_the_end(job: JobEnd, code: int) -> None:
    assert job.pod_exit_code() == code


@pytest.mark.parametrize(
    ("job", "explanation"),
    [
        (end("Succeeded", state="COMPLETED", message="It is done."), None),
        (end(state="FAILED", exitCode=3, message="It failed."), None),
        (end(state="FAILED", exitCode=0, signal=9, message="It was killed."), "It was killed."),
        (end(state="TIMEOUT", exitCode=0, message="It was too slow."), "It was too slow."),
        (end("Lost"), None),
    ],
)
def test_an_end_is_explained_where_no_exit_code_of_its_own_does(job: JobEnd, explanation: str | None) -> None:
    assert job.explanation() == explanation


def test_a_termination_message_leaves_out_what_is_unknown() -> None:
    assert end("Lost").termination_message(logs=None, results={"outcome": "Failed"}) == {
        "final": True,
        "phase": "Lost",
        "results": {"outcome": "Failed"},
    }


def test_the_longest_string_of_a_message_is_cut_until_it_fits() -> None:
    raw = encode_message(refusal_message("ü" * 10_000, problem_type="https://redbox.dev/problems/x"))
    assert len(raw) <= MESSAGE_BYTES
    message = json.loads(raw)
    assert message["refused"].startswith("üü")
    assert message["type"] == "https://redbox.dev/problems/x"


def test_a_long_text_in_a_part_of_a_message_is_cut_too() -> None:
    results = {"outcome": "Failed", "message": "\U0001f600" * 500}
    raw = encode_message(end("Succeeded").termination_message(results=results))
    assert len(raw) <= MESSAGE_BYTES
    message = json.loads(raw)
    assert message["phase"] == "Succeeded"
    assert message["results"]["outcome"] == "Failed"
    assert set(message["results"]["message"]) == {"\U0001f600"}


DONE = {"done": True}


@pytest.mark.parametrize(
    ("job", "against"),
    [
        ({"phase": "Succeeded", "state": "RUNNING", "isPod": False, "pod": DONE}, "is RUNNING"),
        ({"phase": "Failed", "state": "COMPLETED", "pod": DONE}, "is COMPLETED"),
        ({"phase": "Failed", "state": "COMPLETED", "isPod": True, "pod": DONE}, ""),
        ({"phase": "Succeeded", "state": "RUNNING", "isPod": True, "pod": DONE}, ""),  # lost in Slurm
        ({"phase": "Cancelled"}, ""),
        ({"phase": "Cancelled", "jobID": "7"}, "no state"),
        ({"phase": "Cancelled", "startedAt": "2026-11-28T12:00:00Z"}, "no state"),
        ({"phase": "Cancelled", "nodes": ["n1"]}, "no state"),
    ],
)
def test_a_row_that_shows_a_living_job_is_no_end(job: dict[str, object], against: str) -> None:
    said = contradiction(job)
    assert against in said
    assert bool(said) == bool(against)
