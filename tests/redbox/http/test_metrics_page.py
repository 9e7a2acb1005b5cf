"""docs/administrators/metrics.md lists red-box's metrics, with their kinds and labels, and no others."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from redbox.http.metrics import ServerMetrics
from redbox.observability.job_audit import AuditEntry
from tests.redbox.http.harness import Stand

PAGE = Path(__file__).parents[3] / "docs/administrators/metrics.md"
ROW = re.compile(r"\| `(redbox_(?!resourced_)\w+)` \| (\w+) \|(.*?)\|")
ENTRY = AuditEntry(caller="uid:2001", user="alice", act="submit", job="k1", outcome="done")
ADDED = {"le"}  # by histograms themselves


async def test_the_page_lists_what_there_is(stand: Stand) -> None:
    await stand.submitted("k1")
    metrics = stand.services.metrics
    assert isinstance(metrics, ServerMetrics)
    metrics.slurm_called("squeue", 0.1, answered=True)
    metrics.act_done(ENTRY)
    async with stand.at_socket() as http:
        text = (await http.get("/metrics")).text
    there = {}
    for family in text_string_to_metric_families(text):
        if family.name.endswith("_created"):
            continue
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels} - ADDED
        there[name] = (family.type, labels)
    listed = {
        name: (kind, set(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in ROW.findall(PAGE.read_text())
    }
    assert listed == there
