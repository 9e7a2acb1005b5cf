"""LoginSets: sshd for the users of a cluster. Its host key is made once, for all its pods."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from redbox_hosting.api import names
from redbox_hosting.api.daemons import LoginSet
from redbox_hosting.api.status import LoginSetStatus
from redbox_hosting.api.unbuilt import unbuilt_fields
from redbox_hosting.build.pods.login import (
    HOST_KEY,
    KNOWN_HOSTS,
    ROLE,
    LoginCell,
    known_hosts,
    login_files,
    sshd_set,
)
from redbox_hosting.build.pods.network import service_account, ssh_service
from redbox_hosting.build.pods.parts import SlurmCell, selector
from redbox_hosting.controllers.clusters.cluster_objects import desired
from redbox_hosting.controllers.clusters.secret_files import SecretFiles
from redbox_hosting.controllers.context import HostingContext
from redbox_hosting.controllers.rollouts import is_rolled_out
from redbox_hosting.controllers.verdict import verdict
from redbox_kube.api import kinds
from redbox_kube.api.objects import Object, ResourcePath
from redbox_kube.controller.controller import Controller, Reconciliation
from redbox_kube.controller.owned import DesiredObject, revision
from redbox_kube.controller.status_reporter import StatusReporter, StatusVerdict
from redbox_kube.controller.steps import ReconcileStep, Reports, StepFailed, StepOutcome

PUBLIC_HOST_KEY = f"{HOST_KEY}.pub"
OWNED = (kinds.CONFIG_MAP, kinds.SERVICE, kinds.SERVICE_ACCOUNT, kinds.STATEFUL_SET)


@dataclass(frozen=True)
class LoginWorld:
    """All that the steps look at."""

    login_set: LoginSet
    cell: SlurmCell
    pods: Object | None
    """Their StatefulSet."""
    is_configured: bool
    """Whether there is the ConfigMap that its pods mount."""


@dataclass
class LoginSets:
    """The controller of LoginSets."""

    context: HostingContext

    def __post_init__(self) -> None:
        context = self.context
        self._owned = context.owned_objects(names.LOGIN_SETS, OWNED)
        self._secrets = SecretFiles(context.writer, self._owned)
        how = Reconciliation[LoginSet, LoginWorld](
            self._observe,
            [
                ReconcileStep("Fields", self._check_fields),
                ReconcileStep("HostKey", self._ensure_host_key),
                ReconcileStep("Login", self._apply, needs=("HostKey",)),
            ],
            report=StatusReporter(context.writer, names.LOGIN_SETS, status_of, clock=context.clock),
        )
        self.controller = Controller(
            "loginsets",
            context.watches.login_sets,
            how,
            context.metrics,
            watches=[*self._owned.watches, (context.watches.controllers, context.watches.login_sets_of)],
            serves=context.leases.may_write,
        )

    async def _observe(self, login_set: LoginSet) -> LoginWorld:
        controller = self.context.controller_of(login_set.namespace, login_set.spec.controller_ref.name)
        sets = self._owned.of(login_set, kinds.STATEFUL_SET)
        mounted = names.mounted_config_name(controller.name)
        where = ResourcePath(kinds.CONFIG_MAP, mounted, login_set.namespace)
        return LoginWorld(
            login_set,
            self.context.running_cell_of(controller),
            sets.get(names.login_name(login_set.name)),
            await self.context.writer.objects.get(where) is not None,
        )

    async def _check_fields(self, world: LoginWorld) -> None:
        if unbuilt := unbuilt_fields(world.login_set.spec):
            raise StepFailed("; ".join(map(str, unbuilt)))

    async def _ensure_host_key(self, world: LoginWorld) -> StepOutcome:
        name = names.login_name(world.login_set.name)
        _, did = await self._secrets.ensure(world.login_set, name, new_host_key)
        return StepOutcome(did=did)

    async def _apply(self, world: LoginWorld) -> StepOutcome:
        if world.cell.has_munge:
            raise StepFailed("logins of a cluster with munge are not built: use the site's login nodes")
        if not world.is_configured:
            return StepOutcome(waits_for=f"the configuration of Controller {world.cell.name}", again_in_s=1)
        login_set = world.login_set
        files = await self._secrets.find(login_set.namespace, names.login_name(login_set.name)) or {}
        public = files.get(PUBLIC_HOST_KEY, b"")
        did = await self._owned.apply(login_set, login_objects(world.cell, login_set, public))
        waits = "" if is_rolled_out(world.pods) else f"{names.login_name(world.login_set.name)} to be ready"
        return StepOutcome(did=did, waits_for=waits)


def new_host_key() -> Mapping[str, bytes]:
    """The public half is for users' known_hosts."""
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return {HOST_KEY: private, PUBLIC_HOST_KEY: public + b"\n"}


def login_objects(cell: SlurmCell, login_set: LoginSet, public_host_key: bytes) -> list[DesiredObject]:
    """Pure."""
    name = names.login_name(login_set.name)
    login = LoginCell(login_set.name, login_set.uid, login_set.spec)
    files = login_files(login.spec)
    made = [
        service_account(cell, ROLE, name),
        ssh_service(cell, login.name, login.owner, login.spec.service),
        sshd_set(cell, login, revision(files)),
    ]
    hosts = known_hosts(login.name, cell.namespace, public_host_key)
    conf = {"metadata": {"labels": {names.LABEL_CLUSTER: cell.name}}, "data": {**files, KNOWN_HOSTS: hosts}}
    return [DesiredObject(kinds.CONFIG_MAP, name, conf), *map(desired, made)]


def status_of(world: LoginWorld, reports: Reports) -> StatusVerdict:
    """Ready: its pods take connections."""
    selected = selector(world.cell.name, ROLE, world.login_set.name)
    status = LoginSetStatus(
        replicas=int(((world.pods or {}).get("status") or {}).get("replicas", 0)),
        selector=",".join(f"{key}={value}" for key, value in selected.items()),
    )
    return status, verdict(reports, "sshd takes connections")
