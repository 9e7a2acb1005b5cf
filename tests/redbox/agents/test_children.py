"""Commands of the agent, and what the kernel may do between two of its looks."""

from __future__ import annotations

import os
import selectors
from typing import Any

import pytest

from redbox.agents.program.children import Child


def test_what_a_command_writes_right_before_its_end_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    class Preempted(selectors.SelectSelector):
        """Finds nothing, and goes on only when the command has written and ended."""

        found_nothing = False

        def select(self, timeout: float | None = None) -> list[Any]:
            if not self.found_nothing:
                self.found_nothing = True
                child._process.wait()
                return []
            return super().select(timeout)

    monkeypatch.setattr(selectors, "DefaultSelector", Preempted)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        child = Child([b"/bin/echo", b"7"], {}, b"/", [nothing])
        assert child.finish(10, 1000) == (0, b"7\n", b"")
