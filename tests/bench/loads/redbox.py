"""On a login host: calls red-box over TLS, as its callers do; prints what it measured as JSON.

python3 redbox.py LOAD, with {"token": TOKEN, "ca": PEM, …} as stdin
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
    """From a job's own first and last moment to the event that tells of it, in seconds.

    A watch shows each job's newest state, and may skip one that has passed: so a job runs until the watch has
    shown it Running, at least some seconds.
    """
    moments = f"{os.environ['HOME']}/bench-moments"
    os.makedirs(moments, exist_ok=True)  # noqa: PTH103
    keys = [str(uuid4()) for _ in range(asked["count"])]
    since = caller.ask("GET", "/v1/jobs?limit=1")["revision"]
    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(shown, caller, since, keys, moments)
        for number, key in enumerate(keys):
            caller.ask("PUT", f"/v1/jobs/{key}", job_until_seen(f"{moments}/{key}", 4 + number % 7 / 3))
            time.sleep(0.31)  # so that jobs change one by one
        seen = watching.result(PATIENCE_S)
    latencies = []
    for key in keys:
        with open(f"{moments}/{key}") as written:  # noqa: PTH123
            first, last = (float(line) for line in written)
        latencies += [seen[key]["Running"] - first, seen[key]["Succeeded"] - last]
    return latencies


def job_until_seen(moments: str, seconds: float) -> dict[str, str]:
    """It waits for the file `.seen` for a minute at most, and writes when it began and when it ended."""
    stamp = f"date +%s.%N >>{moments}"
    wait = f"for i in $(seq 300); do [ -e {moments}.seen ] && break; sleep 0.2; done"
    script = f"#!/bin/sh\n{stamp}\nsleep {seconds:.2f}\n{wait}\n{stamp}\n"
    return {"batch": script, "output": "/dev/null", "name": "bench"}


def shown(caller: Caller, since: str, keys: list[str], moments: str) -> dict[str, dict[str, float]]:
    """When the watch first showed each phase of each of these jobs, until all have ended."""
    answer = caller.open("GET", f"/v1/jobs?watch=true&since={since}")
    seen: dict[str, dict[str, float]] = {key: {} for key in keys}
    while not all(FINAL & phases.keys() for phases in seen.values()):
        event, now = json.loads(answer.readline()), time.time()
        if event["type"] == "error":
            raise RuntimeError(f"the watch ended: {event}")
        job = event.get("job")
        if job and job["key"] in seen:
            seen[job["key"]].setdefault(job["phase"], now)
            if job["phase"] == "Running":
                open(f"{moments}/{job['key']}.seen", "w").close()  # noqa: PTH123
    others = [phases for phases in seen.values() if not {"Running", "Succeeded"} <= phases.keys()]
    if others:
        raise RuntimeError(f"{len(others)} of {len(keys)} jobs were shown only as {others[0]}")
    return seen


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
    settings = json.load(sys.stdin)
    loads = {"submit": submit, "changes": changes, "lines": lines}
    loads |= {"lines_of_many": lines_of_many, "read": read}
    print(json.dumps(loads[sys.argv[1]](Caller(settings), settings)))
