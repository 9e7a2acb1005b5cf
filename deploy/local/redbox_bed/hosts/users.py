"""The Unix accounts of the Slurm hosts, as the shell commands that make them in a root.

Slurm's own accounts (slurmdbd) are in slurm.py; this is /etc/passwd and /etc/group only.
"""

from __future__ import annotations

from redbox_bed.core.plan import MEMBERS_GROUP, SERVICE_ACCOUNT, USERS, User

MEMBERS_GID = 2100


def account_commands(users: tuple[User, ...] = USERS) -> str:
    """A script for the inside of a root. No password, but not locked either ('*'), so sshd takes keys."""
    lines = [f"groupadd -g {MEMBERS_GID} {MEMBERS_GROUP}"]
    lines += [
        f"useradd -u {user.uid} -U -M -d /home/{user.name} -s /bin/bash -p '*' -G {MEMBERS_GROUP} {user.name}"
        for user in users
    ]
    lines += [
        f"useradd -r -M -d /var/lib/{SERVICE_ACCOUNT} -s /usr/sbin/nologin {SERVICE_ACCOUNT}",
        "useradd -r -M -d /nonexistent -s /usr/sbin/nologin slurmrestd",
    ]
    return "\n".join(lines) + "\n"
