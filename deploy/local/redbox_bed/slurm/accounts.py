"""Slurm's own accounts, users and QOS, as the lines that sacctmgr is given. Pure."""

from __future__ import annotations

from redbox_bed.core.plan import USERS, User

TINY_QOS_JOBS = 2
"""How many jobs a user may have under the QOS `tiny`."""


def sacctmgr_lines(cluster: str, users: tuple[User, ...] = USERS) -> list[str]:
    """Everything that a new database records of a cluster."""
    accounts = sorted({account for user in users for account in user.accounts})
    lines = [
        f"add cluster {cluster}",
        "add qos high Priority=1000",
        f"add qos tiny MaxSubmitJobsPerUser={TINY_QOS_JOBS}",
    ]
    lines += [f"add account {account} Description={account} Organization=uni" for account in accounts]
    for user in users:
        if user.accounts:
            lines.append(
                f"add user {user.name} Account={','.join(user.accounts)} DefaultAccount={user.accounts[0]}"
            )
            lines.append(f"modify user {user.name} set QOS=normal,high,tiny DefaultQOS=normal")
    return lines


def associations(users: tuple[User, ...] = USERS) -> set[tuple[str, str]]:
    """Who belongs to which account, once all of the lines have been obeyed."""
    return {(account, user.name) for user in users for account in user.accounts}


def parse_associations(text: str) -> set[tuple[str, str]]:
    """From `sacctmgr -nP list assoc format=account,user`; accounts themselves have a row without a user."""
    rows = (line.split("|") for line in text.splitlines() if "|" in line)
    return {(account, user) for account, user in rows if user}
