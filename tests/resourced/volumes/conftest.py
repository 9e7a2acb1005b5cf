from __future__ import annotations

import pytest

from redbox_resourced.volumes import provisioner as provisioner_module
from redbox_shared.backoff import Backoff
from tests.resourced.volumes.harness import World


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(provisioner_module, "BACKOFF", Backoff(0.005, 0.01))
    return World()
