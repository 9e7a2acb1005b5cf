"""What the operator tells the kubelet of itself."""

from __future__ import annotations

from redbox_kube.redbox_token import ServiceAccountName
from redbox_operator.application import Operator, Options
from tests.kube.fakes import FakeApiServer


def test_it_is_ready_once_it_has_looked_at_all_or_stands_by_for_another() -> None:
    options = Options(ServiceAccountName("redbox-system", "redbox-operator"), "image", 0)
    operator = Operator(FakeApiServer().client, options)
    assert operator.unready() == "the Lease has not been read yet"
    operator._lease.leader = "another"
    assert operator.unready() is None
    operator.leads = True
    assert operator.unready() == "the first resync has not finished"
    operator.resync.done_once = True
    assert operator.unready() is None
