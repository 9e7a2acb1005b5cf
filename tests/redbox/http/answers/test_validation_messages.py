"""What is wrong with a request is message in words, and without its values."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from redbox.http.answers.validation_messages import validation_message
from redbox_api.models import JobRequest

SCRIPT = "#!/bin/sh\n"
CASES: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown field": ({"bogus": "s3cret"}, "bogus is not a field of this request"),
    "one inside": ({"resources": {"nodez": 1}}, "resources.nodez is not a field of this request"),
    "too small": ({"resources": {"nodes": -1}}, "resources.nodes must be greater than or equal to 1"),
    "a size": (
        {"resources": {"memPerNode": "4 GB"}},
        "resources.memPerNode must be a size as sbatch takes it: 4G",
    ),
    "a time": ({"resources": {"time": "s3cret"}}, "resources.time must be a time as sbatch takes it: 90"),
    "GPUs": ({"resources": {"gpusPerNode": "all"}}, "resources.gpusPerNode must be a number of GPUs"),
    "a form": ({"array": "s3cret"}, "array must be of the form [0-9,:%-]+"),
    "a name": ({"env": {"A=B": "s3cret"}}, "env.A=B must be the name of a variable"),
    "a line's end": ({"output": "a\nb"}, "output must not contain control characters"),
    "no truth": ({"hold": "s3cret"}, "hold must be true or false"),
    "a rule over fields": ({"container": {"image": "x"}}, "exactly one of batch, container and pod"),
    "no object": ({"resources": "s3cret"}, "resources must be"),
}


@pytest.mark.parametrize("case", CASES)
def test_an_error_is_a_sentence(case: str) -> None:
    fields, words = CASES[case]
    message = message_of({"batch": SCRIPT, **fields})
    assert words in message
    assert "s3cret" not in message


def test_of_many_errors_the_first_are_listed() -> None:
    assert message_of({"batch": SCRIPT, **{f"x{n}": 1 for n in range(30)}}).endswith("; and 20 more")


def message_of(request: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as raised:
        JobRequest.model_validate(request)
    return validation_message([dict(error) for error in raised.value.errors()])
