"""Starts a program on a host of the bed and measures what it writes, or what it takes to start it.

Runs on that host, with its Python and nothing else: `python3 - MODE JSON`.
"""

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PATIENCE_S = 120
CATCHES_UP_IN_S = 1.5
BLOCK = 1 << 20


def start(asked: dict[str, Any]) -> Any:
    """Milliseconds from the program's being started to its first connection."""
    took = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE_S)
        port = str(listener.getsockname()[1])
        command, environment = json.loads(json.dumps((asked["command"], asked["env"])).replace("PORT", port))
        for _ in range(asked["count"]):
            begun = time.perf_counter()
            with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL) as program:
                connection, _ = listener.accept()
                took.append((time.perf_counter() - begun) * 1000)
                connection.close()
                program.kill()
    return took


def lines(asked: dict[str, Any]) -> Any:
    """Milliseconds from a line's being written, by the time that is in it, to its being read here.

    Lines that were there before the reader had caught up do not count.
    """
    seen: list[float] = []
    with reading(asked) as program:
        assert program.stdout
        begun = time.time()
        while len(seen) < asked["count"]:
            written = float(program.stdout.readline())
            if written > begun + CATCHES_UP_IN_S:
                seen.append((time.time() - written) * 1000)
        program.kill()
    return seen


def drain(asked: dict[str, Any]) -> Any:
    """Megabytes a second from the first byte to the last one."""
    with reading(asked) as program:
        assert program.stdout
        left = asked["bytes"] - len(program.stdout.read(1))
        begun = time.perf_counter()
        while left > 0:
            got = len(program.stdout.read1(BLOCK))  # type: ignore[attr-defined]
            if not got:
                raise RuntimeError(f"it ended {left} bytes too early")
            left -= got
        took = time.perf_counter() - begun
        program.kill()
    return asked["bytes"] / 1e6 / took


def memory(asked: dict[str, Any]) -> Any:
    """Of a program that follows a log, in MiB: resident, and what of it is its own alone."""
    with reading(asked) as program:
        assert program.stdout
        program.stdout.readline()
        time.sleep(1)
        status = Path(f"/proc/{program.pid}/status").read_text().splitlines()
        sizes = {
            name: int(rest.split()[0]) / 1024
            for name, _, rest in (line.partition(":") for line in status)
            if name.startswith(("VmRSS", "RssAnon"))
        }
        program.kill()
    return sizes


def reading(asked: dict[str, Any]) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(asked["command"], env=asked["env"], stdout=subprocess.PIPE)


if __name__ == "__main__":
    modes = {"start": start, "lines": lines, "drain": drain, "memory": memory}
    print(json.dumps(modes[sys.argv[1]](json.loads(sys.argv[2]))))
