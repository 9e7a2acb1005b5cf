"""An `up` that is interrupted: `down` leaves nothing of it, and the next `up` knows all that it began."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from redbox_bed import lifecycle
from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from redbox_bed.core.places import PACKAGE, Places
from redbox_bed.core.processes import children
from redbox_bed.core.progress import Progress
from redbox_bed.hosts.host import Daemon
from redbox_bed.hosts.waiting import wait_until
from redbox_bed.port_forwards import listening_inodes
from tests.e2e.harness import side_bed
from tests.e2e.harness.slurm_release import chosen

STARTS_AT_ONCE = 8
FORWARDER = b"redbox_bed.forwarder"
MOMENTS = {  # of an `up`, by what it has begun then, and what interrupts it
    "overlays": signal.SIGKILL,
    "a daemon": signal.SIGINT,
    "the forwarder": signal.SIGKILL,
}


@pytest.fixture
def places(bed: Bed) -> Iterator[Places]:
    """Of another bed, which is down afterwards."""
    places = replace(bed.places, state=bed.places.state / "interrupted")
    yield places
    lifecycle.down(places, Progress.silent())


def start_up(places: Places) -> subprocess.Popen[bytes]:
    """Slurm alone, with the ports of a bed beside the usual one."""
    own = {"BED_DIR": str(places.state), "BED_PORT_OFFSET": str(side_bed.port_offset())}
    program = [sys.executable, "-m", "redbox_bed", "up", "--no-kube", "--no-accounting", "--fast"]
    return subprocess.Popen(
        program,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **own, "BED_RELEASE": chosen(), "PYTHONPATH": str(PACKAGE.parent)},
    )


def has_begun(moment: str, places: Places, up: int) -> bool:
    if moment == "the forwarder":
        with suppress(OSError):
            return any(FORWARDER in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children(up))
        return False
    begun = "keeper.pid" if moment == "overlays" else "hosts/ctl/own/var/log/bed/munged.log"
    return (places.state / begun).exists()


def interrupt(places: Places, moment: str) -> None:
    """End an `up` as soon as it is so far; what it has begun by then goes on."""
    with start_up(places) as up:
        while not has_begun(moment, places, up.pid) and up.poll() is None:
            time.sleep(0.001)
        up.send_signal(MOMENTS[moment])
    if up.returncode == 0:  # it was quicker than the look at it
        lifecycle.down(places, Progress.silent())
        interrupt(places, moment)


def remains(places: Places) -> list[str]:
    """Processes that are of this bed by their groups, arguments, environment or mounts."""
    words = (str(places.state).encode(), places.name.encode())
    mounts: dict[str, bytes] = {}  # of each namespace: there are few of them, and each is a long text
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            namespace = str((process / "ns/mnt").readlink())
            if namespace not in mounts:
                mounts[namespace] = (process / "mountinfo").read_bytes()
            texts = [(process / name).read_bytes() for name in ("cmdline", "cgroup", "environ")]
            if any(word in text for word in words for text in (*texts, mounts[namespace])):
                found.append(f"{process.name} {texts[0][:200]!r}")
    return found


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.nightly
def test_down_leaves_nothing_of_an_up_that_was_interrupted(places: Places, moment: str) -> None:
    interrupt(places, moment)
    ports = [forward.port for forward in Bed.open(places).plan.forwards]
    assert remains(places)
    lifecycle.down(places, Progress.silent())
    with suppress(BedError):
        wait_until(lambda: not remains(places), 60, "what it had begun goes on")
    assert not remains(places)
    assert not any(listening_inodes(Path("/proc/net/tcp").read_text(), port) for port in ports)
    assert not places.state.exists()


def test_the_next_up_has_a_record_of_all_that_an_interrupted_one_has_begun(places: Places) -> None:
    for moment in ("a daemon", "the forwarder"):
        interrupt(places, moment)
    assert start_up(places).wait() == 0
    made = Bed.open(places)
    for name in made.plan.clusters[0].hosts:
        daemons = made.host(name).run("ps", "--ppid", "1", "--no-headers", "-o", "comm").stdout.split()
        assert len(daemons) == len(set(daemons)), f"{name}: {daemons}"


def test_a_daemon_that_is_started_by_several_at_once_runs_once_and_is_on_record(bed: Bed) -> None:
    """As one is that an interrupted `up` was about to start, beside the next one's."""
    login, daemon = bed.host("login"), Daemon("once", ("/bin/sleep", "86402"))
    starts = [threading.Thread(target=login.ensure, args=(daemon,)) for _ in range(STARTS_AT_ONCE)]
    for start in starts:
        start.start()
    for start in starts:
        start.join()
    find = ("--full", "--exact", "/bin/sleep 86402")
    try:
        wait_until(lambda: login.running("once"), 60, "it did not begin")
        assert len(login.run("pgrep", *find).stdout.split()) == 1
    finally:
        login.run("pkill", *find, check=False)
