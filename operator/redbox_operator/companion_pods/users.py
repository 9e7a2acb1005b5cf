"""The Unix user of a namespace's companions on Kubernetes' nodes. Pure.

A process that leaves its container has the files and processes of its user on that node. So companions share
theirs with no other namespace, nor with a controller. It follows from the namespace's name alone: another
operator, and a namespace that was made again, find their results as they left them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

LOWEST_USER = 1000


@dataclass(frozen=True)
class CompanionUsers:
    """The range. Its default is within what systemd leaves to containers, beyond the accounts of people."""

    first: int = 1_000_000_000
    count: int = 500_000_000

    def user_of(self, namespace: str) -> int:
        """Also the group, and that of a volume of results."""
        digest = hashlib.sha256(namespace.encode()).digest()
        return self.first + int.from_bytes(digest[:8], "big") % self.count
