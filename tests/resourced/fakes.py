"""A red-box that has pieces of logs, and a reader who asks for them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from redbox_api.client import LogAnswer, LogQuery, RedboxClient
from redbox_api.errors import NotAllowed, Unreachable
from redbox_api.models import ArrayCounts, ArrayTask, Job, OwnerRef, Phase, Problem
from redbox_resourced.kubelet.logs.pod_log import PodLog
from redbox_resourced.kubelet.logs.query import LogRequest
from redbox_resourced.kubelet.logs.streams import JobStreams

JOB = Job(
    key="k",
    attempt=1,
    owner=OwnerRef(cluster="prod", namespace="alice", account="default"),
    user="alice",
    phase=Phase.RUNNING,
    state="RUNNING",
)
ENDED = JOB.model_copy(update={"phase": Phase.SUCCEEDED, "state": "COMPLETED", "exit_code": 0})
BROKEN = b"<broken>"
LOCKED = Problem(type="about:blank", title="HTTP 403", status=403, detail="it is locked")


class Files:
    """A red-box that has these pieces of each stream; `BROKEN` among them breaks an answer off.

    A task's stream is called as `stdout_3`. `late` is there only for followers, `refused` for no reader.
    """

    def __init__(self, **streams: Sequence[bytes]) -> None:
        self.later: list[Job] = []
        self.looks = 0
        self.asked: list[str] = []
        self.late: Mapping[str, Sequence[bytes]] = {}
        self.refused: set[str] = set()
        self._streams: dict[str, list[bytes]] = {name: list(pieces) for name, pieces in streams.items()}

    async def get_job(self, *_: Any, **__: Any) -> Job:
        self.looks += 1
        if "get_job" in self.refused:
            raise NotAllowed(LOCKED)
        return self.later.pop(0) if self.later else ENDED

    @asynccontextmanager
    async def read_log(self, _: str, query: LogQuery) -> AsyncGenerator[LogAnswer, None]:
        name = query.stream if query.task is None else f"{query.stream}_{query.task}"
        self.asked.append(name)
        if name in self.refused:
            raise NotAllowed(LOCKED)
        pieces = self._streams.setdefault(name, [])
        if query.follow:
            pieces += self.late.get(name, ())
            self.late = {other: late for other, late in self.late.items() if other != name}
        content = b"".join(piece for piece in pieces if piece != BROKEN)
        start = query.offset
        if query.tail_lines is not None:
            lines = content.splitlines(keepends=True)
            kept = lines[-query.tail_lines :] if query.tail_lines else []
            start = len(content) - len(b"".join(kept))
        yield LogAnswer("g", start, self._from(pieces, start), start >= len(content))

    async def _from(self, pieces: list[bytes], start: int) -> AsyncIterator[bytes]:
        position = 0
        for piece in list(pieces):
            if piece == BROKEN:
                pieces.remove(piece)
                raise Unreachable("the line broke")
            wanted = piece[max(0, start - position) :]
            position += len(piece)
            if wanted:
                yield wanted


def array(phases: str) -> Job:
    """S: the task has succeeded, F: it failed, R: it runs, P: it waits."""
    words = {"S": Phase.SUCCEEDED, "F": Phase.FAILED, "R": Phase.RUNNING, "P": Phase.PENDING}
    tasks = [
        ArrayTask(
            index=index,
            job_id=f"7_{index}",
            phase=words[phase],
            state=words[phase].upper(),
            exit_code=2 if phase == "F" else 0,
        )
        for index, phase in enumerate(phases)
    ]
    over = Phase.RUNNING if set(phases) & set("RP") else Phase.SUCCEEDED
    counts = ArrayCounts(total=len(phases))
    return JOB.model_copy(update={"phase": over, "array": counts, "tasks": tasks})


async def read(files: Files, job: Job = JOB, **asked: Any) -> bytes:
    out: list[bytes] = []

    async def write(data: bytes) -> None:
        out.append(data)

    log = PodLog(JobStreams(cast("RedboxClient", files), "k", 1), job)
    await log.copy(LogRequest(**asked), write)
    return b"".join(out)
