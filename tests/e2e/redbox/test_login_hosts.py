"""Two login hosts behind one name and a jump host, and the first of them dies while it submits.

n1 and n2 are the login hosts, with sshds of their own; ctl is the jump host, which resolves the name. What is
recorded of submits on n1 is on n1 alone: only the marks in Slurm prove what became of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from redbox.agents.install_texts import render_agent_conf
from redbox.agents.program.guard import DEFAULT_MIN_UID, DEFAULT_PATH
from redbox_api.client import RedboxClient
from redbox_api.errors import Busy
from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from redbox_bed.slurm.daemons import SSHD
from tests.e2e.harness.accounting import SINCE
from tests.e2e.harness.redbox_jobs import ended, new_key, script
from tests.e2e.harness.redbox_server import RedboxServer, install
from tests.e2e.harness.waiting import eventually

pytestmark = pytest.mark.timeout(300)
NAME = "login-hosts"
PROGRAMS = "/opt/login-hosts"
NOTES = "/home/alice/login-hosts"
RECORDS = "/home/alice/.local/state/redbox-kept"
IMPATIENT = {
    "answer_within_s": 4.0,
    "settle_s": 2.0,
    "arrives_within_s": 5.0,
    "rows_late_s": 2.0,
}
SBATCH = f"""\
#!/bin/sh
# The first submits of these names hang: one when slurmctld has the job, one before it is asked.
for word; do case $word in --job-name=*) name=${{word#--job-name=}} ;; esac; done
mkdir "{NOTES}/$name" 2>/dev/null || exec /usr/bin/sbatch "$@"
case $name in
    arrives) /usr/bin/sbatch "$@" >/dev/null ;;
    stays) ;;
    *) exec /usr/bin/sbatch "$@" ;;
esac
hostname >"{NOTES}/$name/hangs"
exec sleep 600
"""


@dataclass(frozen=True)
class LoginHosts:
    """The hosts, and a red-box that reaches them by their name alone."""

    server: RedboxServer
    hosts: dict[str, Host]

    def first(self) -> Host:
        """The one that both submits hang on."""
        notes = [self.note(name) for name in ("arrives", "stays")]
        assert len(set(notes)) == 1, "agents of one user are on one host"
        return self.hosts[notes[0]]

    def note(self, name: str) -> str:
        return self.server.login.run("cat", f"{NOTES}/{name}/hangs", check=False).stdout.strip()

    def power_off(self, host: Host) -> None:
        """Its users' processes end without a word; slurmd, which is there as well, stays."""
        host.kill(SSHD.name)
        host.run("sh", "-c", "pkill -9 sshd; pkill -9 -u alice", check=False)


@pytest.fixture
def login_hosts(bed: Bed) -> Iterator[LoginHosts]:
    install(bed)
    login, jump = bed.host("login"), bed.host("ctl")
    hosts = {name: bed.host(name) for name in ("n1", "n2")}
    usual_names = login.read("/etc/hosts")
    lines = "".join(f"{host.spec.address} {NAME}\n" for host in hosts.values())
    login.write("/etc/hosts", usual_names + lines.encode())
    login.write(f"{PROGRAMS}/sbatch", SBATCH, mode=0o755)
    path = f"{PROGRAMS}:{DEFAULT_PATH}"
    login.write("/etc/redbox/agent.conf", render_agent_conf(min_uid=DEFAULT_MIN_UID, path=path))
    login.run("mkdir", "-p", "-m", "700", NOTES, RECORDS, user="alice")
    hosts["n1"].run("mount", "-t", "tmpfs", "-o", "mode=700,uid=2001,gid=2001", "tmpfs", RECORDS)
    addresses = [login.spec.address, jump.spec.address]
    ssh = {"host": NAME, "jump": {"host": jump.spec.address}, "addresses": addresses}
    server = RedboxServer(bed, transport="ssh", observer="alice", sections={"jobs": IMPATIENT}, ssh=ssh)
    try:
        server.introduce()
        known = login.read(f"{server.folder}/known_hosts").decode().split(maxsplit=1)[1]
        owner = f"{server.user}:{server.user}"
        login.write(f"{server.folder}/known_hosts", f"{jump.spec.address},{NAME} {known}", owner=owner)
        for host in (jump, *hosts.values()):
            host.ensure(SSHD)
        server.start()
        yield LoginHosts(server, hosts)
    finally:
        server.remove()
        for host in (jump, *hosts.values()):
            if host.running(SSHD.name):
                host.kill(SSHD.name)
            host.run("pkill", "sshd", check=False)
        hosts["n1"].run("umount", "--lazy", RECORDS)
        login.write("/etc/hosts", usual_names)
        usual = render_agent_conf(min_uid=DEFAULT_MIN_UID, path=DEFAULT_PATH)
        login.write("/etc/redbox/agent.conf", usual)
        login.run("rm", "-rf", PROGRAMS, NOTES)


async def put_until_ended(client: RedboxClient, key: str, name: str) -> str:
    """As a companion does; returns the id of the job that ended."""
    batch = script(f"echo $SLURM_JOB_ID >>{NOTES}/{name}/ran", name=name)
    while True:
        try:
            await client.put_job(key, batch)
            break
        except Busy as busy:
            await asyncio.sleep(min(busy.retry_after or 1, 1))
    return str((await ended(client, key)).job_id)


async def test_what_the_host_that_died_had_submitted_runs_once_by_the_other(login_hosts: LoginHosts) -> None:
    server = login_hosts.server
    keys = {name: new_key() for name in ("arrives", "stays")}
    async with server.client_of("alice") as client, asyncio.TaskGroup() as group:
        ends = {name: group.create_task(put_until_ended(client, key, name)) for name, key in keys.items()}
        await asyncio.to_thread(
            eventually, lambda: all(map(login_hosts.note, keys)), what="two submits that hang"
        )
        first = login_hosts.first()
        await asyncio.to_thread(login_hosts.power_off, first)
    (other,) = (host for host in login_hosts.hosts.values() if host is not first)
    assert "redbox-agent" in other.run("ps", "-u", "alice", "-o", "args=").stdout
    for name, end in ends.items():
        ran = server.login.read(f"{NOTES}/{name}/ran").decode().split()
        assert ran == [end.result()], f"{name} runs once, and red-box has its id"
        ask = ("sacct", SINCE, "-X", "-D", "-n", "-P", "-o", "State", f"--name={name}")
        eventually(lambda ask=ask: server.login.run(*ask, user="alice").stdout.split() == ["COMPLETED"])  # type: ignore[misc]
