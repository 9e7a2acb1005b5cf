"""A slurmctld on one of the bed's Slurm hosts, next to the one of the bed: outside of Kubernetes.

It has its own configuration, state, port and key; with munge, the host's munged and its key.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from redbox_bed.bed import Bed
from redbox_bed.core.plan import Role
from redbox_bed.hosts.host import Daemon, Host
from tests.e2e.harness.waiting import eventually

FOLDER = "/tmp/outside"
CLUSTER, PORT = "outside", 26817
NAME = "outside-slurmctld"
CONF = """\
ClusterName={cluster}
SlurmctldHost={host}({address})
SlurmctldPort={port}
SlurmUser=slurm
{auth}
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={folder}/jwt.key
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
SlurmdSpoolDir=/var/spool/slurmd
LogTimeFormat=iso8601_ms,format_stderr
SlurmctldSyslogDebug=quiet
SlurmdSyslogDebug=quiet
SlurmctldParameters=enable_configless
SlurmdParameters=config_overrides
MaxNodeCount=64
TreeWidth=64
ReturnToService=1
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=64
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
PropagateResourceLimits=NONE
LaunchParameters=enable_nss_slurm
MpiDefault=none
MailProg=/bin/true
GresTypes=gpu
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0
NodeSet=cpu Feature=cpu
PartitionName=burst Nodes=cpu Default=YES OverSubscribe=EXCLUSIVE MaxTime=UNLIMITED State=UP
"""
SLURM_AUTH = "AuthType=auth/slurm\nCredType=cred/slurm\nAuthInfo=use_client_ids"
MUNGE_AUTH = "AuthType=auth/munge\nCredType=cred/munge"


@dataclass(frozen=True)
class OutsideSlurm:
    """Its host, and the keys that Kubernetes is given."""

    host: Host
    keys: dict[str, bytes]

    @property
    def address(self) -> str:
        return self.host.spec.address

    def run(self, *command: str) -> str:
        """A command of Slurm on the host, as root."""
        conf = {"SLURM_CONF": f"{FOLDER}/slurm.conf"}
        return self.host.run(*command, env=conf, timeout=90).stdout.strip()

    def answers(self) -> bool:
        conf = {"SLURM_CONF": f"{FOLDER}/slurm.conf"}
        return " UP" in self.host.run("scontrol", "ping", env=conf, check=False).stdout

    def job(self, job: str) -> dict[str, str]:
        fields = self.run("scontrol", "--oneliner", "show", "job", job).split()
        return dict(field.split("=", 1) for field in fields if "=" in field)


@contextmanager
def outside_slurm(bed: Bed, *, munge: bool) -> Iterator[OutsideSlurm]:
    """As long as the block lasts."""
    spec = bed.plan.of_role(Role.CONTROLLER)[0]
    host = bed.host(spec.name)
    keys = {"slurm.key": secrets.token_bytes(32), "jwt.key": secrets.token_bytes(32)}
    if munge:
        keys["munge.key"] = host.read("/etc/munge/munge.key")
    host.run("rm", "-rf", FOLDER)
    host.run("install", "-d", "-o", "slurm", "-g", "slurm", FOLDER, f"{FOLDER}/state")
    conf = CONF.format(
        cluster=CLUSTER,
        host=spec.name,
        address=spec.address,
        port=PORT,
        folder=FOLDER,
        auth=MUNGE_AUTH if munge else SLURM_AUTH,
    )
    files = {
        "slurm.conf": conf.encode(),
        "cgroup.conf": b"CgroupPlugin=disabled\n",
        "jwt.key": keys["jwt.key"],
    }
    if not munge:
        files["slurm.key"] = keys["slurm.key"]
    for name, content in files.items():
        private = name.endswith(".key")
        host.write(f"{FOLDER}/{name}", content, mode=0o600 if private else 0o644, owner="slurm:slurm")
    # As root, which makes /run/slurmctld and becomes SlurmUser.
    daemon = Daemon(NAME, ("/usr/sbin/slurmctld", "-D", "-f", f"{FOLDER}/slurm.conf"))
    host.ensure(daemon)
    try:
        slurm = OutsideSlurm(host, keys)
        eventually(slurm.answers, what="slurmctld outside")
        yield slurm
    finally:
        host.kill(NAME)
        host.run("rm", "-rf", FOLDER)
