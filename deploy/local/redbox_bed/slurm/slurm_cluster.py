"""Brings a Slurm cluster's daemons up in the order in which they need each other, and says how they are.

What runs where is in daemons.py, their configuration in conf.py and accounts.py.
"""

from __future__ import annotations

import signal
import stat
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from redbox_bed.core.errors import BedError, CommandError, DaemonError
from redbox_bed.core.part_status import PartStatus
from redbox_bed.core.plan import SLURMRESTD_PORT, Release, SlurmCluster
from redbox_bed.hosts.host import Daemon, Host
from redbox_bed.hosts.waiting import wait_until, wait_until_serves
from redbox_bed.slurm.accounts import associations, parse_associations, sacctmgr_lines
from redbox_bed.slurm.conf import steps_group
from redbox_bed.slurm.daemons import (
    MARIADBD,
    MUNGED,
    SLURMCTLD,
    SLURMD,
    SLURMDBD,
    SSHD,
    daemons_of,
    slurmrestd,
)

SLURMCTLD_PORT = 6817
SLURMDBD_PORT = 6819
SSH_PORT = 22
_START_SECONDS = 120
_NODES_SECONDS = 120
_END_SECONDS = 20
_ENDS_TRIED = 3
_STATE = "/var/spool/slurmctld"
_IN_SERVICE = frozenset(
    {"idle", "mixed", "allocated", "completing", "drained", "draining", "planned", "reserved", "maint"}
)


class Slurm:
    """One cluster on its hosts, which must be booted."""

    def __init__(self, cluster: SlurmCluster, hosts: Mapping[str, Host]) -> None:
        self.cluster = cluster
        self._hosts = {name: hosts[name] for name in cluster.hosts}
        self._controller = hosts[cluster.controller]
        self._login = hosts[cluster.login]
        self._nodes = [hosts[node.name] for node in cluster.nodes]

    def up(self) -> None:
        """Start what does not run; return when every node is in service."""
        with ThreadPoolExecutor(max_workers=len(self._hosts)) as pool:
            list(pool.map(_ensure_munge, self._hosts.values()))
        for host in (self._login, self._controller, *self._nodes):
            self._start_daemons(host)
        self._ensure_nodes_in_service()

    def start_host(self, host: Host) -> None:
        """Start what runs on one host, as after its power came back; the others are left as they are."""
        _ensure_munge(host)
        self._start_daemons(host)

    def status(self) -> list[PartStatus]:
        return [
            _daemon_status(host, daemon)
            for host in self._hosts.values()
            for daemon in daemons_of(self.cluster, host.spec)
        ]

    def _start_daemons(self, host: Host) -> None:
        if host is self._login:
            self._ensure_listening(host, SSHD, SSH_PORT)
        elif host is self._controller:
            if self.cluster.accounting:
                self._ensure_accounting()
            self._ensure_slurmctld()
            self._ensure_listening(host, slurmrestd(self.cluster), SLURMRESTD_PORT)
        else:
            host.delegate_group(steps_group(host.name))
            host.ensure(SLURMD)

    # ------------------------------------------------------------------------- accounting
    def _ensure_accounting(self) -> None:
        if not self._controller.running(SLURMDBD.name):
            self._controller.ensure(MARIADBD)
            pings = partial(self._answers, "mariadb-admin", "ping")
            wait_until_serves(self._controller, MARIADBD, pings, _START_SECONDS)
            self._make_database_user()
        self._ensure_listening(self._controller, SLURMDBD, SLURMDBD_PORT)
        # Before slurmctld starts, so that its first contact with slurmdbd needs no retry.
        if not self._has_accounts():
            self._make_accounts()

    def _has_accounts(self) -> bool:
        query = ("sacctmgr", "-nP", "list", "assoc", f"cluster={self.cluster.name}", "format=account,user")
        return associations() <= parse_associations(self._controller.run(*query).stdout)

    def _make_accounts(self) -> None:
        """Also where an `up` was broken off half-way: what is there already is a failure to sacctmgr."""
        errors = [
            self._controller.run("sacctmgr", "-iQ", *line.split(), check=False).stderr
            for line in sacctmgr_lines(self.cluster.name)
        ]
        if not self._has_accounts():
            raise DaemonError(f"Slurm's accounts could not be made: {' '.join(' '.join(errors).split())}")

    def _make_database_user(self) -> None:
        """The Unix user slurm, without a password."""
        self._controller.run(
            "mariadb",
            "-e",
            # MariaDB's client library (3.4.9) breaks a connection that is opened again after "no such
            # database", which is how slurmdbd makes it: its next query fails with error 5027.
            "create database if not exists slurm_acct_db; "
            "create user if not exists slurm@localhost identified via unix_socket; "
            "grant all on slurm_acct_db.* to slurm@localhost",
        )

    def _ensure_slurmctld(self) -> None:
        """From 26.05 on it does not start again, if it is killed before it has saved the usage of accounts.

        That is after five minutes, or when it ends in order: so its first start is followed by a second one.
        """
        self._ensure_listening(self._controller, SLURMCTLD, SLURMCTLD_PORT)
        saves_usage = self.cluster.accounting and self.cluster.release is Release.V26_05
        if saves_usage and not _exists(self._controller, f"{_STATE}/assoc_usage"):
            self._end_slurmctld()
            self._ensure_listening(self._controller, SLURMCTLD, SLURMCTLD_PORT)

    def _end_slurmctld(self) -> None:
        """In order. One that has only begun can miss the signal, or hang: it has no state yet to lose."""
        for _ in range(_ENDS_TRIED):
            try:
                self._controller.kill(SLURMCTLD.name, signal.SIGTERM, _END_SECONDS)
            except BedError:
                self._controller.kill(SLURMCTLD.name)
                self._controller.run("sh", "-c", f"rm -rf {_STATE}/*")
                self._ensure_listening(self._controller, SLURMCTLD, SLURMCTLD_PORT)
            else:
                return
        raise DaemonError(f"slurmctld on {self._controller.name} does not end by SIGTERM")

    # ------------------------------------------------------------------------- nodes
    def _ensure_nodes_in_service(self) -> None:
        """Resume nodes that slurmctld gave up while they were away: by itself it takes minutes."""

        def in_service() -> bool:
            states = self.node_states()
            down = [name for name, state in states.items() if state.rstrip("*") == "down"]
            if down:
                self._controller.run(
                    "scontrol", "update", f"NodeName={','.join(down)}", "State=RESUME", check=False
                )
            return are_in_service((node.name for node in self.cluster.nodes), states)

        wait_until(
            in_service,
            _NODES_SECONDS,
            f"not all nodes of {self.cluster.name} came into service",
            log=self._controller.log_path(SLURMCTLD.name),
        )

    def node_states(self) -> dict[str, str]:
        """Each node's state, with a mark such as `*` where it does not respond; empty without slurmctld."""
        try:
            done = self._controller.run("sinfo", "-hN", "-o", "%N %T", timeout=30)
        except CommandError:
            return {}
        return parse_node_states(done.stdout)

    # ------------------------------------------------------------------------- daemons
    def _ensure_listening(self, host: Host, daemon: Daemon, port: int) -> None:
        host.ensure(daemon)
        wait_until_serves(host, daemon, lambda: _listens(host, port), _START_SECONDS)

    def _answers(self, *argv: str) -> bool:
        return self._controller.run(*argv, check=False).returncode == 0


def parse_node_states(text: str) -> dict[str, str]:
    """From `sinfo -hN -o '%N %T'`: a node stands there once for each of its partitions."""
    return dict(line.split(maxsplit=1) for line in text.splitlines() if " " in line)


def are_in_service(nodes: Iterable[str], states: Mapping[str, str]) -> bool:
    return all(states.get(name) in _IN_SERVICE for name in nodes)


def listening_ports(table: str) -> set[int]:
    """From the text of /proc/net/tcp: the ports in state LISTEN (0A)."""
    rows = (line.split() for line in table.splitlines()[1:])
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A"}


def _ensure_munge(host: Host) -> None:
    host.ensure(MUNGED)
    listens = partial(_is_socket, host, "/run/munge/munge.socket.2")
    wait_until_serves(host, MUNGED, listens, _START_SECONDS)


def _listens(host: Host, port: int) -> bool:
    """Seen from outside: a connection would leave a complaint in the daemon's log."""
    return any(
        port in listening_ports(Path(f"/proc/{host.pid()}/net/{table}").read_text()) for table in ("tcp",)
    )


def _exists(host: Host, path: str) -> bool:
    return Path(f"/proc/{host.pid()}/root{path}").exists()


def _is_socket(host: Host, path: str) -> bool:
    try:
        return stat.S_ISSOCK(Path(f"/proc/{host.pid()}/root{path}").stat().st_mode)
    except FileNotFoundError:
        return False


def _daemon_status(host: Host, daemon: Daemon) -> PartStatus:
    pid = host.daemon_pid(daemon.name)
    return PartStatus(daemon.name, host.name, pid is not None, f"pid {pid}" if pid else "not running")
