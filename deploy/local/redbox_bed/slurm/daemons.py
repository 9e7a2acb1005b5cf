"""Which daemons each Slurm host runs, and how each is started. Pure."""

from __future__ import annotations

from redbox_bed.core.plan import SLURMRESTD_PORT, HostSpec, Release, Role, SlurmCluster
from redbox_bed.hosts.host import Daemon

# A munged that was killed leaves its socket behind, and the next one takes that for a running one.
MUNGED = Daemon(
    "munged",
    (
        "sh", "-ec",
        """
        install -d -o munge -g munge -m 755 /run/munge
        rm -f /run/munge/munge.socket.2
        exec setpriv --reuid=munge --regid=munge --clear-groups /usr/sbin/munged --foreground
        """,
    ),
)  # fmt: skip
SSHD = Daemon("sshd", ("/usr/sbin/sshd", "-D", "-e"))
MARIADBD = Daemon(
    "mariadbd",
    ("sh", "-ec", "install -d -o mysql -g mysql /run/mysqld; exec /usr/sbin/mariadbd --user=mysql"),
)
SLURMDBD = Daemon(
    "slurmdbd",
    ("/usr/sbin/slurmdbd", "-D"),
    env={"MYSQL_UNIX_PORT": "/run/mysqld/mysqld.sock"},  # unstable's client library looks elsewhere
)
SLURMCTLD = Daemon("slurmctld", ("/usr/sbin/slurmctld", "-D"))
SLURMD = Daemon("slurmd", ("/usr/sbin/slurmd", "-D"))
_CONTROLLER_API = {
    Release.V22_05: "v0.0.38,v0.0.37,v0.0.36",
    Release.V24_11: "slurmctld",
    Release.V26_05: "slurmctld",
}
"""What slurmrestd serves where there is no slurmdbd; by default it serves both, and then does not start."""


def slurmrestd(cluster: SlurmCluster) -> Daemon:
    """It takes tokens only. A user of its own, since it refuses to run as root or as SlurmUser."""
    only = () if cluster.accounting else ("-s", _CONTROLLER_API[cluster.release])
    return Daemon(
        "slurmrestd",
        ("/usr/sbin/slurmrestd", "-a", "rest_auth/jwt", *only, f"0.0.0.0:{SLURMRESTD_PORT}"),
        user="slurmrestd",
        # With more than one malloc arena each listing of 5,000 jobs costs 0.5 GB that is not given back.
        env={"MALLOC_ARENA_MAX": "1", "SLURM_JWT": "daemon"},
    )


def daemons_of(cluster: SlurmCluster, spec: HostSpec) -> tuple[Daemon, ...]:
    """A host's daemons in the order in which they need each other."""
    if spec.role is Role.LOGIN:
        return (MUNGED, SSHD)
    if spec.role is Role.COMPUTE:
        return (MUNGED, SLURMD)
    database = (MARIADBD, SLURMDBD) if cluster.accounting else ()
    return (MUNGED, *database, SLURMCTLD, slurmrestd(cluster))
