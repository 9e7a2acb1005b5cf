"""A companion on one host, red-box on another, Slurm behind it: one job's whole life, and what comes between.

REDBOX_CUT_S says for how long the network is cut (45): 600 is what the design promises.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from redbox_bed.hosts.waiting import wait_until
from tests.e2e.harness import companion_pod
from tests.e2e.harness.accounting import SINCE
from tests.e2e.harness.companion_pod import CompanionPod
from tests.e2e.harness.redbox_server import RedboxServer, running
from tests.e2e.harness.waiting import eventually

CUT_S = float(os.environ.get("REDBOX_CUT_S", "45"))
FAR_HOST = "n3"
NEAR = "#SBATCH --nodelist=n1"  # not where the companion is
LINES = 200
COUNTING = f"for i in $(seq {LINES}); do echo line $i; echo apart $i >&2; sleep 0.1; done"
COUNTED = "".join(f"line {number}\n" for number in range(1, LINES + 1)).encode()
COUNTED_APART = "".join(f"apart {number}\n" for number in range(1, LINES + 1)).encode()
MakePod = Callable[..., CompanionPod]


@pytest.fixture(scope="module")
def server(bed: Bed) -> Iterator[RedboxServer]:
    with running(bed) as server:
        yield server


@pytest.fixture(scope="module")
def far_host(bed: Bed) -> Host:
    host = bed.host(FAR_HOST)
    companion_pod.install(host)
    return host


@pytest.fixture
def make_pod(far_host: Host, server: RedboxServer) -> Iterator[MakePod]:
    made: list[CompanionPod] = []
    unpacks = far_host.run("python3", "-c", "from tarfile import data_filter", check=False).returncode == 0

    def make(*lines: str, results: Any = None, **fields: Any) -> CompanionPod:
        if results is not None and not unpacks:
            pytest.skip(
                "Debian 12's Python cannot filter what it unpacks; the companion's image has a newer one"
            )
        request = {"batch": "\n".join(("#!/bin/sh", NEAR, *lines, "")), **fields}
        pod = CompanionPod(far_host, server, request, results=results)
        pod.introduce()
        made.append(pod)
        return pod

    yield make
    for pod in made:
        far_host.run("rm", "-rf", pod.folder)


def rest(companion: subprocess.Popen[bytes]) -> tuple[bytes, bytes]:
    """What is left to read of one whose first line was read; `communicate` would miss what is buffered."""
    assert companion.stdout
    assert companion.stderr
    return companion.stdout.read(), companion.stderr.read()


def states(server: RedboxServer, *job_ids: str) -> dict[str, str]:
    """What accounting says of jobs."""
    command = ("sacct", "-D", "-X", "-n", "-P", "-o", "JobID,User,State", "-j", ",".join(job_ids))
    rows = [line.split("|") for line in server.login.run(*command).stdout.splitlines()]
    return {job_id: f"{user} {state.split()[0]}" for job_id, user, state in rows}


def test_a_job_is_its_users_and_its_output_exit_code_and_word_are_the_companions(
    server: RedboxServer, make_pod: MakePod
) -> None:
    pod = make_pod("id -un", "echo apart >&2", "printf '\\0\\377 no newline'", "exit 3")
    ended = pod.run()
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, b"alice\n\0\xff no newline", b"apart\n")
    word = pod.word
    job_id = word.pop("jobID")
    assert word == {"final": True, "logs": "complete", "phase": "Failed", "state": "FAILED", "exitCode": 3}
    eventually(lambda: states(server, job_id) == {job_id: "alice FAILED"}, what="its row in sacct")


def test_every_way_in_which_slurm_ends_a_job_has_its_exit_code(make_pod: MakePod) -> None:
    """All at once, since a time limit takes more than a minute to come."""
    ways = {
        "TIMEOUT": (make_pod("sleep 600", resources={"time": "1"}), 124),
        "OUT_OF_MEMORY": (make_pod("tail /dev/zero", resources={"memPerNode": "64M"}), 137),
        "CANCELLED": (make_pod("scancel $SLURM_JOB_ID", "sleep 60"), 143),
        "FAILED": (make_pod("kill -9 $$"), 137),
        "COMPLETED": (make_pod("true"), 0),
    }
    companions = {state: pod.start() for state, (pod, _) in ways.items()}
    for companion in companions.values():
        companion.communicate(timeout=180)
    assert {state: companion.returncode for state, companion in companions.items()} == {
        state: code for state, (_, code) in ways.items()
    }
    assert {state: pod.word["state"] for state, (pod, _) in ways.items()} == {state: state for state in ways}


def test_a_companion_that_is_told_to_go_leaves_the_job_and_the_next_one_has_the_whole_log(
    server: RedboxServer, make_pod: MakePod
) -> None:
    pod = make_pod(COUNTING)
    with pod.start() as first:
        assert first.stdout
        assert first.stdout.readline() == b"line 1\n"
        pod.host.run("kill", "-TERM", pod.pid())
        assert first.wait(timeout=60) == 143
    assert pod.host.run("test", "-e", f"{pod.folder}/termination", check=False).returncode
    second = pod.run()
    assert (second.returncode, second.stdout, second.stderr) == (0, COUNTED, COUNTED_APART)
    job_id = pod.word["jobID"]
    eventually(lambda: states(server, job_id) == {job_id: "alice COMPLETED"}, what="its row in sacct")


def test_two_companions_of_one_key_are_one_job_and_both_have_its_log(
    server: RedboxServer, make_pod: MakePod
) -> None:
    pod = make_pod("sleep 3", "echo once")
    with pod.start() as first, pod.start() as second:
        assert first.communicate(timeout=120)[0] == second.communicate(timeout=120)[0] == b"once\n"
    named = ("sacct", SINCE, "-X", "-n", "-P", "-o", "JobID,SubmitLine%1000")
    assert sum(pod.key in line for line in server.login.run(*named).stdout.splitlines()) <= 1


def test_a_killed_red_box_loses_and_doubles_no_byte(server: RedboxServer, make_pod: MakePod) -> None:
    pod = make_pod(COUNTING)
    with pod.start() as companion:
        for _ in range(3):
            time.sleep(4)  # into the midst of the log
            server.kill()
            server.start()
        assert companion.communicate(timeout=150) == (COUNTED, COUNTED_APART)
    assert (companion.returncode, pod.word["logs"]) == (0, "complete")


@pytest.mark.timeout(300 + 2 * CUT_S)
def test_a_network_that_is_cut_loses_and_doubles_no_byte(bed: Bed, make_pod: MakePod) -> None:
    pod = make_pod(COUNTING)
    with pod.start() as companion:
        assert companion.stdout
        first = companion.stdout.readline()
        try:
            pod.host.link(up=False)
            time.sleep(CUT_S)
        finally:
            pod.host.link(up=True)
            bed.host("ctl").run("scontrol", "update", f"NodeName={FAR_HOST}", "State=RESUME", check=False)
        out, err = rest(companion)
    assert (companion.returncode, first + out, err) == (0, COUNTED, COUNTED_APART)


def test_a_rotated_token_is_used_and_the_old_one_may_expire(server: RedboxServer, make_pod: MakePod) -> None:
    pod = make_pod("echo begun", "sleep 12", "echo ended")
    store, old = f"{server.folder}/tokens.json", server.tokens.pop(pod.user)
    before = server.login.read(store)
    with pod.start() as companion:
        assert companion.stdout
        assert companion.stdout.readline() == b"begun\n"
        pod.host.write(f"{pod.folder}/token", server.token_of(pod.user).encode())
        after = server.login.read(store)
        assert old not in server.tokens.values()
        assert before != after
        server.kill()
        server.start()
        assert rest(companion) == (b"ended\n", b"")


def test_an_array_is_in_the_log_task_by_task(make_pod: MakePod) -> None:
    pod = make_pod(
        "for i in 1 2 3; do echo task $SLURM_ARRAY_TASK_ID; sleep 0.2; done",
        "echo apart $SLURM_ARRAY_TASK_ID >&2",
        array="0-19",
    )
    ended = pod.run()
    assert (ended.returncode, pod.word["logs"]) == (0, "complete")
    lines = ended.stdout.decode().splitlines()
    assert sorted(lines) == sorted(f"task {task}" for task in range(20) for _ in range(3))
    assert all(len(set(lines[start : start + 3])) == 1 for start in range(0, 60, 3))
    apart = [line for line in ended.stderr.decode().splitlines() if "came late" not in line]
    headings = [line for line in apart if line.startswith("redbox: ")]
    assert sorted(headings) == sorted(f"redbox: task {task}: COMPLETED" for task in range(20))
    assert sorted(set(apart) - set(headings)) == sorted(f"apart {task}" for task in range(20))


TREE = r"""
umask 000; mkdir -p out/deep/er out/empty; chmod 750 out/deep; chmod 700 out/empty
i=0; while [ $i -lt 3000 ]; do echo "file $i" >"out/deep/er/f$i"; i=$((i+1)); done
head -c 20000000 /dev/urandom >out/large; chmod 640 out/large
printf x >"out/ä new
line"; ln -s large out/link; chmod 555 out/deep/er
echo dat >one.dat; echo dat >two.dat; echo no >three.txt
"""
LISTED = r"""
find out *.dat -type l -printf '%p %l\n' -o -type d -printf '%p %m %Ts\n' -o -printf '%p %m %Ts %s\n' | sort
sha256sum out/large
"""


def test_results_are_the_files_of_the_job_as_they_were(make_pod: MakePod) -> None:
    pod = make_pod(TREE, f"{{ {LISTED} }} >&2", results={"from": ["out", "*.dat"], "when": "Succeeded"})
    ended = pod.run()
    assert ended.returncode == 0
    told = pod.word["results"]
    assert (told["outcome"], told["files"], told["message"]) == ("Collected", 3005, "")
    here = pod.host.run(
        "sh", "-c", f"cd {pod.folder}/results && ls && {{ {LISTED} }}", user=companion_pod.USER
    )
    assert here.stdout.splitlines()[:3] == ["one.dat", "out", "two.dat"]
    assert here.stdout.splitlines()[3:] == ended.stderr.decode().splitlines()


def test_results_that_lead_outside_are_left_out_and_the_job_succeeds(make_pod: MakePod) -> None:
    pod = make_pod(
        "mkdir out; ln -s /etc/passwd out/leak; ln -s ../../.. out/up; echo kept >out/kept",
        results={"from": ["out"]},
    )
    ended = pod.run()
    assert (ended.returncode, pod.word["results"]["outcome"]) == (0, "Failed")
    assert "2 left out" in pod.word["results"]["message"]
    assert pod.host.run("ls", f"{pod.folder}/results/out", user=companion_pod.USER).stdout == "kept\n"


def test_what_the_jobs_user_may_not_read_is_named_and_the_rest_comes(make_pod: MakePod) -> None:
    pod = make_pod(
        "mkdir -p out/closed; echo no >out/closed/x; echo no >out/secret; chmod 0 out/closed out/secret",
        "echo kept >out/kept; mkfifo out/pipe",
        results={"from": ["out"]},
    )
    ended = pod.run()
    assert (ended.returncode, pod.word["results"]["outcome"]) == (0, "Failed")
    message = pod.word["results"]["message"]
    assert message.startswith("out: 3 left out: ")
    for name in ("closed", "secret"):
        assert f"out/{name}: it cannot be read: Permission denied" in message
    assert "out/pipe: it cannot be read: not a regular file" in message
    assert pod.host.run("cat", f"{pod.folder}/results/out/kept", user=companion_pod.USER).stdout == "kept\n"


def test_collecting_goes_on_where_a_killed_companion_left_it(make_pod: MakePod) -> None:
    pod = make_pod(TREE, results={"from": ["out"]})
    with pod.start() as companion:
        half = f"{pod.folder}/results/out/deep/er"
        wait_until(
            lambda: pod.host.run("test", "-d", half, check=False).returncode == 0, 60, "nothing was collected"
        )
        pod.host.run("kill", "-KILL", pod.pid(), check=False)
        companion.wait(timeout=60)
    assert pod.run(REDBOX_MODE="helper").returncode == 0
    assert (pod.word["results"]["outcome"], pod.word["results"]["files"]) == ("Collected", 3003)
