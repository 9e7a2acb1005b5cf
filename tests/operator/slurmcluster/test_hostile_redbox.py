"""A link to a SlurmEndpoint whose server misbehaves: what is held, what the status says, and recovery."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from redbox_api.client import RedboxClient
from redbox_api.limits.answer_memory import AnswerMemory, CommonMemory
from redbox_api.limits.time_share import Charge, CommonShare, TimeShare
from redbox_api.models import Job, OwnerRef, Phase, WatchEvent
from redbox_api.requests.sender import Deadlines
from redbox_operator.slurmcluster.job_feed import RedboxLink
from redbox_operator.slurmcluster.link_limits import limits_of
from redbox_operator.slurmcluster.status_lag import StatusLag
from tests.bench.hostile_redbox import HostileRedbox
from tests.operator.factories import slurm_endpoint

MOST_HELD = 48 * 1024 * 1024
"""By the client, and by the server in the same process; 1.5 GiB before there were bounds."""
QUICK = Deadlines(connect=0.5, answer=2.0, quiet=2.0)
FULL = "answers of SlurmEndpoints fill the 2 MiB that they have together"
FOREIGN = "/v1/jobs: the response did not come from red-box: it is not a JobList: "


@asynccontextmanager
async def linked(
    box: HostileRedbox,
    folder: Path,
    share: TimeShare | None = None,
    memory: AnswerMemory | None = None,
) -> AsyncIterator[RedboxLink]:
    """With the bounds of a SlurmEndpoint on each answer."""
    cluster = slurm_endpoint()
    async with box.serving(folder):
        client = RedboxClient(
            box.endpoint,
            ca_bundle=box.ca,
            deadlines=QUICK,
            limits=limits_of(cluster).answer,
            share=share or TimeShare(0.05, 60.0),
            memory=memory,
        )
        link = RedboxLink(
            cluster,
            client,
            changed=lambda _: None,
            turned=lambda _: None,
            namespace_of=lambda _: "farm",
            partitions_changed=lambda _: None,
            lag=StatusLag(),
        )
        link._limits = replace(link._limits, listed=1_000)
        running = asyncio.create_task(link.run())
        tracemalloc.start()
        try:
            yield link
            assert not running.done()
            assert tracemalloc.get_traced_memory()[1] < MOST_HELD
        finally:
            tracemalloc.stop()
            running.cancel()
            await asyncio.wait({running})


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(150):
        while not holds():  # noqa: ASYNC110 (what is waited for sets no event)
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("manner", "sentence"),
    [
        ("endless body", "/v1/jobs: an answer of more than 2 MiB"),
        ("690,000 items", "/v1/jobs: an answer with more than 8,192 objects and lists"),
        ("200,000 values that are none", FOREIGN + "items 0 nodes 0 Input should be a valid string"),
        ("700 items that are none", FOREIGN + "items 0 key Field required"),
        ("lists in lists", FOREIGN + "Invalid JSON: recursion limit exceeded at line 1 column "),
        ("endless pages", "it lists more than 1000 jobs that have not ended"),
        ("number of a million digits", FOREIGN + "Invalid JSON: number out of range at line 1 column "),
        ("revision of a mebibyte", FOREIGN + "revision String should have at most 256 characters"),
        ("revision that is a number", FOREIGN + "revision Input should be a valid string"),
        ("too old", "Too old: list again"),
        ("resets", "/v1/jobs: "),
        ("errors", "HTTP 500: the response did not come from red-box"),
        (
            "alternates",
            FOREIGN.replace("JobList", "WatchEvent") + "Invalid JSON",
        ),
        ("redirects", "HTTP 302: the response did not come from red-box"),
        ("gzip", FOREIGN + "Invalid JSON"),
        ("endless trailers", "/v1/jobs: "),
        ("endless headers", "/v1/jobs: "),
        ("endless header", "/v1/jobs: "),
        ("head byte by byte", "/v1/jobs: no answer within 2 s"),
        ("byte by byte", "/v1/jobs: an event that did not come whole within 2 s"),
        ("slow handshake", "/v1/jobs: no connection in time"),
    ],
)
async def test_what_is_wrong_is_in_the_status_and_the_link_recovers(
    manner: str, sentence: str, tmp_path: Path
) -> None:
    box = HostileRedbox(manner, byte_s=0.05)
    async with linked(box, tmp_path) as link:
        await until(lambda: link.trouble.startswith(sentence))
        box.manner = ""
        await until(lambda: link.synced and link.reachable)


@pytest.mark.parametrize(
    "manner", ["bookmarks", "bookmarks in chunks of a byte", "empty lines", "partitions", "rows"]
)
async def test_of_a_flood_no_more_is_read_than_the_share_allows(manner: str, tmp_path: Path) -> None:
    box, share = HostileRedbox(manner, rows=rows()), CountedShare()
    async with linked(box, tmp_path, share) as link:
        for _ in range(3):
            await until(lambda: share.is_overdrawn or share.blocks > share.most)
            assert share.blocks <= share.most
            share.grant(500)
        box.manner = ""
        share.grant(10**9)
        await until(lambda: link.synced and link.reachable)


class CountedShare(TimeShare):
    """Whose blocks take a millisecond each, and whose clock goes on when it is told to."""

    READ_AHEAD = 200
    """Blocks of TLS and HTTP that the event loop does for what a reader has no room for yet."""

    def __init__(self) -> None:
        self._now = 0.0
        self._together = CommonShare()
        super().__init__(0.5, 1e6, self._together, clock=lambda: self._now)
        self._balance = 0.5
        self.blocks, self.most = 0, 500 + self.READ_AHEAD

    @property
    def is_overdrawn(self) -> bool:
        return self in self._together.overdrawn

    def grant(self, blocks: int) -> None:
        self.most += blocks
        self._now += blocks / 1000 / self._share

    def charged(self) -> Charge:
        self.blocks += 1
        self.charge(0.001)
        return Charge(self, self.clock)


async def test_many_that_leave_answers_unfinished_hold_no_more_than_all_may(tmp_path: Path) -> None:
    """And what is left is enough for a red-box that answers."""
    common, wants = CommonMemory(2 * 1024 * 1024, "SlurmEndpoints"), f"/v1/jobs: {FULL}"
    boxes = [HostileRedbox("half a mebibyte") for _ in range(5)]
    async with AsyncExitStack() as opened:
        links = [
            await opened.enter_async_context(
                linked(box, folder_of(tmp_path, number), memory=AnswerMemory(common, number))
            )
            for number, box in enumerate(boxes)
        ]
        await until(lambda: any(link.trouble.startswith(wants) for link in links))
        assert common.held.total() <= common.most
        boxes[0].manner = ""
        boxes[0].hang_up()
        await until(lambda: links[0].synced and links[0].reachable)
        assert sum(held > 0 for held in common.held.values()) >= 2


def folder_of(parent: Path, number: int) -> Path:
    folder = parent / str(number)
    folder.mkdir()
    return folder


def rows() -> list[bytes]:
    owner = OwnerRef(cluster="", namespace="farm", account="default")
    jobs = [
        Job(key="one", attempt=1, owner=owner, user="u", phase=phase, reason="r" * 1000)
        for phase in (Phase.PENDING, Phase.RUNNING)
    ]
    events = [WatchEvent(type="job", revision="e.1", job=job) for job in jobs]
    return [event.model_dump_json(by_alias=True, exclude_none=True).encode() + b"\n" for event in events]
