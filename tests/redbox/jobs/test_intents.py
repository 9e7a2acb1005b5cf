"""Where a job lives, by the administrator's template."""

from __future__ import annotations

import pytest

from redbox.domain import JobKey, Owner
from redbox.jobs.intents import default_directory
from redbox_api.models import JobRequest

KEY = JobKey(Owner("prod", "physics", "default"), "0aa61111-2222")
TEMPLATE = "{home}/redbox/{namespace}/{name}"


@pytest.mark.parametrize(
    ("name", "folder"),
    [("fit", "fit"), ("fit %j", "fit _j"), ("a\\b", "a_b"), ("{home}", "_home}"), ("..", "..")],
)
def test_a_jobs_name_is_one_folder_and_no_pattern_of_slurms(name: str, folder: str) -> None:
    request = JobRequest(batch="#!/bin/sh\n", name=name)
    made = default_directory(TEMPLATE, KEY, request)
    assert made.startswith(f"{{home}}/redbox/physics/{folder}-")
    assert "%" not in made
