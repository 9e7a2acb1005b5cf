"""Submits that the network delivers when their sbatch has long given up: each key runs once all the same.

REDBOX_DELAYS says by how many seconds (20,50), and has red-box's own settings stand: REDBOX_DELAYS=30,90,400
takes eight minutes. What is late by more than munge's five minutes is refused by slurmctld.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from redbox.agents.install_texts import render_agent_conf
from redbox.agents.program.guard import DEFAULT_MIN_UID, DEFAULT_PATH
from redbox_api.client import RedboxClient
from redbox_api.errors import Busy
from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Daemon, Host
from tests.e2e.harness.redbox_jobs import ended, new_key, script
from tests.e2e.harness.redbox_server import RedboxServer, install, running

ASKED = os.environ.get("REDBOX_DELAYS")
DELAYS = [int(delay) for delay in (ASKED or "20,50").split(",")]
SETTINGS = {} if ASKED else {"jobs": {"settle_s": 15.0}}
FOLDER = "/opt/late"
FIRST_PORT = 17000
SBATCH = f"""\
#!/bin/sh
# Jobs named late-N reach slurmctld through the relay that is late by N seconds.
for word; do case $word in --job-name=late-*) late=${{word#--job-name=late-}} ;; esac; done
[ -z "$late" ] || export SLURM_CONF={FOLDER}/$late.conf
exec /usr/bin/sbatch "$@"
"""
RELAY = """\
# The first connection to each port is delivered late, whether or not its caller still waits.
import asyncio, sys

async def pump(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()

def relay(delay, controller):
    late = [delay]
    async def connected(reader, writer):
        await asyncio.sleep(late.pop() if late else 0)
        there, back = await asyncio.open_connection(controller, 6817)
        await asyncio.gather(pump(reader, back), pump(there, writer))
    return connected

async def main(address, controller, *delays):
    for delay in map(int, delays):
        await asyncio.start_server(relay(delay, controller), address, 17000 + delay)
    await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def server(bed: Bed) -> Iterator[RedboxServer]:
    """One whose users' sbatch is another."""
    install(bed)
    login = bed.host("login")
    conf = login.read("/etc/slurm/slurm.conf").decode()
    for delay in DELAYS:
        here = f"SlurmctldHost=ctl({login.spec.address})\nSlurmctldPort={FIRST_PORT + delay}"
        login.write(f"{FOLDER}/{delay}.conf", conf.replace("SlurmctldHost=ctl", here))
    login.write(f"{FOLDER}/sbatch", SBATCH, mode=0o755)
    login.write(f"{FOLDER}/relay", RELAY)
    late_first = render_agent_conf(min_uid=DEFAULT_MIN_UID, path=f"{FOLDER}:{DEFAULT_PATH}")
    login.write("/etc/redbox/agent.conf", late_first)
    addresses = (login.spec.address, bed.host("ctl").spec.address)
    login.ensure(Daemon("late-relay", ("/usr/bin/python3", f"{FOLDER}/relay", *addresses, *map(str, DELAYS))))
    try:
        with running(bed, sections=SETTINGS) as server:
            yield server
    finally:
        usual = render_agent_conf(min_uid=DEFAULT_MIN_UID, path=DEFAULT_PATH)
        login.write("/etc/redbox/agent.conf", usual)
        login.kill("late-relay")
        login.run("rm", "-rf", FOLDER)


async def put_until_ended(client: RedboxClient, key: str, delay: int, ran: str) -> str:
    """As a companion does; returns the id of the job that ended."""
    refusals = 0
    while True:
        try:
            await client.put_job(key, script(f"echo $SLURM_JOB_ID >>{ran}", name=f"late-{delay}"))
            break
        except Busy as busy:
            refusals += 1
            await asyncio.sleep(min(busy.retry_after or 1, 5))
    assert refusals, "the submit was answered: it was not late"
    return str((await ended(client, key, within_s=500)).job_id)


@pytest.mark.timeout(max(DELAYS) + 600)
@pytest.mark.nightly
async def test_a_submit_that_arrives_late_makes_one_job_that_runs_once(server: RedboxServer) -> None:
    login: Host = server.login
    keys = {delay: new_key() for delay in DELAYS}
    files = {delay: f"/home/alice/late-{key}" for delay, key in keys.items()}
    arrived_at = asyncio.get_running_loop().time() + max(DELAYS) + 20
    async with server.client_of("alice") as client, asyncio.TaskGroup() as group:
        ends = {
            delay: group.create_task(put_until_ended(client, key, delay, files[delay]))
            for delay, key in keys.items()
        }
    await asyncio.sleep(max(0.0, arrived_at - asyncio.get_running_loop().time()))
    for delay, end in ends.items():
        assert login.read(files[delay]).decode().split() == [end.result()], f"late by {delay} s"
