"""What the user sees while the bed works: each step with the time it took.

On a terminal the running steps are shown live; elsewhere each is a plain line when it is done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status
from rich.text import Text


class Progress:
    """Steps may run side by side in threads. Calling it says something about the step at work."""

    def __init__(self, console: Console | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._clock = clock
        self._started = clock()
        self._running: dict[str, str] = {}
        self._lock = threading.Lock()
        self._live: Status | None = None

    @classmethod
    def silent(cls) -> Progress:
        return cls(Console(quiet=True))

    def __call__(self, text: str) -> None:
        """A detail that is worth a line of its own."""
        self._print(text)

    def elapsed(self) -> float:
        return self._clock() - self._started

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Shown while it runs, and with its duration once it is done; a step of no time is not shown."""
        began = self._clock()
        self._change(lambda running: running.update({name: name}))
        try:
            yield
        finally:
            self._change(lambda running: running.pop(name))
        took = self._clock() - began
        if took >= _WORTH_A_LINE:
            self._print(f"{name} ({took:.1f} s)")

    def stop(self) -> None:
        """Give the terminal back as it was, at an abrupt end."""
        if self._live is not None:
            self._live.stop()

    def _print(self, text: str) -> None:
        self._console.print(
            Text(f"{self.elapsed():6.1f} s  ", style="dim").append(text, style="not dim"), soft_wrap=True
        )

    def _change(self, change: Callable[[dict[str, str]], object]) -> None:
        with self._lock:
            change(self._running)
            if not self._console.is_terminal:
                return
            if self._live is None:
                self._live = self._console.status("")
                self._live.start()
            self._live.update(", ".join(self._running) + " …")
            if not self._running:
                self._live.stop()
                self._live = None


_WORTH_A_LINE = 0.2
