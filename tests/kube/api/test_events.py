"""Names of events: valid ones for each object that the API server takes."""

from __future__ import annotations

import re

import pytest

from redbox_kube.api import kinds
from redbox_kube.api.events import Event
from redbox_kube.api.objects import ResourcePath

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@pytest.mark.parametrize("name", ["train", "n" * 253, f"{'n' * 199}-{'n' * 53}", f"{'n' * 198}-.{'n' * 53}"])
def test_an_events_name_is_one_for_the_api_server(name: str) -> None:
    event = Event(
        ResourcePath(kinds.POD, name, "alice"), "uid", "1", "Normal", "Pulled", "here", "Pulled", "us"
    )
    assert SUBDOMAIN.fullmatch(event.name)
    assert len(event.name) <= 253
