"""The accounting of a cluster, which slurmrestd asks slurmdbd for: clusters, accounts and users.

Only additions: what an administrator has changed in slurmdbd is never changed back. A cluster that slurmdbd
does not know is answered like a user whom it has already (304), so ask `clusters` first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict

from redbox_hosting.slurm.answers import Done
from redbox_hosting.slurm.client import AnswerT, SlurmrestdClient
from redbox_hosting.slurm.errors import NotServed, SlurmRefusal, SlurmUnknown, SlurmUnreachable

USERS_AT_ONCE = 500
NO_ANSWER = 9000
"""The number of an answer of nothing, while the connection to slurmdbd breaks."""


class _Row(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class RestClusterController(_Row):
    """The slurmctld that has registered; without a host none has."""

    host: str = ""


class RestCluster(_Row):
    """A cluster that slurmdbd knows."""

    name: str
    controller: RestClusterController = RestClusterController()


class RestClusterList(_Row):
    """GET clusters."""

    clusters: tuple[RestCluster, ...]


class RestAssociation(_Row):
    """One of a user: an account of a cluster."""

    account: str
    cluster: str


class RestUser(_Row):
    """A user that slurmdbd knows."""

    name: str
    associations: tuple[RestAssociation, ...]


class RestUserList(_Row):
    """GET users."""

    users: tuple[RestUser, ...]


class SlurmdbClient:
    """slurmdbd by the slurmrestd of one of its clusters."""

    def __init__(self, slurmrestd: SlurmrestdClient) -> None:
        self._slurmrestd = slurmrestd

    async def registered_clusters(self) -> frozenset[str]:
        """The names of clusters whose slurmctld has registered."""
        answer = await self._ask(RestClusterList, "GET", "clusters/")
        return frozenset(cluster.name for cluster in answer.clusters if cluster.controller.host)

    async def accounts_of_users(self, cluster: str) -> Mapping[str, frozenset[str]]:
        """Of those that have any account of this cluster; all in lower case."""
        answer = await self._ask(RestUserList, "GET", "users/?with_assocs=true")
        found: dict[str, set[str]] = {}
        for user in answer.users:
            for each in user.associations:
                if each.cluster == cluster:
                    found.setdefault(user.name.lower(), set()).add(each.account.lower())
        return {user: frozenset(accounts) for user, accounts in found.items()}

    async def add_accounts(self, accounts: Collection[str], cluster: str, description: str) -> None:
        """Nothing is changed of those that exist."""
        fields = {
            "association_condition": {"accounts": [*accounts], "clusters": [cluster]},
            "account": {"description": description, "organization": "red-box"},
        }
        await self._ask(Done, "POST", "accounts_association/", fields)

    async def add_users(
        self, users: Collection[str], account: str, cluster: str, *, is_default: bool
    ) -> None:
        """As their default account only for users that have none, since it replaces another one."""
        ordered = sorted(users)
        for begin in range(0, len(ordered), USERS_AT_ONCE):
            fields = {
                "association_condition": {
                    "users": ordered[begin : begin + USERS_AT_ONCE],
                    "accounts": [account],
                    "clusters": [cluster],
                },
                "user": {"defaultaccount": account} if is_default else {},
            }
            await self._ask(Done, "POST", "users_association/", fields)

    async def _ask(
        self, answer: type[AnswerT], method: str, path: str, fields: Mapping[str, Any] | None = None
    ) -> AnswerT:
        try:
            return await self._slurmrestd.ask("slurmdb", answer, method, path, fields)
        except SlurmUnreachable as error:
            raise SlurmUnreachable("slurmdbd does not answer") from error
        except NotServed as error:
            raise SlurmUnknown("slurmrestd has been started without accounting") from error
        except SlurmRefusal as error:
            if error.number == NO_ANSWER:
                raise SlurmUnknown("slurmdbd does not answer") from error
            raise
