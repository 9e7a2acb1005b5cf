"""A CRD that was just created is waited for."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_kube.api.objects import Object, ResourcePath
from redbox_kube.install.crd_upgrade import upgrade_crds
from redbox_kube.schemas.crd import crd_of
from tests.kube.controller.greetings import GREETINGS
from tests.kube.fakes import FakeApiServer

CONDITIONS = (None, [{"type": "Established", "status": "False"}], [{"type": "Established", "status": "True"}])


class EstablishesLate(FakeApiServer):
    """The conditions of a new CRD are null, and then not true at once."""

    def __init__(self) -> None:
        super().__init__()
        self.shows = list[Any](CONDITIONS)

    async def get(self, where: ResourcePath) -> Object | None:
        found = await super().get(where)
        return found and {**found, "status": {"conditions": self.shows.pop(0)}}


async def test_a_new_crd_is_served_before_it_counts_as_created(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("redbox_kube.runtime.clock.EVERY_S", 0.001)
    api = EstablishesLate()
    assert await upgrade_crds(api.client, [crd_of(GREETINGS, "A greeting.")]) == [
        "greetings.example.dev: created"
    ]
    assert api.shows == []
