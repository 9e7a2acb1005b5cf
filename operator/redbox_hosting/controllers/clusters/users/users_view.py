"""What a Controller's steps look at of its users: their lines, the claim of homes, and the Jobs for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from redbox_hosting.api.controller import SlurmController
from redbox_hosting.build.users.unix_lines import PASSWD, UnixAccounts, read_users
from redbox_hosting.controllers.config_maps import files_of_config_map
from redbox_kube.api.kinds import PERSISTENT_VOLUME_CLAIM
from redbox_kube.api.objects import ApiError, Object, ObjectClient, ResourcePath
from redbox_kube.controller.steps import StepFailed


@dataclass(frozen=True)
class UsersView:
    """One snapshot; without a ConfigMap of users there are none."""

    read: UnixAccounts | None = None
    why_unread: str = ""
    """Pods keep what they have."""
    claim: Object | None = None
    """Of homes."""
    why_no_claim: str = ""
    jobs: Mapping[str, Object] = field(default_factory=dict)
    """Ours that make homes, by name."""
    pods: Sequence[Object] = ()
    """Of these Jobs."""


NO_USERS = UsersView()


async def read_view(
    objects: ObjectClient, controller: SlurmController, jobs: Mapping[str, Object], pods: Sequence[Object]
) -> UsersView:
    """What cannot be read is a reason, and stops nothing else."""
    read, why_unread = await _read(objects, controller)
    claim, why_no_claim = await _claim(objects, controller)
    return UsersView(read, why_unread, claim, why_no_claim, jobs, pods)


async def _read(objects: ObjectClient, controller: SlurmController) -> tuple[UnixAccounts | None, str]:
    users = controller.spec.redbox.users
    if users is None or users.config_map_ref is None:
        return None, ""
    name = users.config_map_ref.name
    try:
        files = await files_of_config_map(objects, controller.namespace, name)
    except (ApiError, StepFailed) as error:
        return None, str(error)
    if PASSWD not in files:
        return None, f"ConfigMap {name} has no key {PASSWD}: add it"
    return read_users(files), ""


async def _claim(objects: ObjectClient, controller: SlurmController) -> tuple[Object | None, str]:
    homes = controller.spec.redbox.homes
    if homes is None:
        return None, ""
    where = ResourcePath(PERSISTENT_VOLUME_CLAIM, homes.claim_name, controller.namespace)
    try:
        found = await objects.get(where)
    except ApiError as error:
        return None, str(error)
    return found, "" if found else f"there is no claim {homes.claim_name} in the namespace: create it"
