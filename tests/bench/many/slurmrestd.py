"""A slurmrestd whose nodes and jobs are as large as real ones, before it the TLS of `<controller>-control`.

It has what the operator asks for: nodes, jobs, reservations and licenses, writes to a node, the reconfigure.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VERSION = "v0.0.45"
PATH = re.compile(rf"/slurm/{VERSION}/([a-z]+)/?([^/]*)/?")
META = {"slurm": {"release": "26.05.2", "version": {"major": "26", "minor": "05", "micro": "2"}}}
FIELDS_OF_A_NODE, FIELDS_OF_A_JOB = 45, 110
"""As v0.0.45 has them beside those that are read: numbers of three fields, texts and lists."""


def number(value: int) -> dict[str, object]:
    return {"set": True, "infinite": False, "number": value}


def _padding(count: int) -> dict[str, object]:
    kinds: tuple[object, ...] = (number(0), "", [], False, 0)
    return {f"field_{each}": kinds[each % len(kinds)] for each in range(count)}


NODE, JOB = _padding(FIELDS_OF_A_NODE), _padding(FIELDS_OF_A_JOB)


@dataclass
class SimulatedSlurm:
    """One cluster. `written` is called with the name of each node that is written to."""

    digest: Callable[[], str]
    """Of the configuration that it runs."""
    written: Callable[[str], None] = lambda _: None
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    """Requests by method and what is asked for."""
    _rows: dict[str, bytes] = field(default_factory=dict)

    def register(self, name: str, uid: str, address: str) -> None:
        known = {"name": name, "instance_id": uid, "address": address, "reason": "", "version": "26.05.2"}
        boot = number(int(time.time()))
        self.nodes[name] = {**NODE, **known, "state": ["IDLE", "DYNAMIC_NORM"], "boot_time": boot}
        self._rows.pop("nodes", None)

    def unregister(self, name: str) -> None:
        self.nodes.pop(name, None)
        self._rows.pop("nodes", None)

    def run_a_job_on(self, name: str) -> None:
        began = int(time.time())
        own = {"job_id": 1000 + len(self.jobs), "job_state": ["RUNNING"], "nodes": name, "user_name": "alice"}
        times = {"start_time": number(began), "end_time": number(began + 86_400)}
        self.jobs.append({**JOB, **own, **times, "name": "bench", "partition": "all"})
        self.nodes[name] = {**self.nodes[name], "state": ["ALLOCATED", "DYNAMIC_NORM"]}
        self._rows.clear()

    # -- as slurmrestd

    def answer(self, method: str, path: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
        match = PATH.fullmatch(path)
        if match is None:
            return 404, b""
        what, name = match.groups()
        self.counts[f"{method} {what}"] += 1
        if what in {"nodes", "jobs", "reservations"}:
            return 200, self._list(what)
        if what == "licenses":
            return 200, _document(licenses=[{"LicenseName": f"redbox-config-{self.digest()}", "Total": 1}])
        if what == "node":
            return self._node(method, name, body)
        return 200, _document()

    def _list(self, what: str) -> bytes:
        if what not in self._rows:
            rows = {"nodes": list(self.nodes.values()), "jobs": self.jobs}.get(what, [])
            self._rows[what] = json.dumps(rows).encode()
        head = json.dumps({"meta": META, "errors": [], "last_update": number(int(time.time()))}).encode()
        return head[:-1] + f', "{what}": '.encode() + self._rows[what] + b"}"

    def _node(self, method: str, name: str, body: Mapping[str, Any]) -> tuple[int, bytes]:
        node = self.nodes.get(name)
        if node is None:
            return 404, _document(errors=[{"error_number": 2009, "error": "no such node"}])
        if method == "DELETE":
            self.unregister(name)
        elif method == "POST":
            state = set(node["state"])
            state = state - {"DRAIN"} if "RESUME" in body["state"] else state | set(body["state"])
            self.nodes[name] = {**node, "state": sorted(state), "reason": body.get("reason", "")}
            self._rows.pop("nodes", None)
            self.written(name)
        return 200, _document(nodes=[self.nodes[name]] if method == "GET" else [])

    async def serve(self, address: str, port: int, files: Mapping[str, bytes]) -> asyncio.Server:
        """With the certificate of the cluster's Secret."""
        return await asyncio.start_server(self._handle, address, port, ssl=_server_context(files))

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {
                key.lower(): value.strip() for key, _, value in (line.partition(":") for line in lines)
            }
            body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))) or b"{}")
            method, path, _ = lines[0].split(" ")
            status, made = self.answer(method, path, body)
            writer.write(f"HTTP/1.1 {status} X\r\ncontent-length: {len(made)}\r\n\r\n".encode() + made)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


def _document(**parts: object) -> bytes:
    return json.dumps({"meta": META, "errors": [], "warnings": [], **parts}).encode()


def _server_context(files: Mapping[str, bytes]) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cadata=files["ca.crt"].decode())
    context.verify_mode = ssl.CERT_REQUIRED
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder, "pair.pem")
        pair.write_bytes(files["tls.key"] + files["tls.crt"])
        context.load_cert_chain(pair)
    return context
