"""systemd as PID 1 on a host of the bed, in namespaces within the host's: its root, its network, its users.

The bed's hosts run without it. Booted here it finds what it would on a login node: a /run of its own and a
hierarchy of control groups (version 2: recent releases want no other).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from subprocess import CompletedProcess

from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Daemon, Host

BOOTED_WITHIN_S = 60
NAME = "systemd"
# What a first boot does to a host, and what looks for updates: neither belongs to these tests.
LEFT_OUT = (
    "ldconfig.service", "systemd-journal-catalog-update.service", "systemd-modules-load.service",
    "systemd-sysusers.service", "systemd-update-done.service", "timers.target",
)  # fmt: skip

# It arranges the groups below one of our own, and leaves the machine's alone; /proc/sys is the machine's too.
_BOOT = """
set -eu
group=$1; shift
see_groups() {
    while umount /sys/fs/cgroup/* /sys/fs/cgroup 2>/dev/null; do :; done
    mount -t cgroup2 cgroup2 /sys/fs/cgroup
}
if [ "$group" ]; then
    see_groups
    mkdir -p "/sys/fs/cgroup/$group"
    echo 0 >"/sys/fs/cgroup/$group/cgroup.procs"
    exec unshare --cgroup --mount -- sh -c "$0" "$0" "" "$@"
fi
mount -t proc proc /proc
mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys
see_groups
mount -t tmpfs -o mode=755,nosuid,nodev tmpfs /run
mkdir -p /run/systemd/system /run/systemd/journald.conf.d
printf '[Journal]\\nStorage=volatile\\n' >/run/systemd/journald.conf.d/volatile.conf
for unit; do ln -s /dev/null "/run/systemd/system/$unit"; done
exec env -i container=redbox-bed PATH=/usr/sbin:/usr/bin \\
    /usr/lib/systemd/systemd --system --unit=basic.target --log-target=console
"""
# What was killed leaves them a moment later.
_REMOVE_GROUPS = """
umount /sys/fs/cgroup/* /sys/fs/cgroup 2>/dev/null
mount -t cgroup2 cgroup2 /sys/fs/cgroup
for attempt in $(seq 50); do
    find "/sys/fs/cgroup/$0" -depth -type d -exec rmdir {} + 2>/dev/null && break
    sleep 0.2
done
"""


@dataclass(frozen=True)
class SystemdHost:
    """The host as systemd runs it."""

    host: Host
    pid: str  # systemd's, as the host counts

    def run(
        self, *argv: str, user: str = "", check: bool = True, timeout: float = 60
    ) -> CompletedProcess[str]:
        """A command of an administrator, or of a user, in what systemd made."""
        become = ("runuser", "-u", user, "--") if user else ()
        enter = ("nsenter", f"--target={self.pid}", "--mount", "--pid", "--ipc", "--cgroup", "--")
        return self.host.run(*enter, *become, *argv, check=check, timeout=timeout)

    def property(self, unit: str, name: str) -> str:
        """What `systemctl show` says of it."""
        return self.run("systemctl", "show", f"--property={name}", "--value", unit).stdout.strip()

    def said(self, unit: str) -> str:
        """The unit's journal."""
        return self.run("journalctl", "--unit", unit, "--output=cat", "--no-pager").stdout


@contextmanager
def booted(bed: Bed, name: str) -> Iterator[SystemdHost]:
    """Boot it on that host; at the end its processes, mounts and control groups are gone."""
    host, group = bed.host(name), f"{bed.places.name}-systemd"
    namespaces = ("unshare", "--mount", "--pid", "--ipc", "--fork", "--kill-child", "--")
    host.ensure(Daemon(NAME, (*namespaces, "sh", "-c", _BOOT, _BOOT, group, *LEFT_OUT)))
    try:
        yield _when_booted(host)
    finally:
        if host.running(NAME):
            host.kill(NAME)
        host.run("unshare", "--mount", "sh", "-c", _REMOVE_GROUPS, group, check=False)


def _when_booted(host: Host) -> SystemdHost:
    deadline = time.monotonic() + BOOTED_WITHIN_S
    while time.monotonic() < deadline:
        first = host.run("cat", f"/run/bed/{NAME}.pid").stdout.split()[0]
        pid = host.run("pgrep", "--parent", first, "--exact", "systemd", check=False).stdout.strip()
        if pid:
            machine = SystemdHost(host, pid)
            if machine.run("systemctl", "is-active", "basic.target", check=False).returncode == 0:
                return machine
        assert host.running(NAME), f"systemd ended: {host.log_path(NAME).read_text()[-500:]}"
        time.sleep(0.3)
    raise AssertionError(f"systemd did not come up: {host.log_path(NAME).read_text()[-500:]}")
