"""slurmrestd of the Slurm in memory, over HTTP, which tells the truth until a test says otherwise."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.hosting.controllers.fake_slurm import FakeSlurm
from tests.hosting.slurm.scripted_server import response

Lie = Callable[[str, str, bytes], bytes | None]
"""From method, path and the true answer to the one that is given; None: none at all."""


@dataclass
class SlurmrestdInMemory:
    """`answer` is for a ScriptedServer."""

    slurm: FakeSlurm
    lie: Lie = lambda _method, _path, truth: truth
    time: int = 1_000
    reads: list[str] = field(default_factory=list)
    last: dict[str, bytes] = field(default_factory=dict)
    """The newest true answer of each kind of list."""

    def answer(self, method: str, path: str) -> bytes | None:
        what, _, name = path.removeprefix("/slurm/v0.0.42/").rstrip("/").partition("/")
        truth = self._write(method, name) if name else self._list(what)
        return self.lie(method, what, truth)

    def _list(self, what: str) -> bytes:
        self.time += 1
        rows = {"nodes": self._nodes, "jobs": self._jobs}.get(what, list)()
        made = response({what: rows, "last_update": {"set": True, "infinite": False, "number": self.time}})
        self.reads.append(what)
        self.last[what] = made
        return made

    def _nodes(self) -> list[Any]:
        return [json.loads(self.slurm.row(name).model_dump_json()) for name in self.slurm.states]

    def _jobs(self) -> list[Any]:
        rows = [json.loads(job.model_dump_json()) for job in self.slurm.running.values()]
        return [{**row, "nodes": ",".join(row["nodes"])} for row in rows]

    def _write(self, method: str, name: str) -> bytes:
        """DRAIN is the only one that these tests need."""
        assert method == "POST"
        self.slurm.writes.append(("post", name))
        if name in self.slurm.states:
            self.slurm.states[name].add("DRAIN")
            self.slurm.reasons[name] = "red-box: x"
        return response({})
