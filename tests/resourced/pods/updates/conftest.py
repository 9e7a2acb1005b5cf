"""Changes are looked up at once."""

from __future__ import annotations

import pytest

from redbox_resourced.pods.updates import updater as updater_module


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updater_module, "SETTLE_S", 0.01)
    monkeypatch.setattr(updater_module, "EVERY_S", 0.0)
