"""Adds accounts and a cluster's users to slurmdbd. Nothing is changed and nothing is removed.

The account `default` has all users. Each Unix group but those of single users is an account of its members.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from redbox_hosting.api import names
from redbox_hosting.api.controller import SlurmController
from redbox_hosting.build.users.unix_lines import UnixAccounts, read_users
from redbox_hosting.controllers.accountings.reporting_clusters import ReportingCluster
from redbox_hosting.slurm.accounting import SlurmdbClient
from redbox_kube.api.kinds import CONFIG_MAP
from redbox_kube.controller.owned import ManagedKinds, is_owned
from redbox_kube.controller.steps import StepFailed

ACCOUNT, ACCOUNT_TEXT, GROUP_TEXT = "default", "Users of the cluster", "Unix group"
USERS_AGAIN_S = 600
"""slurmdbd may have got another database."""
Members = Mapping[str, frozenset[str]]
"""Users by account, all in lower case, as slurmdbd keeps them."""


class UserAccounts:
    """The users of clusters, as slurmdbd was seen to have them."""

    def __init__(self, managed: ManagedKinds, clock: Callable[[], datetime]) -> None:
        self._config_maps = managed.of(CONFIG_MAP)
        self._clock = clock
        self._added: dict[str, tuple[Members, float]] = {}
        """By the Controller's uid, and when."""

    def why_not(self, controller: SlurmController) -> str:
        """Why its users are not known."""
        is_known = self._users_of(controller) is not None
        return "" if is_known else f"the condition Users of Controller {controller.name}"

    async def add(self, cluster: ReportingCluster) -> str:
        """What was done; StepFailed where slurmdbd does not have the users afterwards."""
        controller, slurmdb = cluster.controller, cluster.slurmdb
        users = self._users_of(controller)
        if slurmdb is None or not cluster.is_registered:
            self._added.pop(controller.uid, None)
            return ""
        if users is None:
            return ""
        wanted, now = members_of(users), self._clock().timestamp()
        added, added_at = self._added.get(controller.uid, (None, 0.0))
        if added == wanted and now < added_at + USERS_AGAIN_S:
            return ""
        did = await _add(wanted, cluster.name_in_slurm, slurmdb)
        self._added[controller.uid] = wanted, now
        return did

    def _users_of(self, controller: SlurmController) -> UnixAccounts | None:
        """Those that pods have; None: not known yet."""
        users = controller.spec.redbox.users
        if users is None or users.config_map_ref is None:
            return UnixAccounts()
        found = self._config_maps.get((controller.namespace, names.users_name(controller.name)))
        return (
            None if found is None or not is_owned(found, controller) else read_users(found.get("data") or {})
        )


def members_of(users: UnixAccounts) -> Members:
    """Pure. A group with the name of a user is that user's own, and no account."""
    own = {user.name.lower() for user in users.users}
    made = {ACCOUNT: frozenset(own)}
    primary: dict[int, set[str]] = {}
    for user in users.users:
        primary.setdefault(user.gid, set()).add(user.name.lower())
    for group in users.groups:
        name = group.name.lower()
        members = (primary.get(group.gid, set()) | {member.lower() for member in group.members}) & own
        if name not in own and members:
            made[name] = made.get(name, frozenset()) | members
    return made


async def _add(wanted: Members, cluster: str, slurmdb: SlurmdbClient) -> str:
    await slurmdb.add_accounts([ACCOUNT], cluster, ACCOUNT_TEXT)
    if groups := sorted(wanted.keys() - {ACCOUNT}):
        await slurmdb.add_accounts(groups, cluster, GROUP_TEXT)
    missing = await _missing(wanted, cluster, slurmdb)
    if not missing:
        return ""
    for account, users in missing.items():
        await slurmdb.add_users(users, account, cluster, is_default=account == ACCOUNT)
    left = sorted({user for users in (await _missing(missing, cluster, slurmdb)).values() for user in users})
    if left:
        raise StepFailed(
            f"slurmdbd did not take {len(left)} users, such as {', '.join(left[:5])}: see its log"
        )
    return ", ".join(
        f"{len(users)} users added to the account {account}" for account, users in missing.items()
    )


async def _missing(wanted: Members, cluster: str, slurmdb: SlurmdbClient) -> Members:
    """By account, `default` first. A user whom an administrator gave another account needs no `default`."""
    if not any(wanted.values()):
        return {}
    there = await slurmdb.accounts_of_users(cluster)
    found = {}
    for account, users in wanted.items():
        lacks = {
            user
            for user in users
            if account not in there.get(user, ()) and (account != ACCOUNT or user not in there)
        }
        if lacks:
            found[account] = frozenset(lacks)
    return found
