"""Which SlurmEndpoints are served: of each namespace and of all so many, the oldest first. Pure.

Each is a connection, and memory, of the operator that serves all; users of a namespace make as many as they
like. A new one never takes the place of one that is served.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import islice
from typing import NamedTuple

MOST_OF_A_NAMESPACE = 4


class _Age(NamedTuple):
    created: str
    uid: str
    key: str


@dataclass
class EndpointPlaces:
    """All SlurmEndpoints by their age."""

    most: int
    """Of all namespaces."""
    _of_namespace: dict[str, list[_Age]] = field(default_factory=dict)
    _by_key: dict[str, _Age] = field(default_factory=dict)
    _served: frozenset[str] = frozenset()

    def add(self, key: str, namespace: str, created: str, uid: str) -> frozenset[str]:
        """Returns the keys of those that are served from now on or no longer."""
        age = _Age(created, uid, key)
        if self._by_key.get(key) == age:
            return frozenset()
        self._drop(key, namespace)
        self._by_key[key] = age
        insort(self._of_namespace.setdefault(namespace, []), age)
        return self._changes()

    def remove(self, key: str, namespace: str) -> frozenset[str]:
        """Returns the same."""
        self._drop(key, namespace)
        return self._changes()

    def refusal(self, key: str, namespace: str) -> str | None:
        """Why it is not served, and what to do; None: it is."""
        if key in self._served:
            return None
        if key not in {age.key for age in islice(self._of_namespace.get(namespace, ()), MOST_OF_A_NAMESPACE)}:
            return (
                f"its namespace has {MOST_OF_A_NAMESPACE} older SlurmEndpoints, and no more are served: "
                "delete one of them"
            )
        return (
            f"the operator serves {self.most} SlurmEndpoints, and older ones have all places: its "
            "administrator may raise operator.slurmEndpoints.most"
        )

    def _drop(self, key: str, namespace: str) -> None:
        age = self._by_key.pop(key, None)
        if age is not None:
            self._of_namespace[namespace].remove(age)
            if not self._of_namespace[namespace]:
                del self._of_namespace[namespace]

    def _changes(self) -> frozenset[str]:
        before = self._served
        self._served = frozenset(age.key for age in nsmallest(self.most, self._admitted()))
        return before ^ self._served

    def _admitted(self) -> Iterator[_Age]:
        for ages in self._of_namespace.values():
            yield from islice(ages, MOST_OF_A_NAMESPACE)
