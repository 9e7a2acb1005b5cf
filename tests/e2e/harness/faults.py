"""Faults of the bed that several files of tests make."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from redbox_bed.hosts.host import Host


@contextmanager
def stopped(host: Host, daemon: str) -> Iterator[None]:
    """Have it hang: it takes connections and answers nothing."""
    pid = host.daemon_pid(daemon)
    assert pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
