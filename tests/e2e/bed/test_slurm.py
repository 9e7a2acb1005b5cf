"""The bed's Slurm is a real one: what its users can do, what it refuses, and what it survives."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import asyncssh
import pytest

from redbox_bed.bed import Bed
from redbox_bed.core.errors import CommandError
from redbox_bed.core.plan import SLURMRESTD_PORT, Forward, Role, Source
from redbox_bed.hosts.host import Host
from redbox_bed.hosts.waiting import wait_until
from redbox_bed.slurm.daemons import daemons_of
from tests.e2e.harness.slurm_release import launcher
from tests.e2e.harness.slurmctld_restart import has_saved

PROGRAM = Path(__file__).parents[3] / "deploy/local/bed"
JOB_ENDS_WITHIN = 60
NODE_RETURNS_WITHIN = 60
UNFINISHED = {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING", ""}


@pytest.fixture(autouse=True)
def own_slurm(bed: Bed) -> None:
    if bed.plan.options.slurm is not Source.OWN:
        pytest.skip("this bed has no Slurm of its own")


@pytest.fixture
def login(bed: Bed) -> Host:
    return bed.host("login")


@pytest.fixture
def controller(bed: Bed) -> Host:
    return bed.host("ctl")


@pytest.fixture
def accounting(bed: Bed) -> None:
    if not bed.plan.options.accounting:
        pytest.skip("this bed keeps no accounts (--no-accounting)")


@pytest.fixture
def gate(login: Host) -> Iterator[str]:
    """A file that does not exist yet: jobs that wait for it run until a test makes it, or is over."""
    path = f"/home/alice/gate-{uuid4().hex}"
    yield path
    login.run("touch", path, user="alice")


def submit(login: Host, script: str, *options: str, user: str = "alice") -> str:
    command = ("sbatch", "--parsable", "--output=/home/%u/%x-%j.out", *options)
    return login.run(*command, user=user, stdin=f"#!/bin/sh\n{script}\n").stdout.strip()


def state(controller: Host, job: str) -> str:
    shown = controller.run("scontrol", "show", "job", job, "--oneliner", check=False).stdout
    return next(
        (word.removeprefix("JobState=") for word in shown.split() if word.startswith("JobState=")), ""
    )


def end_of(controller: Host, job: str) -> str:
    """The state in which the job ended, as slurmctld has it."""
    wait_until(
        lambda: state(controller, job) not in UNFINISHED,
        JOB_ENDS_WITHIN,
        f"job {job} did not end",
    )
    return state(controller, job)


def wait_until_running(controller: Host, job: str) -> None:
    wait_until(lambda: state(controller, job) == "RUNNING", JOB_ENDS_WITHIN, f"job {job} did not start")


def accounting_row(login: Host, job: str, *fields: str) -> list[str]:
    command = ("sacct", "-X", "-n", "-P", "-j", job, "-o", ",".join(fields))
    return login.run(*command).stdout.strip().split("|")


def test_every_daemon_runs_and_answers(bed: Bed) -> None:
    for slurm in bed.slurms:
        for name in slurm.cluster.hosts:
            host = bed.host(name)
            assert all(host.running(daemon.name) for daemon in daemons_of(slurm.cluster, host.spec))
            assert "Success" in host.run("sh", "-c", "munge -n | unmunge").stdout
        assert "is UP" in bed.host(slurm.cluster.login).run("scontrol", "ping").stdout
        assert set(slurm.node_states()) == {node.name for node in slurm.cluster.nodes}


def test_one_step_runs_on_three_hosts(login: Host) -> None:
    names = login.run("srun", "-N3", "hostname", user="alice").stdout.split()
    assert sorted(names) == ["n1", "n2", "n3"]


def test_partitions_share_nodes_and_have_their_own_limits(login: Host) -> None:
    shown = login.run("sinfo", "-h", "-o", "%P %l %N %G %f").stdout.splitlines()
    assert {" ".join(line.split()[:3]) for line in shown} >= {
        "debug* 30:00 n[1-2]",
        "long infinite n[1-2]",
        "GPU_big 1-00:00:00 n3",
    }
    assert any("gpu:tesla:2 gpu,a100,nvlink" in line for line in shown)


def test_a_batch_job_writes_its_output_as_its_user(login: Host, controller: Host) -> None:
    job = submit(login, "id -un; hostname; exit 3", "--job-name=hello")
    assert end_of(controller, job) == "FAILED"
    written = login.run("cat", f"/home/alice/hello-{job}.out", user="alice").stdout.split()
    assert written[0] == "alice"
    assert written[1] in {"n1", "n2", "n3"}


@pytest.mark.usefixtures("accounting")
def test_a_batch_job_leaves_its_accounting_row(login: Host) -> None:
    job = submit(login, "exit 3")
    fields = ("User", "Account", "Partition", "State", "ExitCode", "QOS")
    expected = ["alice", "physics", "debug", "FAILED", "3:0", "normal"]
    # slurmdbd gets the end and the start of a short job in any order.
    wait_until(
        lambda: accounting_row(login, job, *fields) == expected, JOB_ENDS_WITHIN, f"no such row of job {job}"
    )


@pytest.mark.usefixtures("accounting")
def test_a_user_without_an_account_is_refused_by_slurm(login: Host) -> None:
    with pytest.raises(CommandError, match="Invalid account"):
        submit(login, "true", user="carol")


@pytest.mark.usefixtures("accounting")
def test_a_qos_limits_how_many_jobs_a_user_has(login: Host) -> None:
    held = ("--hold", "--qos=tiny")
    jobs = [submit(login, "true", *held, user="bob") for _ in range(2)]
    try:
        with pytest.raises(CommandError, match="limit"):
            submit(login, "true", *held, user="bob")
    finally:
        login.run("scancel", *jobs, user="bob")


def test_a_job_that_takes_too_much_memory_is_out_of_memory(login: Host, controller: Host) -> None:
    job = submit(login, "python3 -c 'bytearray(400 * 1024 * 1024)'", "--mem=100M")
    assert end_of(controller, job) == "OUT_OF_MEMORY"


def test_a_job_sees_only_the_gpus_that_it_was_given(login: Host) -> None:
    # No driver stands behind the device: "No such device" is what opening an allowed one says.
    script = "for gpu in 0 1; do cat /dev/nvidia$gpu 2>&1 || :; done"
    said = login.run("srun", "-p", "GPU_big", "--gres=gpu:1", "sh", "-c", script, user="alice").stdout
    assert sorted(line.rpartition(": ")[2] for line in said.splitlines()) == [
        "No such device or address",
        "Operation not permitted",
    ]


def test_a_container_image_is_built_and_runs_inside_a_job(login: Host, controller: Host) -> None:
    definition = (
        "Bootstrap: scratch\n"
        "%setup\n  mkdir -p ${APPTAINER_ROOTFS}/bin\n  cp /bin/busybox ${APPTAINER_ROOTFS}/bin/busybox\n"
        "  ln -s busybox ${APPTAINER_ROOTFS}/bin/sh\n"
        "%runscript\n  exec /bin/busybox echo inside $1\n"
    )
    login.run(
        "sh",
        "-c",
        "cat >box.def && singularity build --force box.sif box.def",
        user="alice",
        stdin=definition,
    )
    job = submit(login, "singularity run box.sif a-job", "--job-name=box", "--chdir=/home/alice")
    assert end_of(controller, job) == "COMPLETED"
    assert "inside a-job" in login.run("cat", f"/home/alice/box-{job}.out", user="alice").stdout


def test_mpi_ranks_on_three_hosts_play_ping_pong(bed: Bed, login: Host) -> None:
    allocation = ("salloc", "--quiet", "-N3", "--ntasks-per-node=1")
    said = login.run(*allocation, *launcher(bed).split(), "pingpong", user="alice").stdout
    assert {line.split()[-1] for line in said.splitlines() if line.startswith("rank")} == {"n1", "n2", "n3"}
    assert [line.split()[0] for line in said.splitlines() if "round trip" in line] == ["0<->1", "0<->2"]


def ssh_port(bed: Bed) -> Forward:
    return next(
        forward for forward in bed.plan.forwards if (forward.host, forward.target_port) == ("login", 22)
    )


async def test_ssh_and_sftp_through_the_forwarded_port(bed: Bed, tmp_path: Path) -> None:
    sent, name = tmp_path / "sent", f"sent-{uuid4().hex}"
    sent.write_text("by sftp\n")
    async with asyncssh.connect(
        "127.0.0.1",
        ssh_port(bed).port,
        username="alice",
        client_keys=[str(bed.places.ssh / "id_ed25519")],
        known_hosts=str(bed.places.ssh / "known_hosts"),
        config=None,
    ) as connection:
        async with connection.start_sftp_client() as sftp:
            await sftp.put(str(sent), name)
        done = await connection.run(f"id -un; hostname; cat {name}; rm {name}", check=True)
    assert done.stdout == "alice\nlogin\nby sftp\n"


async def test_ssh_without_the_key_is_refused(bed: Bed) -> None:
    with pytest.raises(asyncssh.PermissionDenied):
        await asyncssh.connect(
            "127.0.0.1",
            ssh_port(bed).port,
            username="alice",
            client_keys=[asyncssh.generate_private_key("ssh-ed25519")],
            known_hosts=str(bed.places.ssh / "known_hosts"),
            agent_path=None,
            config=None,
        )


def rest(login: Host, path: str, token: str) -> tuple[int, str]:
    """The status and body of slurmrestd's answer."""
    url = f"http://ctl:{SLURMRESTD_PORT}{path}"
    headers = f"X-SLURM-USER-NAME: alice\nX-SLURM-USER-TOKEN: {token}\n"
    command = ("curl", "-s", "-w", "\n%{http_code}", "-H", "@-", url)
    body, _, code = login.run(*command, user="alice", stdin=headers).stdout.rpartition("\n")
    return int(code), body


def newest_api(login: Host, token: str) -> str:
    code, specification = rest(login, "/openapi/v3", token)
    assert code == 200
    versions: list[str] = [
        path.split("/")[2] for path in json.loads(specification)["paths"] if path.startswith("/slurm/v")
    ]
    return max(versions, key=lambda version: int(version.rpartition(".")[2]))


def test_slurmrestd_takes_a_users_token_and_no_other(login: Host) -> None:
    token = login.run("scontrol", "token", user="alice").stdout.strip().removeprefix("SLURM_JWT=")
    jobs = f"/slurm/{newest_api(login, token)}/jobs"
    code, body = rest(login, jobs, token)
    assert code == 200
    assert "jobs" in json.loads(body)
    assert rest(login, jobs, token[:-8] + "AAAAAAAA")[0] >= 400


def test_running_jobs_survive_a_killed_slurmctld(bed: Bed, login: Host, controller: Host, gate: str) -> None:
    script = f"while [ ! -e {gate} ]; do sleep 0.2; done; exit 5"
    job = submit(login, script)
    wait_until_running(controller, job)
    # A slurmctld that dies before it has saved that a job runs forgets it: that is Slurm's own limit. It has
    # saved it once a later job is in its file.
    later = f"later-{uuid4().hex}"
    submit(login, "true", f"--job-name={later}", "--hold")
    wait_until(lambda: has_saved(controller, later), 60, "slurmctld did not save its jobs")
    login.run("scancel", f"--name={later}", user="alice")
    controller.kill("slurmctld")
    bed.slurms[0].up()
    assert state(controller, job) == "RUNNING"
    login.run("touch", gate, user="alice")
    assert end_of(controller, job) == "FAILED"
    assert "ExitCode=5:0" in controller.run("scontrol", "show", "job", job).stdout


def bed_program(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *words], capture_output=True, text=True, check=False, timeout=300)


def daemon_pids(bed: Bed) -> dict[tuple[str, str], int | None]:
    return {
        (name, daemon.name): bed.host(name).daemon_pid(daemon.name)
        for slurm in bed.slurms
        for name in slurm.cluster.hosts
        for daemon in daemons_of(slurm.cluster, bed.host(name).spec)
    }


def test_a_second_up_starts_nothing(bed: Bed) -> None:
    before = daemon_pids(bed)
    done = bed_program("up")
    assert done.returncode == 0, done.stderr
    assert daemon_pids(bed) == before
    assert None not in before.values()


def test_up_repairs_killed_daemons_and_a_lost_host(bed: Bed, login: Host) -> None:
    before = daemon_pids(bed)
    bed.host("n1").kill("slurmd")
    bed.host("n2").power_off()
    login.kill("sshd")
    login.kill("munged")
    bed.host("n3").link(up=False)
    assert bed_program("status").returncode == 1
    done = bed_program("up")
    assert done.returncode == 0, done.stderr
    assert bed_program("status").returncode == 0
    changed = {key for key, pid in daemon_pids(bed).items() if pid != before[key]}
    assert changed == {
        ("n1", "slurmd"),
        ("n2", "munged"),
        ("n2", "slurmd"),
        ("login", "sshd"),
        ("login", "munged"),
    }
    names = login.run("srun", "-N3", "hostname", user="alice", timeout=NODE_RETURNS_WITHIN).stdout.split()
    assert sorted(names) == ["n1", "n2", "n3"]


def test_an_unplugged_host_is_out_of_reach_until_it_is_plugged_in(login: Host) -> None:
    ping = ("ping", "-c1", "-W1", "n3")
    try:
        assert bed_program("link", "n3", "down").returncode == 0
        assert login.run(*ping, check=False).returncode != 0
    finally:
        bed_program("link", "n3", "up")
    assert login.run(*ping, check=False).returncode == 0


def test_exec_passes_the_user_the_output_and_the_exit_code() -> None:
    done = bed_program("exec", "login", "--user", "bob", "--", "sh", "-c", "id -un; pwd; exit 7")
    assert (done.stdout, done.returncode) == ("bob\n/home/bob\n", 7)


def test_what_cannot_be_is_said_in_one_sentence() -> None:
    for words in (
        ("exec", "nowhere", "true"),
        ("logs", "nothing"),
        ("power", "nowhere", "off"),
        ("exec", "login"),
    ):
        done = bed_program(*words)
        assert done.returncode == 1
        assert done.stderr.startswith("bed: ")
        assert len(done.stderr.splitlines()) == 1


def test_nothing_of_the_bed_is_mounted_on_the_machine_itself(bed: Bed) -> None:
    assert str(bed.places.state) not in Path("/proc/self/mounts").read_text()
    assert bed.plan.of_role(Role.SWITCH)
