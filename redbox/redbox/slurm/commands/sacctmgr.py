"""sacctmgr: the accounts of a user, the QOS of each, and whether slurmdbd hides jobs."""

from __future__ import annotations

import re

DELIMITER = "|"  # not in names of accounts and QOS, which only administrators choose


def associations_argv(user: str) -> list[str]:
    show = ["show", "associations", f"user={user}", "format=Account,QOS"]
    return ["sacctmgr", "--noheader", "--parsable2", "--readonly", *show]


def read_associations(text: str) -> dict[str, tuple[str, ...]]:
    """QOS by account; the associations of one account with several partitions are merged."""
    accounts: dict[str, set[str]] = {}
    for line in text.splitlines():
        account, _, qos = line.partition(DELIMITER)
        if account:
            accounts.setdefault(account, set()).update(word for word in qos.split(",") if word)
    return {account: tuple(sorted(qos)) for account, qos in sorted(accounts.items())}


def configuration_argv() -> list[str]:
    return ["sacctmgr", "--noheader", "--readonly", "show", "configuration"]


def hides_jobs(text: str) -> bool:
    """Whether PrivateData of slurmdbd, in the second part of the output, names jobs, or may do so.

    Sacctmgr leaves that part out where slurmdbd did not give it.
    """
    _, shown, database = text.partition("SlurmDBD configuration:")
    if not shown:
        return True
    found = re.search(r"^PrivateData\s*=\s*(.*)$", database, re.MULTILINE)
    return found is not None and "jobs" in found[1].lower().split(",")
