"""What is fuzzed, and what must hold of it after each example: nothing is left, and nothing was unhandled.

A target is a name, a strategy and a stand: the real server (or reader), started once, that plays each
example. An example is the pieces of bytes that a hostile peer sends, in their order, so that each can be
mutated, kept in the corpus and sent again. What a target itself promises (no 5xx, the protocol's own error)
is asserted by its `play`.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

import hypothesis
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.fuzz.mutations import Pieces
from tests.resourced.kubelet.sessions.harness import CLIENTS_FAULT

CORPUS = Path(__file__).parent / "corpus"
EXAMPLE_S = 60.0
SETTLES_S = 30.0
STARTS_S = 0.5
MEMORY_GROWTH = 32 * 1024 * 1024
KEPT_EXAMPLES = 50
ERROR_LEVELS = {"error", "critical"}
Play = Callable[[Pieces], Awaitable[None]]


@dataclass(frozen=True)
class Target:
    """One reader of what a hostile peer sends."""

    name: str
    examples: st.SearchStrategy[Pieces]
    stand: Callable[[], AbstractAsyncContextManager[Play]]
    valid: Pieces
    """Of a peer that means well: what it has started (an agent, a relay) may stay."""
    in_ci: int = 50
    """Examples of a run of the tests."""

    @property
    def corpus(self) -> list[Path]:
        """Examples that failed once."""
        return sorted((CORPUS / self.name).glob("*.json"))


class LeftBehind(AssertionError):
    """An example left tasks, or an error that nothing handled."""


class Stage:
    """A target that stands, in an event loop of its own, and what it left behind so far."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.played: deque[Pieces] = deque(maxlen=KEPT_EXAMPLES)
        self.count = self.sent = 0
        self._faults: list[str] = []
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda _, context: self._faults.append(_described(context)))
        self._leave = asyncio.Event()
        self._stack = ExitStack()
        self._most_tasks: Counter[str] = Counter()

    def __enter__(self) -> Self:
        self._logs = self._stack.enter_context(capture_logs())
        self._stack.enter_context(_errors_collected(self._faults))
        stands: asyncio.Future[Play] = self._loop.create_future()
        self._host = self._loop.create_task(self._hold(stands))
        both: set[asyncio.Future[Any]] = {self._host, stands}
        self._loop.run_until_complete(asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED))
        if self._host.done():
            self._host.result()
        self._play = stands.result()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._leave.set()
            self._loop.run_until_complete(self._host)
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()
            self._stack.close()

    async def _hold(self, stands: asyncio.Future[Play]) -> None:
        """One task enters and leaves the stand: its task groups want that."""
        async with self.target.stand() as play:
            stands.set_result(play)
            await self._leave.wait()

    def warm_up(self, pieces: Pieces) -> None:
        """The tasks that are there after it may stay."""
        self._loop.run_until_complete(asyncio.wait_for(self._play(pieces), EXAMPLE_S))
        self._loop.run_until_complete(self._count_tasks())

    async def _count_tasks(self) -> None:
        """Those that come and go by themselves, as the polls of red-box, are counted at their most."""
        await asyncio.sleep(STARTS_S)
        for _ in range(100):
            self._most_tasks |= self._tasks()
            await asyncio.sleep(STARTS_S / 100)

    def play(self, pieces: Pieces) -> None:
        """Raises what the play asserts, and LeftBehind."""
        self.played.append(pieces)
        self.count += 1
        self._loop.run_until_complete(asyncio.wait_for(self._play(pieces), EXAMPLE_S))
        self._loop.run_until_complete(self._settled())
        self._faults += [str(entry) for entry in self._logs if entry["log_level"] in ERROR_LEVELS]
        self._logs.clear()
        faults, self._faults[:] = list(self._faults), []
        if faults:
            raise LeftBehind("\n".join(faults))

    async def _settled(self) -> None:
        until = self._loop.time() + SETTLES_S
        while left := self._tasks() - self._most_tasks:
            if self._loop.time() > until:
                raise LeftBehind(f"tasks are left: {dict(left)}")
            await asyncio.sleep(0.002)

    def _tasks(self) -> Counter[str]:
        tasks = asyncio.all_tasks(self._loop) - {asyncio.current_task(self._loop)}
        return Counter(getattr(task.get_coro(), "__qualname__", "?") for task in tasks)


@contextmanager
def standing(target: Target) -> Iterator[Stage]:
    with Stage(target) as stage:
        stage.warm_up(target.valid)
        yield stage


def explore(stage: Stage, examples: int, *, seed: int | None = None, within_s: float) -> None:
    """Play so many examples, fewer where the time is over; the same ones unless there is a seed.

    A failure is shrunk to the least that fails, whatever the time.
    """
    until = time.monotonic() + within_s
    has_failed = False

    @hypothesis.settings(
        max_examples=examples,
        derandomize=seed is None,
        database=None,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=list(hypothesis.HealthCheck),
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
    )
    @hypothesis.given(stage.target.examples)
    def play(pieces: Pieces) -> None:
        nonlocal has_failed
        if stage.count and time.monotonic() > until and not has_failed:
            return
        try:
            stage.play(pieces)
        except BaseException as error:
            if not has_failed:
                print(f"{stage.target.name}: {error!r:.500}: the least example is looked for", flush=True)
            has_failed = True
            write_failure(stage.target, pieces)
            raise

    (play if seed is None else hypothesis.seed(seed)(play))()


def flood(stage: Stage, frames: int, *, within_s: float) -> int:
    """Play again what was played until so many pieces were sent; return by how many bytes memory grew."""
    until = time.monotonic() + within_s
    examples = [pieces for pieces in stage.played if pieces] or [stage.target.valid]
    stage.sent, before = 0, resident_bytes()
    for turn in itertools.count():
        for pieces in examples:
            stage.play(pieces)
            stage.sent += len(pieces)
            if stage.sent >= frames or time.monotonic() > until:
                return resident_bytes() - before
        if turn == 0:  # caches are full
            before = resident_bytes()
    return 0


def resident_bytes() -> int:
    """Of this process, without garbage."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


# ---- the corpus
FAILURES = Path(__file__).parents[2] / "build/fuzz"
UNNAMED = "last.json"


def write_failure(target: Target, pieces: Pieces) -> None:
    """The last one is the least. It belongs into the corpus, with what fixes it."""
    folder = FAILURES / target.name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / UNNAMED).write_text(as_text(pieces))


def keep_failure(target: Target) -> Path | None:
    """Name the last failure, so that the next one does not replace it; None where no example failed."""
    path = FAILURES / target.name / UNNAMED
    if not path.exists():
        return None
    return path.rename(path.with_name(f"{sha256(path.read_bytes()).hexdigest()[:12]}.json"))


def as_text(pieces: Pieces) -> str:
    return json.dumps([piece.decode("latin-1") for piece in pieces], indent=1) + "\n"


def kept_example(path: Path) -> Pieces:
    return [piece.encode("latin-1") for piece in json.loads(path.read_text())]


# ---- what nothing handled
@contextmanager
def _errors_collected(faults: list[str]) -> Iterator[None]:
    """Of threads, and what libraries log as an error."""

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.exc_info and isinstance(record.exc_info[1], (*CLIENTS_FAULT, UnicodeDecodeError)):
                return  # uvicorn logs text that is none, and answers it with 1007
            faults.append(f"{record.name}: {record.getMessage()}: {record.exc_info}")

    def thread_failed(fault: threading.ExceptHookArgs) -> None:
        faults.append(f"a thread ended: {fault.exc_value!r}")

    collector, hook = Collector(logging.ERROR), threading.excepthook
    logging.getLogger().addHandler(collector)
    threading.excepthook = thread_failed
    try:
        yield
    finally:
        threading.excepthook = hook
        logging.getLogger().removeHandler(collector)


def _described(context: MutableMapping[str, Any]) -> str:
    return f"{context.get('message')}: {context.get('exception')!r}"
