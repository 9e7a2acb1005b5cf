"""What the operator tells the kubelet of itself."""

from __future__ import annotations

import pytest

from redbox_clusters.redbox_token import ServiceAccountName
from redbox_operator import application
from redbox_operator.application import Operator, Options
from redbox_operator.companion_pods.builder import CompanionProgram
from tests.kube.fakes import FakeApiServer


def test_it_is_ready_once_it_has_looked_at_all_or_stands_by_for_another() -> None:
    options = Options(ServiceAccountName("redbox-system", "redbox-operator"), CompanionProgram("image"), 0)
    operator = Operator(FakeApiServer().client, options)
    process = operator.process
    assert process.why_unready() == "the Lease has not been read yet"
    process.lease.leader = "another"
    assert process.why_unready() is None
    process.leads = True
    assert process.why_unready() == "the first resync has not finished"
    operator.resync.done_once = True
    assert process.why_unready() is None


def test_it_is_unhealthy_once_no_watch_has_shown_anything_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """kopf's watches may end, or hang, while all else goes on; bookmarks come every minute."""
    now = 1000.0
    monkeypatch.setattr(application, "monotonic", lambda: now)
    options = Options(ServiceAccountName("redbox-system", "redbox-operator"), CompanionProgram("image"), 0)
    operator = Operator(FakeApiServer().client, options)
    now += 10_000
    assert operator.unhealthy() is None  # it waits for the Lease
    operator._watch_read()
    now += application.STUCK_S
    assert operator.unhealthy() is None
    now += 1
    assert "no watch has shown anything" in str(operator.unhealthy())
    operator._watch_read()
    assert operator.unhealthy() is None
