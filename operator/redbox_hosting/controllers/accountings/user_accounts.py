"""Adds the account `default` and a cluster's users to slurmdbd. Nothing is changed and nothing is removed."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from redbox_hosting.api.controller import SlurmController
from redbox_hosting.controllers.accountings.reporting_clusters import ReportingCluster
from redbox_hosting.controllers.accountings.users import users_in
from redbox_hosting.controllers.config_maps import files_of_config_map
from redbox_hosting.slurm.accounting import SlurmdbClient
from redbox_kube.api.objects import ObjectClient
from redbox_kube.controller.steps import StepFailed

ACCOUNT, ACCOUNT_TEXT = "default", "Users of the cluster"
USERS_AGAIN_S = 600
"""slurmdbd may have got another database."""


class UserAccounts:
    """The users of clusters, as slurmdbd was seen to have them."""

    def __init__(self, objects: ObjectClient, clock: Callable[[], datetime]) -> None:
        self._objects = objects
        self._clock = clock
        self._added: dict[str, tuple[frozenset[str], float]] = {}
        """By the Controller's uid, and when."""

    async def add(self, cluster: ReportingCluster) -> str:
        """What was done; StepFailed where slurmdbd does not have the users afterwards."""
        controller, slurmdb = cluster.controller, cluster.slurmdb
        if slurmdb is None or not cluster.is_registered:
            self._added.pop(controller.uid, None)
            return ""
        wanted, now = await self._users_of(controller), self._clock().timestamp()
        added, added_at = self._added.get(controller.uid, (None, 0.0))
        if added == wanted and now < added_at + USERS_AGAIN_S:
            return ""
        await slurmdb.add_account(ACCOUNT, cluster.name_in_slurm, ACCOUNT_TEXT)
        missing = await _missing(wanted, cluster.name_in_slurm, slurmdb)
        if missing:
            await slurmdb.add_users(missing, ACCOUNT, cluster.name_in_slurm)
            if left := sorted(await _missing(missing, cluster.name_in_slurm, slurmdb)):
                listed = ", ".join(left[:5])
                raise StepFailed(f"slurmdbd did not take {len(left)} users, such as {listed}: see its log")
        self._added[controller.uid] = wanted, now
        return f"{len(missing)} users added to the account {ACCOUNT}" if missing else ""

    async def _users_of(self, controller: SlurmController) -> frozenset[str]:
        users = controller.spec.redbox.users
        if users is None or users.config_map_ref is None or not users.config_map_ref.name:
            return frozenset()
        name = users.config_map_ref.name
        files = await files_of_config_map(self._objects, controller.namespace, name)
        return users_in(files.get("passwd", ""))


async def _missing(wanted: frozenset[str], cluster: str, slurmdb: SlurmdbClient) -> frozenset[str]:
    """Without regard to case: slurmdbd keeps names in lower case."""
    if not wanted:
        return wanted
    there = {name.lower() for name in await slurmdb.users_of(cluster)}
    return frozenset(name for name in wanted if name.lower() not in there)
