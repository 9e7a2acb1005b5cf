"""A feed lists once, watches, and goes on after whatever ends the watch."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest

from redbox_api.client import RedboxClient
from redbox_api.errors import TooOld, Unreachable
from redbox_api.feed import Feed, Resume, list_active_jobs
from redbox_api.models import JobList, Problem, WatchEvent
from redbox_shared.backoff import Backoff

TOO_OLD = TooOld(Problem(type="x", title="Gone", status=410, detail="list again"))
Step = WatchEvent | Exception | None  # None: the watch is silent for ever
STOP = ValueError("the script is at its end")


def bookmark(number: int) -> WatchEvent:
    return WatchEvent(type="bookmark", revision=f"e.{number}")


class Script:
    """A list, and watches that go by a script; `calls` are what the feed asked for, in order."""

    def __init__(self, *watches: Sequence[Step], lists: Sequence[str | Exception] = ()) -> None:
        self.calls: list[str] = []
        self.failures: list[str] = []
        self.events: list[str] = []
        self._watches = list(watches)
        self._lists = list(lists)

    async def list_all(self) -> str:
        self.calls.append("list")
        result = self._lists.pop(0) if self._lists else "e.1"
        if isinstance(result, Exception):
            raise result
        return result

    async def watch(self, since: str) -> AsyncIterator[WatchEvent]:
        self.calls.append(f"watch {since}")
        if not self._watches:
            raise STOP
        for step in self._watches.pop(0):
            if isinstance(step, Exception):
                raise step
            if step is None:
                await asyncio.Event().wait()
            else:
                yield step

    def feed(self, **options: Any) -> Feed[WatchEvent]:
        return Feed(
            self.list_all,
            self.watch,
            lambda event: self.events.append(event.type),
            self.failures.append,
            **{"backoff": Backoff(0.0, 0.0), **options},
        )

    async def run(self, **options: Any) -> list[str]:
        """Until the script is at its end, which is an error that no feed retries."""
        with pytest.raises(ValueError, match=str(STOP)):
            async with asyncio.timeout(60):
                await self.feed(**options).run()
        return self.calls


async def test_a_watch_that_ends_resumes_at_its_last_revision_without_a_list() -> None:
    script = Script([bookmark(2), bookmark(3)], [])
    assert await script.run() == ["list", "watch e.1", "watch e.3", "watch e.3"]
    assert script.failures == []


async def test_a_watch_that_breaks_off_is_a_failure_and_resumes() -> None:
    script = Script([bookmark(2), Unreachable("cut")])
    assert await script.run() == ["list", "watch e.1", "watch e.2"]
    assert script.failures == ["cut"]


async def test_a_revision_that_is_too_old_makes_it_list_again_and_is_no_failure() -> None:
    script = Script([TOO_OLD], lists=["e.1", "f.7"])
    assert await script.run() == ["list", "watch e.1", "list", "watch f.7"]
    assert script.failures == []


async def test_a_list_that_fails_is_tried_again() -> None:
    script = Script(lists=[Unreachable("away"), Unreachable("away"), "e.5"])
    assert await script.run() == ["list", "list", "list", "watch e.5"]
    assert script.failures == ["away", "away"]


async def test_an_error_event_moves_no_revision_and_is_no_failure() -> None:
    dropped = WatchEvent(type="error", revision="e.9", message="Too slow")
    script = Script([bookmark(2), dropped])
    assert await script.run() == ["list", "watch e.1", "watch e.2"]
    assert (script.events, script.failures) == (["bookmark", "error"], [])


@pytest.mark.parametrize(
    ("resume", "after_a_failure", "after_an_end"),
    [
        (Resume.ALWAYS, ["watch e.2"], ["watch e.2"]),
        (Resume.AFTER_CLEAN_END, ["list", "watch e.1"], ["watch e.2"]),
        (Resume.NEVER, ["list", "watch e.1"], ["list", "watch e.1"]),
    ],
)
async def test_what_comes_after_the_end_of_a_watch_is_for_the_user_to_choose(
    resume: Resume, after_a_failure: list[str], after_an_end: list[str]
) -> None:
    begin = ["list", "watch e.1"]
    assert await Script([bookmark(2), Unreachable("cut")]).run(resume=resume) == begin + after_a_failure
    assert await Script([bookmark(2)]).run(resume=resume) == begin + after_an_end


async def test_errors_of_the_token_are_retried_where_the_user_says_so() -> None:
    script = Script([OSError("no token")])
    assert await script.run(retry_on=(OSError,)) == ["list", "watch e.1", "watch e.1"]
    with pytest.raises(OSError, match="no token"):
        await Script([OSError("no token")]).feed().run()


async def eventually(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110 (nothing sets an event)
            await asyncio.sleep(0)


async def test_a_restart_ends_a_silent_watch_and_is_not_reported_as_a_failure() -> None:
    script = Script([bookmark(2), None], [None])
    feed = script.feed()
    feed.restart()  # nothing runs yet
    running = asyncio.create_task(feed.run())
    await eventually(lambda: script.events)
    feed.restart()
    feed.restart()
    await eventually(lambda: len(script.calls) == 3)
    assert script.calls == ["list", "watch e.1", "watch e.2"]
    assert script.failures == []
    running.cancel()
    await asyncio.wait({running})
    assert running.cancelled()


async def test_pauses_grow_with_failures_in_a_row_and_an_event_ends_the_row(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []

    async def sleep(pause: float) -> None:
        pauses.append(pause)

    cut = Unreachable("cut")
    script = Script([cut], [cut], [cut], [bookmark(2), cut], [cut], [])
    monkeypatch.setattr(asyncio, "sleep", sleep)
    await script.run(backoff=Backoff(1.0, 3.0, jitter=0.0))
    assert pauses == [1.0, 2.0, 3.0, 1.0, 2.0, 1.0]


async def test_a_page_or_an_event_is_not_held_while_the_next_one_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of 2 MiB takes 60 MiB as objects, and an operator has many links."""
    read: list[weakref.ref[JobList | WatchEvent]] = []

    def reading() -> None:
        assert [kept() for kept in read] == [None] * len(read)

    async def ask(*_: object) -> JobList:
        reading()
        page = JobList(items=[], revision="e.1", next="more" if len(read) < 3 else None)
        read.append(weakref.ref(page))
        return page

    client = RedboxClient("https://127.0.0.1:1")
    monkeypatch.setattr(client, "_read_list", ask)
    assert await list_active_jobs(client, lambda _: None) == "e.1"
    assert len(read) == 4

    async def watch(_: str) -> AsyncIterator[WatchEvent]:
        for number in range(3):
            reading()
            event = bookmark(number)
            read.append(weakref.ref(event))
            yield event
            del event
        raise STOP

    script = Script()
    script.watch = watch  # type: ignore[method-assign, assignment]
    await script.run()
    assert script.events == ["bookmark"] * 3
