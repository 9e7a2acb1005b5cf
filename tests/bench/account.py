"""The account of an act: what it costs, over what the bed costs in a quiet window of the same length.

CPU of each process, writes to the API server, fsyncs, RPCs to slurmctld. The reader's own calls of sdiag and
of the API server's metrics are in both windows alike, and outside the windows of CPU.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from redbox_bed.bed import Bed
from redbox_bed.delivery import Kubernetes
from tests.bench.effort import sized
from tests.bench.processor_time import Costs, read_processor_time, spent
from tests.bench.syncs import SyncCounter, counting_syncs

TAIL_S = sized(10.0, 5.0)
"""What an act leaves to do is done by then: events, the last poll, a companion's end."""
SETTLES_S = sized(10.0, 5.0)
RPCS_OF_A_USER = re.compile(r"^\t(\S+)\s*\(\s*\d+\) count:(\d+)", re.MULTILINE)
REQUESTS = re.compile(r"^apiserver_request_total\{([^}]*)\} (\S+)$", re.MULTILINE)
WRITES = re.compile(r'verb="(?:POST|PUT|PATCH|APPLY|DELETE|DELETECOLLECTION)"')
NO_WRITES = re.compile(r'resource="(?:\w+accessreviews|tokenreviews)"|subresource="token"')


def rpcs_of(sdiag: str) -> int:
    """All that slurmctld was asked since its counts began, by any user; the part before counts the same."""
    by_user = sdiag.partition("statistics by user")[2]
    return sum(int(count) for _, count in RPCS_OF_A_USER.findall(by_user))


def writes_of(metrics: str) -> float:
    """Writes of objects at the API server; reviews and tokens are requests that write none."""
    return sum(
        float(count)
        for labels, count in REQUESTS.findall(metrics)
        if WRITES.search(labels) and not NO_WRITES.search(labels)
    )


@dataclass
class Accountant:
    """Measures acts on one bed."""

    bed: Bed
    syncs: SyncCounter | None
    """None: fsyncs cannot be counted here, and their rows say that they were not measured."""

    def of(self, act: Callable[[], float], own: Sequence[str]) -> Costs:
        """What one of the things costs of which `act` does several, and returns how many; and their rate.

        `own` are the parts of Red Box that have a share in it.
        """
        time.sleep(SETTLES_S)
        done: list[tuple[float, float]] = []

        def timed() -> None:
            started = time.perf_counter()
            count = act()
            done.append((count, time.perf_counter() - started))
            time.sleep(TAIL_S)

        busy = self._window(timed)
        ((count, took),) = done
        time.sleep(SETTLES_S)
        quiet = self._window(lambda: time.sleep(took + TAIL_S))
        one = Costs(float, {name: (busy[name] - quiet[name]) / count for name in busy.keys() | quiet.keys()})
        one["own"] = sum(one[name] for name in own)
        one["controllers"] = one["operator"] + one["resourced"]
        one["rate"] = count / took
        return one

    def _window(self, body: Callable[[], None]) -> Costs:
        roles = {host.name: host.role for host in self.bed.plan.hosts}
        writes, rpcs = self._writes(), self._rpcs()
        if self.syncs:
            self.syncs.start()
        before = read_processor_time(self.bed)
        body()
        used = spent(before, read_processor_time(self.bed), roles)
        for name, count in (self.syncs.counts() if self.syncs else {}).items():
            used[f"fsyncs-{name}"] = count
        used["rpcs"] = self._rpcs() - rpcs
        used["writes"] = self._writes() - writes
        return used

    def _rpcs(self) -> int:
        return rpcs_of(self.bed.host("ctl").run("sdiag").stdout)

    def _writes(self) -> float:
        return writes_of(Kubernetes(self.bed)("get", "--raw", "/metrics"))


@contextmanager
def accounting(bed: Bed) -> Iterator[Accountant]:
    with counting_syncs(bed) as syncs:
        yield Accountant(bed, syncs)
