import pytest

from redbox_shared.own_lines import own_line, task_heading


@pytest.mark.parametrize(
    ("exit_code", "signal", "heading"),
    [
        (0, None, "task 7: FAILED"),
        (3, None, "task 7: FAILED, exit code 3"),
        (0, 9, "task 7: FAILED, signal 9"),
        (3, 9, "task 7: FAILED, signal 9"),
        (None, None, "task 7: FAILED"),
    ],
)
def test_a_heading_says_how_the_task_ended(exit_code: int | None, signal: int | None, heading: str) -> None:
    assert task_heading(7, "FAILED", exit_code, signal) == heading


def test_a_line_of_ours_is_one_line() -> None:
    assert own_line("two\n  lines\t") == b"redbox: two lines\n"
