"""sacctmgr: accounts that a user may charge, the QOS of each, and whether slurmdbd hides jobs."""

from __future__ import annotations

import re

DELIMITER = "|"  # Slurm's own names of accounts and QOS hold none, and only administrators give them


def associations(user: str) -> list[str]:
    return [
        "sacctmgr",
        "--noheader",
        "--parsable2",
        "--readonly",
        "show",
        "associations",
        f"user={user}",
        "format=Account,QOS",
    ]


def read_associations(text: str) -> dict[str, tuple[str, ...]]:
    """QOS by account; an account with one association a partition is one account."""
    accounts: dict[str, set[str]] = {}
    for line in text.splitlines():
        account, _, qos = line.partition(DELIMITER)
        if account:
            accounts.setdefault(account, set()).update(word for word in qos.split(",") if word)
    return {account: tuple(sorted(qos)) for account, qos in sorted(accounts.items())}


def show_configuration() -> list[str]:
    return ["sacctmgr", "--noheader", "--readonly", "show", "configuration"]


def hides_jobs(text: str) -> bool:
    """Whether slurmdbd's own PrivateData, in the second part of the answer, names jobs."""
    _, _, database = text.partition("SlurmDBD configuration:")
    found = re.search(r"^PrivateData\s*=\s*(.*)$", database, re.MULTILINE)
    return found is not None and "jobs" in found[1].lower().split(",")
