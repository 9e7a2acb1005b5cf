"""Progress is a line for each step that took time."""

import io

from rich.console import Console

from redbox_bed.core.progress import Progress


def test_a_step_is_told_with_its_own_time_and_the_time_so_far() -> None:
    output, times = io.StringIO(), iter([0.0, 1.0, 3.5, 3.5])
    progress = Progress(Console(file=output, width=100), clock=lambda: next(times))
    with progress.step("hosts"):
        pass
    assert output.getvalue() == "   3.5 s  hosts (2.5 s)\n"


def test_a_step_that_found_nothing_to_do_is_not_told() -> None:
    output = io.StringIO()
    progress = Progress(Console(file=output), clock=lambda: 0.0)
    with progress.step("hosts"):
        pass
    assert output.getvalue() == ""


def test_words_are_printed_as_they_are() -> None:
    output = io.StringIO()
    Progress(Console(file=output, width=20), clock=lambda: 0.0)("building [1/2] of something that is long")
    assert output.getvalue() == "   0.0 s  building [1/2] of something that is long\n"
