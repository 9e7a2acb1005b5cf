"""What a failed submit means, by what each release really prints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbox.core.workload_manager import SubmitAccepted, SubmitRejected, SubmitUnavailable, SubmitUnknown
from redbox.slurm.commands.sbatch import read_submit
from redbox.slurm.text.error_messages import classify, is_unavailable, with_remedy, words_of

CAPTURED: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "outputs" / "submits.json").read_text()
)

SEND_FAILED = (
    "slurm_send_node_msg: [socket:[17]] slurm_bufs_sendto(msg_type=REQUEST_SUBMIT_BATCH_JOB) failed: X"
)


@pytest.mark.parametrize("submit", CAPTURED, ids=lambda submit: f"{submit['release']} {submit['what']}")
def test_what_slurm_said_is_understood(submit: dict[str, Any]) -> None:
    outcome = read_submit(submit["code"], submit["stdout"].encode(), submit["stderr"].encode())
    assert type(outcome).__name__ == submit["expect"]


def test_slurms_words_are_kept_without_the_names_of_its_programs_and_a_cure_is_added() -> None:
    stderr = (
        b"sbatch: error: invalid partition specified: nope\n"
        b"sbatch: error: Batch job submission failed: Invalid partition name specified\n"
    )
    assert classify(1, stderr) == SubmitRejected(
        "invalid partition specified: nope; Batch job submission failed: Invalid partition name specified. "
        "`kubectl slurm info` lists the partitions."
    )


@pytest.mark.parametrize(
    ("words", "cure"),
    [
        ("Invalid account or account/partition combination specified", "kubectl slurm doctor"),
        ("Invalid qos specification", "kubectl slurm doctor"),
        ("Requested time limit is invalid (missing or exceeds some limit)", "less --time"),
        ("Requested node configuration is not available", "less --mem"),
        ("Memory specification can not be satisfied", "less --mem"),
        ("Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)", "A limit"),
    ],
)
def test_what_slurm_refuses_is_told_with_its_cure(words: str, cure: str) -> None:
    message = with_remedy(words)
    assert message.startswith(f"{words}. ")
    assert cure in message


def test_where_no_cure_is_known_slurms_words_stand_alone() -> None:
    assert with_remedy("Access/permission denied") == "Access/permission denied"


@pytest.mark.parametrize(
    ("words", "outcome"),
    [
        ("Batch job submission failed: Zero Bytes were transmitted or received", SubmitUnknown),
        ("Batch job submission failed: Unexpected missing socket error", SubmitUnknown),
        ("Batch job submission failed: Insane message length", SubmitUnknown),
        (SEND_FAILED, SubmitUnknown),
        ("Batch job submission failed: Message receive failure", SubmitUnknown),
        ("Batch job submission failed: Connection reset by peer", SubmitUnknown),
        ("Batch job submission failed: Unable to contact slurm controller (receive failure)", SubmitUnknown),
        ("Batch job submission failed: Unable to contact slurm controller (send failure)", SubmitUnknown),
        ("Batch job submission failed: Connection timed out reading", SubmitUnknown),
        ("Batch job submission failed: Connection timed out establishing", SubmitUnavailable),
        ("Batch job submission failed: Rate limit exceeded, please retry later", SubmitUnavailable),
        ("Slurm job queue full, sleeping and retrying", SubmitUnavailable),
        ("Slurm temporarily unable to accept job, sleeping and retrying", SubmitUnavailable),
        ("Batch job submission failed: Resource temporarily unavailable", SubmitUnavailable),
        ("Batch job submission failed: Slurm backup controller in standby mode", SubmitUnavailable),
        ("Batch job submission failed: Protocol authentication error", SubmitUnavailable),
        ("Batch job submission failed: I/O error writing script/environment to file", SubmitUnavailable),
        (
            "Batch job submission failed: Job violates accounting/QOS policy (job submit limit)",
            SubmitRejected,
        ),
        ("Batch job submission failed: Access/permission denied", SubmitRejected),
        ("Batch job submission failed: Unspecified error", SubmitRejected),
    ],
)
def test_other_words_of_slurm(words: str, outcome: type) -> None:
    assert isinstance(classify(1, f"sbatch: error: {words}\n".encode()), outcome)


def test_an_sbatch_that_was_killed_or_said_nothing_is_unknown() -> None:
    assert isinstance(classify(-9, b""), SubmitUnknown)
    assert isinstance(classify(1, b""), SubmitUnknown)
    assert isinstance(read_submit(0, b"", b"sbatch: something else"), SubmitUnknown)
    assert isinstance(read_submit(0, b"9" * 100_000 + b"\n", b""), SubmitUnknown)


def test_an_sbatch_that_is_not_there_is_unavailable() -> None:
    assert isinstance(classify(127, b"[Errno 2] not found: 'sbatch'"), SubmitUnavailable)


def test_an_id_with_a_cluster_and_warnings_on_stderr_is_success() -> None:
    outcome = read_submit(
        0, b"4711;hpc1\n", b"sbatch: warning: can't honor --ntasks-per-node\nsbatch: lua: hi\n"
    )
    assert outcome == SubmitAccepted("4711", ("warning: can't honor --ntasks-per-node", "lua: hi"))


@given(st.binary(), st.binary(), st.integers(-64, 255))
def test_whatever_comes_is_some_outcome_and_an_id_is_never_lost(
    stdout: bytes, stderr: bytes, code: int
) -> None:
    assert isinstance(
        read_submit(code, stdout, stderr), SubmitAccepted | SubmitRejected | SubmitUnavailable | SubmitUnknown
    )
    assert read_submit(code, stdout.replace(b"\n", b"") + b"\n12\n", stderr) == SubmitAccepted(
        "12",
        read_submit(0, b"1\n", stderr).warnings,  # type: ignore[union-attr]
    )


def test_a_call_that_failed_for_want_of_slurm_is_told_apart_from_one_that_was_refused() -> None:
    assert is_unavailable("Unable to contact slurm controller (connect failure)")
    assert not is_unavailable("Job is no longer pending execution for job 7")


def test_many_lines_become_one() -> None:
    assert (
        words_of(b'sbatch: error: a\n\n  \nscancel: b\nTry "sbatch --help" for more information\n') == "a; b"
    )
