"""What the operator reads in slurmctld's pod: which files are projected there, and which slurmctld runs.

    GET /status                 {"files": {"slurm.conf": "<sha256>"}, "daemon": {...}, "pokes": 3, "nodes": 7}
    If-None-Match: "<ETag>"     with Prefer: wait=30: answers when the status changes, or 304 after 30 s

slurmctld runs `redbox-slurmpod poke` as ResumeProgram and SuspendProgram: the count changes, so that the
operator asks slurmrestd now and not at its next poll. So does the time at which slurmctld saved the state of
its nodes, as it does when somebody drains one. One request a connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from redbox_slurmpod.projected_files import digests, version_folder
from redbox_slurmpod.supervision.supervisor import DaemonStatus

log = logging.getLogger(__name__)
NODE_STATE = Path("/var/spool/slurmctld/node_state")
_REQUEST_S = 10
_LONGEST_WAIT_S = 60
# The kubelet replaces projected files, and nothing reports it.
_LOOK_S = 0.2
_MAX_HEAD = 8192


class StatusEndpoint:
    """`handle` is for `TlsServer`."""

    def __init__(
        self, folder: Path, daemon: Callable[[], DaemonStatus], node_state: Path = NODE_STATE
    ) -> None:
        self._folder = folder
        self._node_state = node_state
        self._saved = 0
        self._daemon = daemon
        self._pokes = 0
        self._version: Path | None = None
        self._digests: Mapping[str, str] = {}

    def poked(self) -> None:
        self._pokes += 1

    def status(self) -> Mapping[str, Any]:
        return {
            "files": self._files(),
            "daemon": asdict(self._daemon()),
            "pokes": self._pokes,
            "nodes": self._nodes_saved(),
        }

    def _nodes_saved(self) -> int:
        """There is no file for a moment whenever slurmctld saves."""
        with contextlib.suppress(OSError):
            self._saved = self._node_state.stat().st_mtime_ns
        return self._saved

    def _files(self) -> Mapping[str, str]:
        """Read again when another version is projected; none while they cannot be read."""
        version = version_folder(self._folder)
        if version != self._version or version == self._folder:
            try:
                self._digests, self._version = digests(self._folder), version
            except OSError as error:
                log.warning("the projected files cannot be read: %s", error)
                self._digests, self._version = {}, None
        return self._digests

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_S):
                head = await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
            return
        if len(head) > _MAX_HEAD or not (request := parse_request(head)):
            writer.write(answer("400 Bad Request"))
        elif request["method"] != "GET" or request["path"] != "/status":
            writer.write(answer("404 Not Found"))
        else:
            writer.write(await self._answer(request, reader))
        async with asyncio.timeout(_REQUEST_S):
            await writer.drain()

    async def _answer(self, request: Mapping[str, str], reader: asyncio.StreamReader) -> bytes:
        last, wait = request.get("if-none-match", ""), wait_of(request.get("prefer", ""))
        deadline = asyncio.get_running_loop().time() + wait
        while True:
            body = json.dumps(self.status(), sort_keys=True).encode()
            tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            if tag != last:
                return answer("200 OK", body, tag)
            if reader.at_eof() or asyncio.get_running_loop().time() >= deadline:
                return answer("304 Not Modified", tag=tag)
            await asyncio.sleep(_LOOK_S)


def parse_request(head: bytes) -> Mapping[str, str] | None:
    """Method, path and the headers by their names in small letters; None if it is no HTTP/1.1."""
    first, *lines = head.decode("latin-1").split("\r\n")
    if not (line := re.fullmatch(r"([A-Z]+) (/\S*) HTTP/1\.1", first)):
        return None
    headers = (header.partition(":") for header in lines if header)
    return {
        **{name.strip().lower(): value.strip() for name, _, value in headers},
        "method": line[1],
        "path": line[2],
    }


def wait_of(preference: str) -> float:
    """Seconds, from a header `Prefer: wait=30` (RFC 7240)."""
    found = re.search(r"\bwait=(\d{1,4})\b", preference)
    return min(int(found[1]), _LONGEST_WAIT_S) if found else 0


def answer(status: str, body: bytes = b"", tag: str = "") -> bytes:
    headers = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close"]
    headers += ["Content-Type: application/json"] if body else []
    headers += [f"ETag: {tag}"] if tag else []
    return "\r\n".join([*headers, "", ""]).encode() + body


def receive_pokes(path: Path, poked: Callable[[], None]) -> socket.socket:
    """Call `poked` for each `poke(path)` while the loop runs."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    receiver.bind(str(path))
    path.chmod(0o600)

    def read() -> None:
        receiver.recv(1)
        poked()

    asyncio.get_running_loop().add_reader(receiver, read)
    return receiver
