"""The page of errors: a new error without its cause and cure is found, and so is an explanation of none."""

from __future__ import annotations

import pytest

from redbox_bed.core.places import CHECKOUT
from redbox_errors import page
from redbox_errors.page import ErrorsPage, Unexplained
from redbox_operator.companion_pods.admission_errors import REMEDIES
from redbox_shared.explanations.explanation import Explanation
from redbox_shared.explanations.redbox_problems import REDBOX_PROBLEMS
from redbox_shared.explanations.slurmjobs import SLURMJOB_REASONS

NONE = Explanation("", "")


@pytest.fixture(scope="module")
def errors() -> ErrorsPage:
    return ErrorsPage(CHECKOUT)


def test_every_error_has_its_cause_and_cure(errors: ErrorsPage) -> None:
    assert list(errors.faults()) == []
    assert {reason for _, reason, _ in REMEDIES} <= SLURMJOB_REASONS.keys()


def test_an_error_that_nobody_has_explained_is_found(
    errors: ErrorsPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(SLURMJOB_REASONS, "ScriptMissing")
    monkeypatch.delitem(REDBOX_PROBLEMS, "Not now")
    monkeypatch.setattr(page, "GROUPS", [group for group in page.GROUPS if "ListenError" not in group.kinds])
    found = "; ".join(errors.faults())
    assert "the reason ScriptMissing of StatusProblem" in found
    assert "the title 'Not now' is not in REDBOX_PROBLEMS" in found
    assert "ListenError is in none of the groups" in found
    with pytest.raises(Unexplained, match="ListenError"):
        errors.render()


def test_an_explanation_of_no_error_is_found(errors: ErrorsPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SLURMJOB_REASONS, "NeverUsed", NONE)
    assert list(errors.faults()) == ["the reason NeverUsed of redbox_shared/explanations is in no module"]


def test_messages_have_their_place(errors: ErrorsPage) -> None:
    lines = errors.render().splitlines()
    answers = lines.index("### The caller may not do this")
    assert any("lacks the role submit" in line for line in lines[answers : answers + 60])
    assert any(
        line.startswith("| `ScriptMissing`<br>`there is no …, which batchFrom names.") for line in lines
    )
    ports = "| `… differs from the rule that red-box needs` | `replace its content by: …` |"
    assert ports in lines[lines.index("## redbox check") :]
