"""A file whose reader waits for its turn is not looked at meanwhile, and is again afterwards.

With asyncio's own loop, whose private calls FairEventLoop and FileWatch extend.
"""

import asyncio
import itertools
import socket
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from redbox.core.turns import Share, ShareKind, work_for
from redbox.server.fair_loop import FairEventLoop

LOOKS = 50


class TurnsLater(FairEventLoop):
    """Callers have turns once the test lets them; each look at the files is counted."""

    has_turns = False

    def __init__(self) -> None:
        ticks = itertools.count(step=0.001)
        super().__init__(lambda: next(ticks))
        self.reports = Counter[int]()
        watched = self._files._watched
        select = watched.select

        def counted(timeout: float | None = None) -> Any:
            ready = select(timeout)
            self.reports.update(key.fd for key, _ in ready)
            return ready

        watched.select = counted  # type: ignore[method-assign]

    def _take_turns(self) -> None:
        if self.has_turns:
            super()._take_turns()
        else:
            asyncio.SelectorEventLoop.call_soon(self, self._take_turns, context=self._own)


def run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=TurnsLater) as runner:
        runner.run(work)


async def until(holds: Callable[[], bool]) -> None:
    while not holds():  # noqa: ASYNC110 (one step of the loop at a time)
        await asyncio.sleep(0)


class Pair:
    """alice's end of a connection, and another."""

    def __init__(self, loop: TurnsLater) -> None:
        self.alice = Share(ShareKind.CALLER, "alice")
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)  # noqa: FBT003
        self.theirs.setblocking(False)  # noqa: FBT003
        self.loop = loop
        self.calls: list[str] = []

    def add_reader(self, name: str = "read") -> None:
        with work_for(self.alice):
            self.loop.add_reader(self.ours, self.calls.append, name)

    def add_writer(self) -> None:
        with work_for(self.alice):
            self.loop.add_writer(self.ours, self.calls.append, "written")

    @property
    def reports(self) -> int:
        return self.loop.reports[self.ours.fileno()]

    async def looks(self) -> None:
        """So many looks at all files."""
        for _ in range(LOOKS):
            await asyncio.sleep(0)


@contextmanager
def waiting() -> Iterator[Pair]:
    """Until its turns go on, whatever is alice's waits."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, TurnsLater)
    pair = Pair(loop)
    number = pair.ours.fileno()
    with pair.ours, pair.theirs:
        yield pair
        loop.has_turns = True
        loop.remove_reader(number)
        loop.remove_writer(number)


def test_a_file_is_reported_twice_while_its_reader_waits_and_again_once_it_has_run() -> None:
    async def read() -> None:
        with waiting() as pair:
            pair.add_reader()
            pair.theirs.send(b"x")
            await pair.looks()
            assert pair.reports == 2
            assert pair.calls == []
            pair.loop.has_turns = True
            await until(lambda: len(pair.calls) >= 3)

    run(read())


def test_a_closed_connection_is_not_reported_without_end_either() -> None:
    async def hang_up() -> None:
        with waiting() as pair:
            pair.add_reader()
            pair.theirs.close()
            await pair.looks()
            assert pair.reports == 2
            pair.loop.has_turns = True
            await until(lambda: len(pair.calls) >= 1)

    run(hang_up())


def test_a_writer_is_called_though_the_reader_of_its_file_waits() -> None:
    async def write() -> None:
        with waiting() as pair:
            pair.add_reader()
            pair.theirs.send(b"x")
            await pair.looks()
            pair.loop.add_writer(pair.ours, pair.calls.append, "own")
            await until(lambda: "own" in pair.calls)
            assert "read" not in pair.calls
            pair.loop.remove_writer(pair.ours)
            await pair.looks()
            reports = pair.reports
            await pair.looks()
            assert pair.reports == reports
            pair.loop.has_turns = True
            await until(lambda: pair.calls.count("read") >= 2)

    run(write())


def test_reader_and_writer_of_a_file_wait_each_by_itself() -> None:
    async def both() -> None:
        with waiting() as pair:
            pair.add_reader()
            pair.add_writer()
            await pair.looks()
            assert pair.reports == 2
            pair.theirs.send(b"x")
            await pair.looks()
            assert pair.reports == 4
            pair.loop.has_turns = True
            await until(lambda: pair.calls.count("read") >= 2 and pair.calls.count("written") >= 2)

    run(both())


def test_a_reader_that_is_removed_while_it_waits_is_not_called() -> None:
    async def remove() -> None:
        with waiting() as pair:
            pair.add_reader()
            pair.theirs.send(b"x")
            await pair.looks()
            assert pair.loop.remove_reader(pair.ours)
            assert not pair.loop.remove_reader(pair.ours)
            pair.loop.has_turns = True
            await pair.looks()
            assert pair.calls == []

    run(remove())


def test_a_new_reader_does_not_wait_for_the_turn_of_the_one_that_it_replaces() -> None:
    async def replace() -> None:
        with waiting() as pair:
            pair.add_reader("old")
            pair.theirs.send(b"x")
            await pair.looks()
            pair.loop.add_reader(pair.ours, pair.calls.append, "new")
            await until(lambda: "new" in pair.calls)
            pair.loop.has_turns = True
            await pair.looks()
            assert set(pair.calls) == {"new"}

    run(replace())


def test_a_new_file_of_the_same_number_is_looked_at() -> None:
    async def reuse() -> None:
        with waiting() as pair:
            pair.add_reader("old")
            pair.theirs.send(b"x")
            await pair.looks()
            number = pair.ours.fileno()
            pair.loop.remove_reader(pair.ours)
            pair.ours.close()
            pair.theirs.close()
            pair.ours, pair.theirs = socket.socketpair()
            assert number in {pair.ours.fileno(), pair.theirs.fileno()}
            if pair.ours.fileno() != number:
                pair.ours, pair.theirs = pair.theirs, pair.ours
            with pair.ours, pair.theirs:
                pair.loop.add_reader(pair.ours, pair.calls.append, "new")
                pair.theirs.send(b"y")
                await until(lambda: "new" in pair.calls)
                pair.loop.has_turns = True
                await pair.looks()
                assert "old" not in pair.calls
                pair.loop.remove_reader(pair.ours)

    run(reuse())


def test_a_file_that_was_closed_without_being_removed_ends_nothing() -> None:
    async def close() -> None:
        with waiting() as pair:
            pair.add_reader()
            pair.theirs.send(b"x")
            await pair.looks()
            number = pair.ours.fileno()
            pair.ours.close()
            pair.loop.has_turns = True
            await until(lambda: bool(pair.calls))
            await pair.looks()
            assert pair.calls == ["read"]
            assert pair.loop.remove_reader(number)

    run(close())


def test_a_transport_reads_all_though_it_waits_again_and_again() -> None:
    async def transfer() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, TurnsLater)
        loop.has_turns = True
        alice, bob = Share(ShareKind.CALLER, "alice"), Share(ShareKind.CALLER, "bob")
        ours, theirs = socket.socketpair()
        with work_for(alice):
            reader, writer = await asyncio.open_connection(sock=ours)
            busy = [asyncio.create_task(asyncio.sleep(0)) for _ in range(1000)]
            reading = asyncio.create_task(reader.readexactly(1_000_000))
        with work_for(bob):
            _, sending = await asyncio.open_connection(sock=theirs)
        sending.write(b"x" * 1_000_000)
        assert await reading == b"x" * 1_000_000
        await asyncio.gather(*busy)
        sending.close()
        writer.close()

    run(transfer())
