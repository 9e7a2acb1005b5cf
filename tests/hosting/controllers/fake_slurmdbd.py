"""A slurmdbd in memory behind a slurmrestd on loopback: clusters, accounts and users, as Slurm answers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from redbox_hosting.slurm.client import SlurmrestdClient
from tests.hosting.slurm.scripted_server import ScriptedServer, response, serving

Account = tuple[str, str]
"""An account of a cluster."""


@dataclass
class FakeSlurmdbd:
    """What slurmdbd stores."""

    clusters: dict[str, str] = field(default_factory=dict)
    """Host of the slurmctld that has registered; empty: none has."""
    accounts: set[Account] = field(default_factory=set)
    users: dict[str, set[Account]] = field(default_factory=dict)
    defaults: dict[tuple[str, str], str] = field(default_factory=dict)
    """Default account of a user on a cluster."""
    is_away: bool = False
    is_served: bool = True
    """Whether slurmrestd has been started with accounting."""
    forgets: set[str] = field(default_factory=set)
    """Users that it does not store, without saying so."""
    server: ScriptedServer = field(init=False)

    @property
    def writes(self) -> list[str]:
        return [path.rpartition("/v")[2] for method, path, _ in self.server.requests if method != "GET"]

    def client(self) -> SlurmrestdClient:
        async def token() -> str:
            return "token"

        return SlurmrestdClient(self.server.endpoint, token=token)

    def answer(self, method: str, path: str) -> bytes:
        if not path.startswith("/slurmdb/"):
            return response({})
        if not self.is_served:
            return response(b"", 404)
        if self.is_away:
            return response({}, 502)
        what = path.partition("/v0.0.")[2].partition("/")[2].partition("/")[0]
        if method == "GET":
            return response(
                {"clusters": self._clusters()} if what == "clusters" else {"users": self._users()}
            )
        return response({}) if self._add(what, self.server.requests[-1][2]) else response(b"", 304)

    def _clusters(self) -> list[dict[str, Any]]:
        return [{"name": name, "controller": {"host": host}} for name, host in self.clusters.items()]

    def _users(self) -> list[dict[str, Any]]:
        return [
            {"name": user, "associations": [{"account": a, "cluster": c} for a, c in sorted(accounts)]}
            for user, accounts in self.users.items()
        ]

    def _add(self, what: str, body: dict[str, Any]) -> bool:
        """Names in lower case, and the new default account in place of another one, as slurmdbd does."""
        asked = body["association_condition"]
        pairs = {(a, c) for a in asked["accounts"] for c in asked["clusters"] if c in self.clusters}
        if what == "accounts_association":
            is_new = not pairs <= self.accounts
            self.accounts |= pairs
            return is_new
        is_new = False
        for user in (name.lower() for name in asked["users"] if name not in self.forgets):
            stored = self.users.setdefault(user, set())
            is_new |= not pairs <= stored
            stored |= pairs
            if default := body["user"].get("defaultaccount"):
                self.defaults |= {(user, cluster): default for _, cluster in pairs}
        return is_new


@asynccontextmanager
async def slurmdbd() -> AsyncIterator[FakeSlurmdbd]:
    made = FakeSlurmdbd()
    async with serving(made.answer) as server:
        made.server = server
        yield made
