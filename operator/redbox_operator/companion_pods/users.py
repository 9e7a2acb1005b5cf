"""The Unix user of a namespace's companions on Kubernetes' nodes. Pure.

A process that leaves its container has the files and processes of its user on that node. So companions share
theirs with no controller, and with another namespace only where the names' hashes meet. It follows from the
namespace's name alone: another operator, and a namespace that was made again, find their results as they left
them. So who may choose a namespace's name can search for one that has the user of another namespace.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

LOWEST_USER, HIGHEST_USER = 1000, 2**31 - 1
"""Kubernetes refuses users above."""


@dataclass(frozen=True)
class CompanionUsers:
    """The range. Its default is within what systemd leaves to containers, beyond the accounts of people."""

    first: int = 1_000_000_000
    count: int = 500_000_000

    def __post_init__(self) -> None:
        if (last := self.first + self.count - 1) > HIGHEST_USER:
            raise ValueError(
                f"operator.companionUsers: first + count - 1 is {last}, and a pod's user is at most "
                f"{HIGHEST_USER}: lower first or count"
            )

    def user_of(self, namespace: str) -> int:
        """Also the group, and that of a volume of results."""
        digest = hashlib.sha256(namespace.encode()).digest()
        return self.first + int.from_bytes(digest[:8], "big") % self.count
