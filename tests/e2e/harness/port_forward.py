"""`kubectl port-forward`, as long as a test needs it."""

from __future__ import annotations

import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.e2e.harness.slurmjobs import Applied

ENDS_WITHIN_S = 60


@dataclass(frozen=True)
class PortForward:
    """One that listens, on a port of this machine."""

    process: subprocess.Popen[bytes]
    port: int

    def get(self) -> str:
        """The page that comes through it; nothing where none comes."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=10) as answer:
                return bytes(answer.read()).decode().strip()
        except OSError:
            return ""

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None

    def words(self) -> str:
        """What it reported until now; it is ended for that."""
        self.process.terminate()
        return self.process.communicate(timeout=ENDS_WITHIN_S)[1].decode()


@contextmanager
def port_forward(job: Applied, target: str, port: int) -> Iterator[PortForward]:
    """Of a pod or `service/NAME` in the job's namespace."""
    words = (f"--namespace={job.namespace}", "port-forward", target, f":{port}")
    pipe = subprocess.PIPE
    with subprocess.Popen(job.kubectl.command(*words), stdout=pipe, stderr=pipe) as process:
        try:
            assert process.stdout is not None
            found = re.search(rb"127\.0\.0\.1:(\d+)", process.stdout.readline())
            assert found is not None
            yield PortForward(process, int(found[1]))
        finally:
            process.kill()
