"""docs/reference/companion.md says what the companion does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from redbox_shared import job_end, pod_contract
from redbox_shared.job_end import JobEnd

PAGE = Path(__file__).parents[2] / "docs/reference/companion.md"
ROW = re.compile(r"\| .* \| ([A-Z_, ]+) \| (\d+) \|")
CODES = {state: int(row[2]) for row in ROW.finditer(PAGE.read_text()) for state in row[1].split(", ")}


@pytest.mark.parametrize("state", sorted(job_end.EXIT_BY_STATE.keys() | CODES.keys()))
def test_the_exit_code_of_each_state_is_the_one_in_the_reference(state: str) -> None:
    phase = "Cancelled" if state == "CANCELLED" else "Failed"
    end = JobEnd({"phase": phase, "state": state, "exitCode": 0})
    assert end.pod_exit_code() == CODES[state]


def test_every_variable_that_it_reads_is_in_the_reference() -> None:
    sources = Path(pod_contract.__file__).read_text()
    read = set(re.findall(r'"(REDBOX_[A-Z_]+)"', sources))
    assert len(read) > 10
    assert {name for name in read if name not in PAGE.read_text()} == set()
