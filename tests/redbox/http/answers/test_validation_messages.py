"""What is wrong with a request is said in words, and without its values."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from redbox.http.answers.validation_messages import told
from redbox_api.models import JobRequest

SCRIPT = "#!/bin/sh\n"
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "a field that is none": ({"bogus": "s3cret"}, "bogus is not a field that red-box knows"),
    "one inside": ({"resources": {"nodez": 1}}, "resources.nodez is not a field that red-box knows"),
    "too small": ({"resources": {"nodes": -1}}, "resources.nodes must be greater than or equal to 1"),
    "a size": (
        {"resources": {"memPerNode": "4 GB"}},
        "resources.memPerNode must be a size as sbatch takes it: 4G",
    ),
    "a time": ({"resources": {"time": "s3cret"}}, "resources.time must be a time as sbatch takes it: 90"),
    "GPUs": ({"resources": {"gpusPerNode": "all"}}, "resources.gpusPerNode must be a number of GPUs"),
    "a form": ({"array": "s3cret"}, "array must be of the form [0-9,:%-]+"),
    "a name": ({"env": {"A=B": "s3cret"}}, "env.A=B is no name of a variable"),
    "a line's end": ({"output": "a\nb"}, "output holds a character that it must not hold"),
    "no truth": ({"hold": "s3cret"}, "hold must be true or false"),
    "a rule over fields": ({"container": {"image": "x"}}, "exactly one of batch and container"),
    "no object": ({"resources": "s3cret"}, "resources must be"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_flaw_is_said_in_words(case: str) -> None:
    fields, words = CASES[case]
    said = said_of({"batch": SCRIPT, **fields})
    assert words in said
    assert "s3cret" not in said


def test_of_many_flaws_the_first_are_told() -> None:
    assert said_of({"batch": SCRIPT, **{f"x{n}": 1 for n in range(30)}}).endswith("; and 20 more")


def said_of(request: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as raised:
        JobRequest.model_validate(request)
    return told([dict(one) for one in raised.value.errors()])
