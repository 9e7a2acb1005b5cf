"""Commands of the agent, and what the kernel may do between two of its looks."""

from __future__ import annotations

import os
import selectors
from typing import Any

import pytest

from redbox.agents.program.commands import ChildCommand


def test_what_a_command_writes_right_before_its_end_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    class Preempted(selectors.PollSelector):
        """Finds nothing, and goes on only when the command has written and ended."""

        found_nothing = False

        def select(self, timeout: float | None = None) -> list[Any]:
            if not self.found_nothing:
                self.found_nothing = True
                words.write(b"7\n")
                words.close()
                child._process.wait()
                return []
            return super().select(timeout)

    monkeypatch.setattr(selectors, "PollSelector", Preempted)
    reads, writes = os.pipe()
    with open(reads, "rb") as to_child, open(writes, "wb", buffering=0) as words:  # noqa: PTH123
        child = ChildCommand([b"/bin/cat"], {}, b"/", [to_child])
        assert child.finish(10, 1000) == (0, b"7\n", b"")
