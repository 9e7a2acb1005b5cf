"""Slurm's metrics in Prometheus' text format, and why there are none. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from redbox.core.gauges import FamilyOfGauges, MetricFamily
from redbox_shared.printable import printable


class _Given(Collector):
    """Metrics that are there already."""

    def __init__(self, metrics: Iterable[Metric]) -> None:
        self._metrics = tuple(metrics)

    def collect(self) -> Iterator[Metric]:
        return iter(self._metrics)


def exposition_of(family: MetricFamily, found: FamilyOfGauges) -> bytes:
    return _text([*_gauges(found), _left_out(found), _available(family, holds=True)])


def unavailable(family: MetricFamily, why: str) -> bytes:
    """No number of Slurm, and a sentence."""
    return f"# {printable(' '.join(why.split()))}\n".encode() + _text([_available(family, holds=False)])


def _text(metrics: Iterable[Metric]) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Given(metrics))
    return generate_latest(registry)


def _gauges(found: FamilyOfGauges) -> Iterator[Metric]:
    for gauge in found.gauges:
        metric = GaugeMetricFamily(gauge.name, gauge.help, labels=[gauge.label] if gauge.label else [])
        numbers: defaultdict[str, float] = defaultdict(float)  # two names may look the same
        for value, number in gauge.samples.items():
            numbers[printable(value)] += number
        for value, number in numbers.items():
            metric.add_metric([value] if gauge.label else [], number)
        yield metric


def _left_out(found: FamilyOfGauges) -> Metric:
    metric = GaugeMetricFamily(
        "redbox_slurm_metrics_left_out",
        "Values of this label beyond slurm.metrics.values_of_a_label, which have no sample.",
        labels=["label"],
    )
    for label, count in found.left_out.items():
        metric.add_metric([label], count)
    return metric


def _available(family: MetricFamily, *, holds: bool) -> Metric:
    metric = GaugeMetricFamily(
        "redbox_slurm_metrics_available",
        "Whether Slurm's numbers are served; if not, a comment above has the reason.",
        labels=["family"],
    )
    metric.add_metric([family], float(holds))
    return metric
