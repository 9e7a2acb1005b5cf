"""The time limit of a pod's job, and the longest that its partition gives."""

from __future__ import annotations

import pytest

from redbox_resourced.translation.errors import Unsupported
from tests.resourced.translation.factories import annotated, pod, requested


@pytest.mark.parametrize(
    ("deadline", "max_time_s", "time"),
    [
        (3600, 24 * 3600, "91"),
        (3600, 4000, "66"),  # the half hour for images has no room
        (3600, 3600, "60"),
        (30, 30, "1"),
        (3600, None, "91"),
    ],
)
def test_the_time_limit_is_no_longer_than_the_partition_allows(
    deadline: int, max_time_s: int | None, time: str
) -> None:
    found = requested(pod(activeDeadlineSeconds=deadline), max_time_s=max_time_s)
    assert found.resources.time == time


def test_a_deadline_that_the_partition_cannot_keep_is_refused() -> None:
    with pytest.raises(Unsupported) as refusal:
        requested(pod(activeDeadlineSeconds=3601), max_time_s=3600)
    assert str(refusal.value) == (
        "spec.activeDeadlineSeconds: partition debug ends each job after 3600 s (MaxTime): "
        "write at most 3600, or choose another partition"
    )


@pytest.mark.parametrize(("option", "time"), [({"time": "120"}, "120"), ({"qos": "long"}, "151")])
def test_a_time_or_a_qos_of_the_authors_own_is_left_to_slurm(option: dict[str, str], time: str) -> None:
    given = annotated(**option)
    given["spec"]["activeDeadlineSeconds"] = 7200
    assert requested(given, max_time_s=3600).resources.time == time
