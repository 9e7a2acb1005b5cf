"""When things in Kubernetes are seen to be accepted, begun and ended, and what their scripts say of it."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import pytest

from redbox_kube.api.objects import ObjectClient, ResourcePath
from tests.bench.pod_lives import NATIVE, ON_SLURM, SLURM_JOB, Kind, Life, Lives, stamps

SUBMITTED = {"conditions": [{"type": "redbox.dev/Submitted", "status": "True"}]}
WAITS = {"conditions": [{"type": "redbox.dev/Submitted", "status": "False"}]}


class PlayedObjects:
    """An API server in which each new object goes through these statuses."""

    def __init__(self, *statuses: Mapping[str, Any]) -> None:
        self._statuses = statuses
        self._events: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
        self._written = self._shown = 1

    async def pages(self, _: ResourcePath) -> AsyncIterator[tuple[list[Any], str]]:
        yield [], "1"

    async def watch(self, _: ResourcePath, since: str) -> AsyncIterator[Mapping[str, Any]]:
        """The next event alone: an API server ends the watch of a reader that lags behind."""
        assert since == str(self._shown)
        event = await self._events.get()
        self._shown += 1
        yield event

    async def create(self, _: ResourcePath, body: Mapping[str, Any]) -> Mapping[str, Any]:
        for status in self._statuses:
            self._written += 1
            metadata = {**body["metadata"], "resourceVersion": str(self._written)}
            self._events.put_nowait({"object": {**body, "metadata": metadata, "status": status}})
        return body


def lives(kind: Kind, *statuses: Mapping[str, Any], until: str) -> list[Life]:
    objects = cast("ObjectClient", PlayedObjects({}, *statuses))
    return list(asyncio.run(Lives(objects, kind).run("true", 3, until=until)).values())


@pytest.mark.parametrize(
    ("kind", "status"),
    [(ON_SLURM, SUBMITTED), (SLURM_JOB, {"jobID": "7"}), (NATIVE, {"startTime": "2026-11-23T05:00:00Z"})],
)
def test_each_kind_is_seen_to_be_accepted(kind: Kind, status: Mapping[str, Any]) -> None:
    for life in lives(kind, status, until="accepted"):
        assert life.accepted >= life.asked
        assert not life.begun


def test_a_pod_that_waits_is_not_yet_accepted() -> None:
    assert not ON_SLURM.is_accepted(WAITS)
    assert ON_SLURM.is_accepted(SUBMITTED)


def test_a_state_that_no_watch_has_shown_was_there_with_the_next_one() -> None:
    for life in lives(ON_SLURM, SUBMITTED, {**SUBMITTED, "phase": "Failed"}, until="ended"):
        assert 0 < life.asked <= life.accepted <= life.begun <= life.ended


def test_the_times_that_a_script_tells_are_read_from_its_log() -> None:
    assert stamps("1795410914 666484 \nsomething else\n1795410917 5 \n") == [
        1795410914.666484,
        1795410917.000005,
    ]
