"""The event loop's selector, without the files whose reader or writer waits for its turn.

A file is reported as long as it is ready. So a caller with thousands of readable connections, who waits for
the own turn, would slow down each look at the files for all others. A file is not looked at from the second
report before its reader has run until it has: most readers run before, and cost no system call.
"""

from __future__ import annotations

import contextlib
import selectors
from asyncio.events import Handle
from selectors import EVENT_READ, EVENT_WRITE, SelectorKey
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import FileDescriptorLike

EVENTS = (EVENT_READ, EVENT_WRITE)  # asyncio's data of a file: its reader's handle and its writer's


class FileWatch(selectors.SelectSelector):
    """Has all registrations as its base has, which makes no system call for them; `_watched` has the rest."""

    def __init__(self) -> None:
        self._watched = selectors.DefaultSelector()
        self._waiting: set[Handle] = set()
        self._unwatched: dict[Handle, int] = {}
        super().__init__()

    def register(self, fileobj: FileDescriptorLike, events: int, data: object = None) -> SelectorKey:
        key = super().register(fileobj, events, data)
        try:
            self._watch(key)
        except BaseException:
            super().unregister(fileobj)
            raise
        return key

    def unregister(self, fileobj: FileDescriptorLike) -> SelectorKey:
        key = super().unregister(fileobj)
        if key.fd in self._watched.get_map():
            self._watched.unregister(key.fd)
        return key

    def modify(self, fileobj: FileDescriptorLike, events: int, data: object = None) -> SelectorKey:
        key = super().modify(fileobj, events, data)
        self._watch(key)
        return key

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """The files that are ready, but for those whose handles wait already: these are not looked at."""
        ready = self._watched.select(timeout)
        if self._waiting:
            for key, events in ready:
                self._leave_out_waiting(key, events)
        return ready

    def close(self) -> None:
        self._watched.close()
        super().close()

    def waits(self, handle: Handle) -> bool:
        """It is reported, and runs later; False if it waits already."""
        if handle in self._waiting:
            return False
        self._waiting.add(handle)
        return True

    def has_run(self, handle: Handle) -> None:
        """Look at its file again, if it is still its reader or writer; idempotent."""
        self._waiting.discard(handle)
        fd = self._unwatched.pop(handle, None)
        key = None if fd is None else self.get_map().get(fd)
        if key is not None:
            self._watch_again(key)

    def _leave_out_waiting(self, key: SelectorKey, events: int) -> None:
        waiting = [
            handle
            for event, handle in zip(EVENTS, key.data, strict=True)
            if events & event and handle in self._waiting
        ]
        if waiting:
            self._unwatched.update(dict.fromkeys(waiting, key.fd))
            self._watch_again(key)

    def _watch_again(self, key: SelectorKey) -> None:
        """Not a file that was closed before it was removed: the kernel has forgotten it, too."""
        with contextlib.suppress(OSError):
            self._watch(key)

    def _watch(self, key: SelectorKey) -> None:
        """Look at it for those of its handles that do not wait."""
        wanted = 0
        for event, handle in zip(EVENTS, key.data, strict=True):
            if key.events & event and handle not in self._unwatched:
                wanted |= event
        is_watched = key.fd in self._watched.get_map()
        if wanted and is_watched:
            self._watched.modify(key.fd, wanted, key.data)
        elif wanted:
            self._watched.register(key.fd, wanted, key.data)
        elif is_watched:
            self._watched.unregister(key.fd)
