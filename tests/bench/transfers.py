"""Files and ports of a pod by kubectl: how many megabytes a second, with what came looked at."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.kubectl import Kubectl

MB = 1_000_000
FILE_MB = 10
MODES = (0o644, 0o600, 0o750)
MODIFIED = 1_700_000_000
WITHIN_S = 600
ENDS_WITHIN_S = 30
PIECE = 1 << 20
There = Mapping[str, tuple[int, int, int]]
"""Of each file, by its path: its size, mode and time."""


def made_folder(folder: Path, megabytes: int) -> Path:
    """Files of 10 MB in two folders, whose modes and times are not what a new file has."""
    data = os.urandom(FILE_MB * MB - 4)
    for number in range(megabytes // FILE_MB):
        path = folder / f"part-{number % 2}/file-{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(number.to_bytes(4, "big") + data)
        path.chmod(MODES[number % len(MODES)])
        os.utime(path, (MODIFIED + number, MODIFIED + number))
    return folder


def files_of(folder: Path) -> There:
    found = {path: path.stat() for path in folder.rglob("*") if path.is_file()}
    return {
        str(path.relative_to(folder)): (seen.st_size, seen.st_mode & 0o777, int(seen.st_mtime))
        for path, seen in found.items()
    }


def sizes(files: There) -> Mapping[str, int]:
    return {name: size for name, (size, _, _) in files.items()}


@dataclass(frozen=True)
class PodFolder:
    """A folder of this machine, and where a pod has its copy."""

    kubectl: Kubectl
    pod: str
    source: Path
    place: str

    def copied(self) -> Mapping[str, float]:
        """By kubectl cp, which keeps sizes, and modes and times in part."""
        with self._emptied(), TemporaryDirectory() as temporary:
            back = Path(temporary) / "back"
            there = f"{self.pod}:{self.place}/copied"
            into = self._mb_s(lambda: self._run("cp", str(self.source), there))
            out = self._mb_s(lambda: self._run("cp", there, str(back)))
            _compare(sizes(files_of(self.source)), sizes(files_of(back)))
        return {"in": into, "out": out}

    def packed(self) -> Mapping[str, float]:
        """By tar on both sides of kubectl exec, which keeps modes and times as well."""
        with self._emptied(), TemporaryDirectory() as temporary:
            into = self._mb_s(self._pack_in)
            out = self._mb_s(lambda: self._pack_out(temporary))
            _compare(files_of(self.source), files_of(Path(temporary) / self.source.name))
        return {"in": into, "out": out}

    def _pack_in(self) -> None:
        pack = ["tar", "-C", str(self.source.parent), "-cf-", self.source.name]
        unpack = self.kubectl.command("exec", "-i", self.pod, "--", "tar", "-C", self.place, "-xpf-")
        _pipe(pack, unpack)

    def _pack_out(self, back: str) -> None:
        pack = self.kubectl.command("exec", self.pod, "--", "tar", "-C", self.place, "-cf-", self.source.name)
        _pipe(pack, ["tar", "-C", back, "-xpf-"])

    def _mb_s(self, transfer: Callable[[], None]) -> float:
        began = time.perf_counter()
        transfer()
        took = time.perf_counter() - began
        return sum(sizes(files_of(self.source)).values()) / MB / took

    @contextmanager
    def _emptied(self) -> Iterator[None]:
        self._run("exec", self.pod, "--", "rm", "-rf", self.place)  # of a run that was killed
        self._run("exec", self.pod, "--", "mkdir", self.place)
        try:
            yield
        finally:
            self._run("exec", self.pod, "--", "rm", "-rf", self.place)

    def _run(self, *words: str) -> None:
        self.kubectl.run(*words, timeout=WITHIN_S)


def _compare(sent: Mapping[str, object], came: Mapping[str, object]) -> None:
    if other := sorted(name for name in {*sent, *came} if sent.get(name) != came.get(name)):
        first = other[0]
        seen = f"{first} was {sent.get(first)} and is {came.get(first)}"
        raise RuntimeError(f"{len(other)} files are not what was sent: {seen}")


def _pipe(first: list[str], second: list[str]) -> None:
    """Run both, the one's output the other's input."""
    with subprocess.Popen(first, stdout=subprocess.PIPE) as sending:
        try:
            subprocess.run(second, stdin=sending.stdout, check=True, capture_output=True, timeout=WITHIN_S)
        except BaseException:
            sending.kill()
            raise
    if sending.returncode:
        raise RuntimeError(f"{first} ended with {sending.returncode}")


@contextmanager
def forwarded(kubectl: Kubectl, pod: str, port: int) -> Iterator[int]:
    """The port of this machine that kubectl port-forward has for the pod's."""
    with kubectl.reading("port-forward", pod, f":{port}") as process:
        assert process.stdout is not None
        found = re.search(rb"127\.0\.0\.1:(\d+)", process.stdout.readline())
        if found is None:
            raise RuntimeError(f"kubectl port-forward of {pod} ended")
        yield int(found[1])


def given_mb_s(port: int, megabytes: int) -> float:
    """What the job's server sends, from its first byte on: the connection's start is another figure."""
    with socket.create_connection(("127.0.0.1", port), timeout=ENDS_WITHIN_S) as server:
        server.sendall(f"give {megabytes * MB}\n".encode())
        received = len(server.recv(1))
        began = time.perf_counter()
        while data := server.recv(PIECE):
            received += len(data)
        took = time.perf_counter() - began
    if received != megabytes * MB:
        raise RuntimeError(f"{received} bytes came of {megabytes} MB")
    return received / MB / took


def taken_mb_s(port: int, megabytes: int) -> float:
    """What the job's server receives, from its `go` to its `ok`."""
    piece = bytes(MB)
    with socket.create_connection(("127.0.0.1", port), timeout=ENDS_WITHIN_S) as server:
        answers = server.makefile("rb")
        server.sendall(f"take {megabytes * MB}\n".encode())
        _expect(answers.readline(), b"go\n")
        began = time.perf_counter()
        for _ in range(megabytes):
            server.sendall(piece)
        _expect(answers.readline(), b"ok\n")
        return megabytes / (time.perf_counter() - began)


def _expect(said: bytes, wanted: bytes) -> None:
    if said != wanted:
        raise RuntimeError(f"the job's server answers {said!r} in place of {wanted!r}")
