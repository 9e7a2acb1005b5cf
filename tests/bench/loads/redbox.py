"""On a login host: calls red-box over TLS, as its callers do; prints what it measured as JSON.

python3 - LOAD '{"token": TOKEN, "ca": PEM, …}'
"""

import json
import os
import ssl
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPResponse, HTTPSConnection
from typing import Any
from uuid import uuid4

PATIENCE_S = 300
BLOCK = 1 << 20
FINAL = {"Succeeded", "Failed", "Cancelled", "Lost"}
OK = range(200, 300)
own = threading.local()


class Caller:
    """One caller; each thread has a connection of its own."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.context = ssl.create_default_context(cadata=asked["ca"])
        self.headers = {"Authorization": "Bearer " + asked["token"]}

    def connection(self) -> HTTPSConnection:
        if not hasattr(own, "connection"):
            own.connection = HTTPSConnection("127.0.0.1", 8443, context=self.context, timeout=PATIENCE_S)
        connection: HTTPSConnection = own.connection
        return connection

    def open(self, method: str, path: str, body: Any = None) -> HTTPResponse:
        connection = self.connection()
        headers = {**self.headers, **({"Content-Type": "application/json"} if body else {})}
        connection.request(method, path, body=json.dumps(body) if body else None, headers=headers)
        answer = connection.getresponse()
        if answer.status not in OK:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.read(1000)!r}")
        return answer

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        return json.loads(self.open(method, path, body).read() or "null")


def submit(caller: Caller, asked: dict[str, Any]) -> Any:
    """Held jobs, so many at a time; the seconds of each call, and of all."""
    body = {"batch": "#!/bin/sh\ntrue\n", "hold": True, "output": "/dev/null", "name": "bench"}
    body["resources"] = {"time": "1"}

    def call(_: int) -> float:
        started = time.perf_counter()
        caller.ask("PUT", f"/v1/jobs/{uuid4()}", body)
        return time.perf_counter() - started

    started = time.perf_counter()
    with ThreadPoolExecutor(asked["parallel"]) as pool:
        calls = list(pool.map(call, range(asked["count"])))
    return {"calls": calls, "whole": time.perf_counter() - started}


def changes(caller: Caller, asked: dict[str, Any]) -> Any:
    """From a job's own first and last moment to the event that tells of it, in seconds."""
    seen: dict[str, float] = {}
    ready, jobs = threading.Event(), asked["count"]

    def watch() -> None:
        since = caller.ask("GET", "/v1/jobs?limit=1")["revision"]
        answer = caller.open("GET", f"/v1/jobs?watch=true&since={since}")
        ready.set()
        ended = 0
        while ended < jobs:
            event, now = json.loads(answer.readline()), time.time()
            job = event.get("job")
            if job and seen.setdefault(f"{job['key']} {job['phase']}", now) == now:
                ended += job["phase"] in FINAL

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    ready.wait(PATIENCE_S)
    moments = f"{os.environ['HOME']}/bench-moments"
    os.makedirs(moments, exist_ok=True)  # noqa: PTH103
    keys = []
    for number in range(jobs):
        key = str(uuid4())
        stamp = f"date +%s.%N >>{moments}/{key}"
        script = f"#!/bin/sh\n{stamp}\nsleep {4 + number % 7 / 3:.2f}\n{stamp}\n"
        caller.ask("PUT", f"/v1/jobs/{key}", {"batch": script, "output": "/dev/null", "name": "bench"})
        keys.append(key)
        time.sleep(0.31)  # so that jobs change one by one
    watcher.join(PATIENCE_S)
    latencies = []
    for key in keys:
        with open(f"{moments}/{key}") as written:  # noqa: PTH123
            first, last = (float(line) for line in written)
        latencies += [seen[f"{key} Running"] - first, seen[f"{key} Succeeded"] - last]
    return latencies


def lines(caller: Caller, asked: dict[str, Any]) -> Any:
    """From a line's being written by a job to its being read, in seconds."""
    key = str(uuid4())
    script = f"#!/bin/sh\nfor i in $(seq {asked['count']}); do date +%s.%N; sleep 0.1; done\n"
    caller.ask("PUT", f"/v1/jobs/{key}", {"batch": script, "name": "bench"})
    answer = caller.open("GET", f"/v1/jobs/{key}/logs/stdout?follow=true")
    return [time.time() - float(line) for line in iter(answer.readline, b"")]


def lines_of_many(caller: Caller, asked: dict[str, Any]) -> Any:
    """The same for many jobs that run side by side, each with a reader; their first lines are left out."""
    script = f"#!/bin/bash\nfor i in $(seq {asked['count']}); do echo $EPOCHREALTIME; sleep 1; done\n"
    body = {"batch": script, "name": "bench", "partition": "long", "resources": {"memPerNode": "10M"}}
    keys = [str(uuid4()) for _ in range(asked["jobs"])]
    for key in keys:
        caller.ask("PUT", f"/v1/jobs/{key}", body)

    def follow(key: str) -> list[float]:
        answer = caller.open("GET", f"/v1/jobs/{key}/logs/stdout?follow=true")
        return [time.time() - float(line) for line in iter(answer.readline, b"")]

    with ThreadPoolExecutor(len(keys)) as pool:
        return [late for seen in pool.map(follow, keys) for late in seen[len(seen) // 2 :]]


def read(caller: Caller, asked: dict[str, Any]) -> Any:
    """The paths given, all at once: how many bytes came, and the seconds from first to last."""
    start = threading.Barrier(len(asked["paths"]))

    def drain(path: str) -> tuple[int, float, float]:
        caller.ask("GET", "/v1/jobs?limit=1")  # connected, before all begin
        start.wait(PATIENCE_S)
        begun, count, block = time.perf_counter(), 0, bytearray(BLOCK)
        answer = caller.open("GET", path)
        while got := answer.readinto(block):
            count += got
        return count, begun, time.perf_counter()

    with ThreadPoolExecutor(len(asked["paths"])) as pool:
        done = list(pool.map(drain, asked["paths"]))
    whole = max(end for _, _, end in done) - min(begun for _, begun, _ in done)
    return {"bytes": sum(count for count, _, _ in done), "whole": whole}


if __name__ == "__main__":
    settings = json.loads(sys.argv[2])
    loads = {"submit": submit, "changes": changes, "lines": lines}
    loads |= {"lines_of_many": lines_of_many, "read": read}
    print(json.dumps(loads[sys.argv[1]](Caller(settings), settings)))
