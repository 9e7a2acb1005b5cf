"""What Slurm's words for states and ends become."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbox.slurm.text.states import (
    ENDS,
    JOB_STATES,
    PHASES,
    Exit,
    end_of,
    from_wait_status,
    has_ended,
    has_not_begun,
    is_waiting,
    read_exit,
    read_state,
    severity,
)
from redbox_api.models import Phase


@pytest.mark.parametrize(
    ("text", "state", "uid"),
    [
        ("RUNNING", "RUNNING", None),
        ("CANCELLED by 2001", "CANCELLED", 2001),
        ("CANCELLED by 0", "CANCELLED", 0),
        ("CANCELLED+", "CANCELLED", None),
        ("COMPLETED+", "COMPLETED", None),
        ("OUT_OF_MEMORY", "OUT_OF_MEMORY", None),
        (" NODE_FAIL ", "NODE_FAIL", None),
    ],
)
def test_a_state_loses_its_decoration(text: str, state: str, uid: int | None) -> None:
    assert read_state(text) == (state, uid)


@pytest.mark.parametrize("state", sorted(PHASES))
def test_every_state_and_flag_is_read_as_itself(state: str) -> None:
    assert read_state(state) == (state, None)


FLAGS = [
    *("COMPLETING", "CONFIGURING", "EXPEDITING", "LAUNCH_FAILED", "POWER_UP_NODE", "RECONFIG_FAIL"),
    *("REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESIZING", "RESV_DEL_HOLD", "REVOKED", "SIGNALING"),
    *("SPECIAL_EXIT", "STAGE_OUT", "STOPPED"),
]


def test_no_flag_is_an_end_and_completing_least_of_all() -> None:
    assert set(FLAGS) < set(PHASES)
    assert not any(has_ended(flag) for flag in FLAGS)
    assert not is_waiting("COMPLETING")
    assert not has_ended("REVOKED")


@pytest.mark.parametrize("state", ["EXPEDITING", "REQUEUED"])
def test_a_job_between_two_runs_waits_and_has_not_begun(state: str) -> None:
    assert JOB_STATES.phase_of(state) is Phase.PENDING
    assert has_not_begun(state)


@pytest.mark.parametrize("state", ["REQUEUE_HOLD", "SPECIAL_EXIT"])
def test_a_job_that_is_held_after_a_requeue_is_paused_and_does_not_wait(state: str) -> None:
    assert JOB_STATES.phase_of(state) is Phase.SUSPENDED
    assert not is_waiting(state)
    assert has_not_begun(state)


@pytest.mark.parametrize("state", sorted(PHASES))
def test_a_state_waits_only_if_its_job_is_pending(state: str) -> None:
    assert is_waiting(state) is (JOB_STATES.phase_of(state) is Phase.PENDING)
    assert has_ended(state) is (state in ENDS)
    assert is_waiting(state) <= has_not_begun(state)


def test_only_states_of_the_table_are_classified() -> None:
    assert JOB_STATES.requeued <= set(ENDS)
    assert JOB_STATES.phase_of("DANCING") is None
    assert not has_not_begun("DANCING")


@pytest.mark.parametrize(
    ("state", "shown", "code", "signal"),
    [
        ("COMPLETED", "0:0", 0, None),
        ("FAILED", "1:0", 1, None),
        ("FAILED", "200:0", 200, None),
        ("FAILED", "0:9", None, 9),
        ("FAILED", "0:15", None, 15),
        ("FAILED", "0:53", None, 53),
        ("CANCELLED", "0:15", None, 15),
        ("CANCELLED", "0:0", None, None),
        ("TIMEOUT", "0:15", None, 15),
        ("TIMEOUT", "0:0", None, None),  # as sacct has it, also where the script trapped TERM and exited 0
        ("OUT_OF_MEMORY", "0:125", None, None),  # Slurm's own number
        ("NODE_FAIL", "0:0", None, None),
        ("NODE_FAIL", "1:0", None, None),  # nobody's program gave that 1
        ("DEADLINE", "0:1", None, None),  # as squeue has it
        ("DEADLINE", "1:0", None, None),  # as sacct has it
        ("DEADLINE", "0:15", None, 15),
        ("PREEMPTED", "0:0", None, None),
        ("BOOT_FAIL", "0:0", None, None),
        ("DEADLINE", "0:0", None, None),
        ("RUNNING", "0:0", None, None),
        ("COMPLETING", "0:9", None, None),
        ("PENDING", "0:0", None, None),
        # the raw wait status, as squeue of 22.05 prints it
        ("FAILED", "256", 1, None),
        ("FAILED", "51200", 200, None),
        ("FAILED", "9", None, 9),
        ("FAILED", "139", None, 11),  # with a core dump
        ("FAILED", "4021", None, 53),
        ("COMPLETED", "0", 0, None),
        ("TIMEOUT", "15", None, 15),
    ],
)
def test_an_end_shows_the_exit_code_or_the_signal(
    state: str, shown: str, code: int | None, signal: int | None
) -> None:
    assert end_of(state, read_exit(shown)) == Exit(code, signal)


@pytest.mark.parametrize("shown", ["0:1", "1:0", "1"])  # as squeue, sacct and squeue of 22.05 have it
def test_a_job_that_slurm_failed_before_it_had_a_node_has_no_exit_code(shown: str) -> None:
    assert end_of("FAILED", read_exit(shown), had_nodes=False) == Exit()
    assert end_of("FAILED", read_exit(shown)) != Exit()


@pytest.mark.parametrize("text", ["", "N/A", "1:", ":1", "-1", "1:0:0", "x"])
def test_what_is_no_exit_code_is_none(text: str) -> None:
    assert read_exit(text) is None
    assert end_of("FAILED", read_exit(text)) == Exit()


@given(st.integers(0, 255))
def test_every_exit_code_survives_both_forms(code: int) -> None:
    assert from_wait_status(code << 8) == read_exit(f"{code}:0") == Exit(code, 0)


@given(st.integers(1, 64))
def test_every_signal_survives_both_forms(number: int) -> None:
    assert from_wait_status(number) == read_exit(f"0:{number}") == Exit(0, number)


def test_a_failure_is_worse_than_a_cancel_and_any_end_worse_than_success() -> None:
    assert max(ENDS, key=severity) == "FAILED"
    assert min(ENDS, key=severity) == "COMPLETED"
    assert severity("RUNNING") < severity("COMPLETED")
