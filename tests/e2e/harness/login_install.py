"""The login host before red-box was installed, for tests that install it themselves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redbox_bed import login_node
from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host

AGENT = "/usr/libexec/redbox/agent"
SERVICE = "redbox.service"
UNIT = f"/etc/systemd/system/{SERVICE}"
MADE = (
    "/etc/sysusers.d/redbox.conf",
    "/etc/tmpfiles.d/redbox.conf",
    "/etc/logrotate.d/redbox",
    UNIT,
    "/etc/sudoers.d/redbox",
    AGENT,
    "/usr/local/bin/redbox",
)
STATE = "/var/lib/redbox"
HELD = (*MADE, "/etc/redbox", "/opt/redbox", "/var/log/redbox")
BEFORE = "/tmp/redbox-before.tar"
ACCOUNTS = ("/etc/passwd", "/etc/group", "/etc/shadow", "/etc/gshadow")


@contextmanager
def without_red_box(bed: Bed) -> Iterator[Host]:
    """The login host without red-box; what was installed there is put back at the end."""
    host = bed.host("login")
    ran = host.running(login_node.SERVICE)
    if ran:
        host.kill(login_node.SERVICE)
    present = [path for path in HELD if host.run("test", "-e", path, check=False).returncode == 0]
    host.run("tar", "--create", "--absolute-names", f"--file={BEFORE}", *ACCOUNTS, STATE, *present)
    host.run("rm", "-rf", *HELD)
    host.run("find", STATE, "-mindepth", "1", "-delete")
    try:
        yield host
    finally:
        if host.running(login_node.SERVICE):
            host.kill(login_node.SERVICE)
        host.run("rm", "-rf", *HELD)
        host.run("find", STATE, "-mindepth", "1", "-delete")
        # The accounts first: the owners of the files are numbers.
        for paths in (ACCOUNTS, ()):
            host.run("tar", "--extract", "--absolute-names", f"--file={BEFORE}", *paths)
        if ran:
            login_node.start(host)
