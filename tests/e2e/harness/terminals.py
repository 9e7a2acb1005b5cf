"""A terminal of a test's own: a command in it, its size, and what it shows."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.harness.waiting import eventually

COLUMNS, ROWS = 101, 33
WITHIN_S = 120.0
PROMPT = rb"[$#>] (\x1b\[[?\w]+)*$"


@contextmanager
def terminal(command: list[str]) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """The command in a terminal of its own; ended with the test."""
    screen, inside = pty.openpty()
    resize(screen, ROWS, COLUMNS)
    setsid = ["setsid", "--ctty", *command]
    process = subprocess.Popen(setsid, stdin=inside, stdout=inside, stderr=inside)
    os.close(inside)
    try:
        yield process, screen
    finally:
        process.kill()
        process.wait(WITHIN_S)
        os.close(screen)


def resize(screen: int, rows: int, columns: int) -> None:
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def read_until(screen: int, pattern: bytes) -> bytes:
    """What appears, up to a match at its end or within."""
    shown, give_up_at = b"", time.monotonic() + WITHIN_S
    readable = select.poll()  # select rejects descriptors from 1024 on
    readable.register(screen, select.POLLIN)
    while not re.search(pattern, shown):
        assert time.monotonic() < give_up_at, shown
        if readable.poll(1000):
            shown += os.read(screen, 65536)
    return shown


def has_its_size_and_ctrl_c(screen: int) -> None:
    """Of a shell at its prompt. A size is sent beside the keys, and may come after them."""
    os.write(screen, b"sh -c 'stty size; exec sleep 60'\n")  # one process, which Ctrl-C finds at any moment
    read_until(screen, rb"[\r\n]33 101\r\n")
    os.write(screen, b"\x03")
    resize(screen, ROWS + 1, COLUMNS)
    read_until(screen, PROMPT)
    eventually(lambda: b"34 101" in size_shown(screen), what="the new size")


def size_shown(screen: int) -> bytes:
    os.write(screen, b"stty size\n")
    return read_until(screen, rb"[\r\n]\d+ \d+\r\n")
