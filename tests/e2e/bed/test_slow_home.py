"""A bed with `--slow-home` shows its users' files as late as NFS and Lustre do, and Slurm lives with it."""

import os
import signal
import subprocess
from collections.abc import Iterator
from uuid import uuid4

import pytest

from redbox_bed import lifecycle, slow_home
from redbox_bed.bed import Bed
from redbox_bed.core.plan import Options
from redbox_bed.core.progress import Progress
from redbox_bed.hosts.host import Host
from tests.e2e.harness.side_bed import bed_beside
from tests.e2e.harness.waiting import eventually

HAPPENS_WITHIN = 60
HOURS = "10h"


@pytest.fixture(scope="module")
def bed() -> Iterator[Bed]:
    with bed_beside("slow-home", Options(slow_home=True)) as made:
        yield made


@pytest.fixture
def login(bed: Bed) -> Iterator[Host]:
    """Where alice looks at her files, promptly; what a test left running or changed is undone."""
    host = bed.host("login")
    for setting in ("attr", "entry", "negative"):
        slow_home.command(bed, host, setting, "0s")
    yield host
    slow_home.command(bed, bed.host("n1"), "resume")
    slow_home.command(bed, bed.host("n1"), "writeback", "500ms")
    host.run("scancel", "--user=alice")
    eventually(lambda: not host.run("squeue", "--noheader").stdout, what="the queue is empty")


def submit(login: Host, script: str, node: str = "n1") -> str:
    """Submit a batch job of alice; its output is the file that this returns."""
    arguments = ("--parsable", f"--nodelist={node}", "--output=%j.out", "--no-requeue")
    job = login.run("sbatch", *arguments, user="alice", stdin=f"#!/bin/bash\n{script}\n").stdout.strip()
    return f"/home/alice/{job}.out"


def seen(host: Host, path: str) -> str:
    return host.run("cat", path, user="alice", check=False).stdout


def test_a_jobs_output_arrives_whole(login: Host) -> None:
    output = submit(login, "for i in $(seq 200); do echo line $i; done")
    expected = "".join(f"line {number}\n" for number in range(1, 201))
    eventually(lambda: seen(login, output) == expected, what="the output")


def test_the_login_host_sees_the_size_before_the_data(bed: Bed, login: Host) -> None:
    slow_home.command(bed, bed.host("n1"), "writeback", HOURS)
    output = submit(login, "printf text; exec sleep 600")
    eventually(lambda: seen(login, output) == "\0\0\0\0", what="the size")
    assert seen(bed.host("n1"), output) == "text"
    slow_home.command(bed, bed.host("n1"), "flush")
    assert seen(login, output) == "text"


def test_a_miss_is_cached(bed: Bed, login: Host) -> None:
    slow_home.command(bed, login, "negative", HOURS)
    path = "/home/alice/not-yet"
    assert login.run("test", "-e", path, check=False).returncode == 1
    bed.host("n1").run("touch", path, user="alice")
    assert login.run("test", "-e", path, check=False).returncode == 1
    assert login.run("ls", "/home/alice").stdout.split().count("not-yet") == 1


def test_a_hang_on_one_host_is_not_felt_on_another(bed: Bed, login: Host) -> None:
    stuck = bed.host("n1")
    slow_home.command(bed, stuck, "hang")
    with stuck.popen("ls", "/home/alice", stdout=subprocess.DEVNULL) as waiting:
        eventually(lambda: "waiting=1" in slow_home.command(bed, stuck, "status"), what="it waits")
        output = submit(login, "echo done", node="n2")
        eventually(lambda: seen(login, output) == "done\n", what="a job elsewhere")
        assert waiting.poll() is None
        slow_home.command(bed, stuck, "resume")
        assert waiting.wait(HAPPENS_WITHIN) == 0


def test_who_waits_in_a_hang_can_be_killed(bed: Bed, login: Host) -> None:
    stuck = bed.host("n1")
    assert login.running("slowfs")
    slow_home.command(bed, stuck, "hang")
    with stuck.popen("cat", "/home/alice/.profile") as waiting:
        eventually(lambda: "waiting=1" in slow_home.command(bed, stuck, "status"), what="it waits")
        os.killpg(waiting.pid, signal.SIGKILL)
        assert waiting.wait(HAPPENS_WITHIN) == -signal.SIGKILL
    assert "state=hanging" in slow_home.command(bed, stuck, "status")


def test_a_killed_client_is_repaired(bed: Bed, login: Host) -> None:
    host = bed.host("n2")
    host.kill("slowfs")
    assert "Transport endpoint is not connected" in host.run("ls", "/home", check=False).stderr
    slow_home.ensure(bed, host)
    assert host.run("ls", "/home").stdout == login.run("ls", "/home").stdout


def test_a_power_cut_leaves_nuls_where_data_was_kept_back(bed: Bed, login: Host) -> None:
    slow_home.command(bed, bed.host("n1"), "writeback", HOURS)
    output = f"/home/alice/{uuid4().hex}"
    submit(login, f"exec >{output}; printf lost; exec sleep 600")  # slurmstepd's close would write its output
    eventually(lambda: seen(login, output) == "\0\0\0\0", what="the size")
    bed.host("n1").power_off()
    lifecycle.start_host(bed, bed.host("n1"), Progress.silent())
    assert seen(bed.host("n1"), output) == "\0\0\0\0"
