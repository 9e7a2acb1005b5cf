"""The slow /home: builds the file system beside this package, mounts it in hosts, and tells it to misbehave.

What it does to those who read and write is the Go module's (slowfs/main.go says it). Each host mounts its own
client over the one folder that all hosts of its cluster share; which hosts do is for the caller to say.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

from redbox_bed.build_cache import contents_of, ensure_built, key_of
from redbox_bed.errors import BedError, DaemonError
from redbox_bed.host import Daemon
from redbox_bed.kube_build import find_go, go_version_text
from redbox_bed.places import PACKAGE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from redbox_bed.host import Host
    from redbox_bed.kube_build import Progress
    from redbox_bed.places import Places

MODULE = PACKAGE.parent / "slowfs"
NAME = "slowfs"
"""The daemon's, and so its log's."""

BACKING = "/srv/home"
MOUNTPOINT = "/home"
CONTROL = "/run/bed/slowfs.sock"
PROGRAM = "/run/bed/slowfs"

_BUILD_SECONDS = 900
_READY_SECONDS = 10
_POLL_SECONDS = 0.05


def build(places: Places, progress: Progress) -> Path:
    """The program; static, so that it runs in any root."""
    go = find_go(places, progress)
    key = key_of(contents_of(MODULE, "*.go", "go.mod", "go.sum"), go_version_text(go))
    folder = places.cache / NAME / key
    return ensure_built(folder, lambda unfinished: _build(go, unfinished)) / NAME


def _build(go: str, folder: Path) -> None:
    options = ("-buildvcs=false", "-ldflags=-s -w", "-o", str(folder / NAME))
    command = ["nice", "-n", "10", go, "build", *options, "."]
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    try:
        subprocess.run(
            command, cwd=MODULE, env=environment, check=True, capture_output=True, timeout=_BUILD_SECONDS
        )
    except subprocess.SubprocessError as error:
        said = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip() or str(error)
        raise BedError(f"the slow file system could not be built: {said[-2000:]}") from error


def mount(
    host: Host,
    program: Path,
    backing: str = BACKING,
    mountpoint: str = MOUNTPOINT,
    *,
    settings: Mapping[str, str] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Mount it unless it is; also repairs what a killed one left. True if it was mounted.

    `settings` are the program's own: {"attr": "3s", "negative": "3s", "entry": "3s", "writeback": "500ms"}.
    """
    if host.running(NAME):
        return False
    _install(host, program)
    given = [word for name, value in (settings or {}).items() for word in (f"-{name}", value)]
    command = (PROGRAM, "-mount", mountpoint, "-backing", backing, "-control", CONTROL, *given)
    started = host.ensure(Daemon(NAME, command))
    _wait_until_ready(host, clock)
    return started


def _install(host: Host, program: Path) -> None:
    """Into the host's own /run: hosts of one cluster share their root, and are made ready side by side."""
    content = program.read_bytes()
    there = host.run("sha256sum", PROGRAM, check=False).stdout.split()
    if not there or there[0] != hashlib.sha256(content).hexdigest():
        host.write(PROGRAM, content, mode=0o755)


def _wait_until_ready(host: Host, clock: Callable[[], float]) -> None:
    """It answers once it has mounted; one that could not has ended and said why in its log."""
    deadline = clock() + _READY_SECONDS
    while host.run(PROGRAM, "-control", CONTROL, "status", check=False).returncode != 0:
        if not host.running(NAME) or clock() > deadline:
            raise DaemonError(f"the slow /home was not mounted on {host.spec.name}", log=host.log_path(NAME))
        time.sleep(_POLL_SECONDS)


def unmount(host: Host) -> None:
    """Write everything back and leave the folder bare."""
    host.kill(NAME, signal.SIGTERM)


def control(host: Host, command: str) -> str:
    """Give one command (`hang`, `resume`, `delay 200ms`, `stale`, `status`, `attr 1s`, …); its answer."""
    if not host.running(NAME):
        raise DaemonError(f"{host.spec.name} has no slow /home; a bed has one after `up --slow-home`")
    return host.run(PROGRAM, "-control", CONTROL, *command.split()).stdout.strip()
