"""docs/administrators/metrics.md lists resourced's metrics, with their kinds and labels, and no others."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from prometheus_client import CollectorRegistry

from redbox_resourced.kubelet.certificate_expiry import CertificateMetrics
from redbox_resourced.kubelet.serving_certificate import CertificateLife
from redbox_resourced.nodes.reconciler import ResourcedMetrics
from tests.resourced.factories import followed

PAGE = Path(__file__).parents[2] / "docs/administrators/metrics.md"
ROW = re.compile(r"\| `(redbox_resourced_\w+)` \| (\w+) \|(.*?)\|")


async def test_the_page_lists_what_there_is() -> None:
    registry = CollectorRegistry()
    clusters = cast("Any", SimpleNamespace(followed={"hpc1": followed()}))
    registry.register(ResourcedMetrics(clusters, {}, ()))
    end = datetime(2026, 11, 28, tzinfo=UTC)
    registry.register(CertificateMetrics(lambda: CertificateLife(end, end)))
    there = {
        family.name: (family.type, {label for sample in family.samples for label in sample.labels})
        for family in registry.collect()
    }
    listed = {
        name: (kind, set(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in ROW.findall(PAGE.read_text())
    }
    assert listed == there
