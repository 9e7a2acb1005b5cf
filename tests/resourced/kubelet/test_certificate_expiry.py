"""The end of the serving certificate is reported a week before it, and after it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from redbox_resourced.kubelet.certificate_expiry import (
    EXPIRED,
    EXPIRES,
    CertificateExpiry,
    CertificateWarning,
    warning_of,
)
from redbox_resourced.kubelet.serving_certificate import (
    CertificateLife,
    ServingKeyPair,
    make_key,
    self_signed,
)
from redbox_resourced.pods_condition import PodGrants, readiness_of
from redbox_resourced.virtual_delivery import PodsServing
from tests.kube.fakes import FakeApiServer
from tests.resourced.factories import slurm_cluster

NOW = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)
DAY, HOUR = timedelta(days=1), timedelta(hours=1)


@pytest.mark.parametrize(
    ("left", "lasts", "reason"),
    [
        (8 * DAY, 365 * DAY, None),
        (6 * DAY, 365 * DAY, EXPIRES),
        (6 * HOUR, DAY, None),  # its renewal is not due
        (4 * HOUR, DAY, EXPIRES),
        (timedelta(0), 365 * DAY, EXPIRED),
        (-DAY, DAY, EXPIRED),
    ],
)
def test_it_is_reported_within_its_last_week_once_its_renewal_is_due(
    left: timedelta, lasts: timedelta, reason: str | None
) -> None:
    end = NOW + left
    found = warning_of(CertificateLife(end - lasts / 5, end), NOW)
    assert (found and found.reason) == reason
    assert warning_of(None, NOW) is None


async def test_there_is_an_event_a_day_before_the_end_and_one_an_hour_after_it() -> None:
    api, at = FakeApiServer(), SimpleNamespace(now=NOW)
    life = CertificateLife(NOW, NOW + DAY)
    expiry = CertificateExpiry(api.client, lambda: life, lambda: [slurm_cluster()], lambda: at.now)
    for hours in (0, 1, 2, 25, 25.5, 26):
        at.now = NOW + hours * HOUR
        await expiry.report()
    assert [event["reason"] for event in api.events] == [EXPIRES, EXPIRED, EXPIRED]
    assert "2026-11-29 12:00 UTC" in api.events[0]["message"]


def test_a_certificate_shows_its_life() -> None:
    pair = self_signed(make_key(), "127.0.0.1", NOW)
    life = ServingKeyPair(pair.certificate, pair.key).life()
    assert life.renewal < life.end == NOW + timedelta(days=90)


def test_the_condition_of_slurmclusters_shows_it() -> None:
    serving = PodsServing(certificate=CertificateWarning(EXPIRED, "It has ended."))
    grants = PodGrants(enabled=True, namespaces=("alice",))
    found = readiness_of(cast("Any", SimpleNamespace(api_tokens=False)), grants, serving)
    assert (found.holds, found.reason, found.message) == (True, EXPIRED, "It has ended.")


def test_what_keeps_pods_waiting_goes_before_it() -> None:
    serving = PodsServing(certificate=CertificateWarning(EXPIRES, "It ends."))
    spec = cast("Any", SimpleNamespace(api_tokens=True))
    found = readiness_of(spec, PodGrants(enabled=True, namespaces=("alice",)), serving)
    assert (found.holds, found.reason) == (False, "NoTokenNamespaces")
