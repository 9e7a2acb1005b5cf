"""Accountings: slurmdbd with its database or that of the user, and a slurmdbd that runs elsewhere.

slurmdbd takes image, users and keys from one Controller that names the Accounting; others may report to it
with the same keys. It starts before any slurmctld answers, because a new slurmctld waits for slurmdbd to
learn its cluster's id. A slurmctld of 24.11 that ran without accounting has made an id of its own. It refuses
slurmdbd's id, and runs on without accounting or does not start, until its file with the id is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from redbox_hosting.api import names
from redbox_hosting.api.daemons import Accounting
from redbox_hosting.api.status import AccountingStatus
from redbox_hosting.build.config.slurmdbd_conf import DatabaseAddress, slurmdbd_conf
from redbox_hosting.build.pods.accounting import MARIADB, PASSWORD_KEY, SLURMDBD_CONF, AccountingCell
from redbox_hosting.build.pods.parts import SlurmCell
from redbox_hosting.controllers.accountings.accounting_objects import (
    OWNED,
    database_objects,
    digest_of,
    new_password,
    slurmdbd_cell,
    slurmdbd_objects,
)
from redbox_hosting.controllers.accountings.reporting_clusters import (
    ReportingCluster,
    ReportingClusters,
    accounting_of,
)
from redbox_hosting.controllers.accountings.user_accounts import UserAccounts
from redbox_hosting.controllers.clusters.keys import JWKS, JWT
from redbox_hosting.controllers.clusters.rotation.key_rotation import jwks_digest
from redbox_hosting.controllers.clusters.secret_files import SecretFiles, decoded
from redbox_hosting.controllers.clusters.upgrades import check_not_older, image_in
from redbox_hosting.controllers.config_maps import files_of_config_map
from redbox_hosting.controllers.context import HostingContext
from redbox_hosting.controllers.rollouts import is_rolled_out
from redbox_hosting.controllers.verdict import verdict
from redbox_kube.api.informer import Place
from redbox_kube.api.kinds import CONFIG_MAP, SECRET, STATEFUL_SET
from redbox_kube.api.objects import Object, ResourcePath
from redbox_kube.controller.controller import Controller, Reconciliation
from redbox_kube.controller.status_reporter import StatusReporter, StatusVerdict
from redbox_kube.controller.steps import ReconcileStep, Reports, StepFailed, StepOutcome, StepState
from redbox_kube.status.conditions import NewCondition

AGAIN_S = 5.0
MISMATCH = "ClusterIdMismatch"


@dataclass(frozen=True)
class AccountingWorld:
    """All that the steps look at."""

    accounting: Accounting
    clusters: tuple[ReportingCluster, ...]
    cell: SlurmCell | None
    """Of the Controller that slurmdbd belongs to."""
    sets: Mapping[str, Object]
    """Our StatefulSets by name."""

    @property
    def served(self) -> SlurmCell:
        if self.cell is None:
            raise StepFailed("no Controller names this Accounting in spec.accountingRef")
        return self.cell

    @property
    def reporting(self) -> list[ReportingCluster]:
        """The clusters whose keys slurmdbd has."""
        return [cluster for cluster in self.clusters if not cluster.has_wrong_keys]

    @property
    def with_wrong_id(self) -> list[ReportingCluster]:
        return [cluster for cluster in self.clusters if cluster.has_wrong_id and not cluster.is_registered]


@dataclass
class Accountings:
    """The controller of Accountings."""

    context: HostingContext

    def __post_init__(self) -> None:
        context = self.context
        self._owned = context.owned_objects(names.ACCOUNTINGS, OWNED)
        self._secrets = SecretFiles(context.writer, self._owned)
        self._clusters = ReportingClusters(context)
        self._users = UserAccounts(context.watches.managed, context.clock)
        how = Reconciliation[Accounting, AccountingWorld](
            self._observe,
            [
                ReconcileStep("Clusters", self._check_clusters),
                ReconcileStep("Database", self._apply_database, needs=("Clusters",)),
                ReconcileStep("Slurmdbd", self._apply_slurmdbd, needs=("Clusters",)),
                ReconcileStep("Keys", self._compare_keys, needs=("Clusters",)),
                ReconcileStep("Registered", self._await_registration, needs=("Slurmdbd",)),
                ReconcileStep("Users", self._add_users, needs=("Slurmdbd",)),
            ],
            report=StatusReporter(context.writer, names.ACCOUNTINGS, status_of, clock=context.clock),
        )
        self.controller = Controller(
            "accountings",
            context.watches.accountings,
            how,
            context.metrics,
            watches=[
                *self._owned.watches,
                (context.watches.controllers, accounting_of),
                (context.watches.managed.of(CONFIG_MAP), self._with_users),
            ],
            serves=context.leases.may_write,
        )
        context.connections.follow(self._slurm_has_changed)

    def _with_users(self, place: Place, _: Object) -> Iterable[Place]:
        """Those of the Controller whose users this ConfigMap has."""
        for own, controller in self.context.watches.controllers.items():
            if place == (own[0], names.users_name(controller.name)):
                yield from accounting_of(own, controller)

    def _slurm_has_changed(self, controller: Place) -> None:
        if (found := self.context.watches.controllers.get(controller)) is not None:
            for place in accounting_of(controller, found):
                self.controller.queue.add(place)

    # --------------------------------------------------------------------------------------- the snapshot
    async def _observe(self, accounting: Accounting) -> AccountingWorld:
        sets = self._owned.of(accounting, STATEFUL_SET)
        first = cluster_of(sets.get(names.accounting_name(accounting.name), {}))
        controllers = self._clusters.of(accounting.place, first)  # slurmdbd stays with its Controller
        cell = None
        if controllers and not accounting.spec.external:
            cell = slurmdbd_cell(self.context.cell_of(controllers[0]), accounting.spec)
        clusters = await self._clusters.read(controllers, cell)
        return AccountingWorld(accounting=accounting, clusters=clusters, cell=cell, sets=sets)

    # ------------------------------------------------------------------------------------------ the steps
    async def _check_clusters(self, world: AccountingWorld) -> StepOutcome:
        waits = "" if world.clusters else "a Controller that names it in spec.accountingRef"
        return StepOutcome(waits_for=waits)

    async def _compare_keys(self, world: AccountingWorld) -> StepOutcome:
        """Only clusters with slurmdbd's keys are accepted; the others stop nobody."""
        wrong = " and ".join(cluster.controller.name for cluster in world.clusters if cluster.has_wrong_keys)
        if not wrong:
            return StepOutcome()
        keys = "slurmKeyRef and jwtKeyRef"
        if external := world.accounting.spec.external_config:
            raise StepFailed(
                f"slurmdbd at {external.host} does not have the keys that the operator made for {wrong}: "
                f"create a Controller whose {keys} name the keys of that slurmdbd"
            )
        raise StepFailed(
            f"slurmdbd does not have the keys of Controller {wrong}: create all Controllers of this "
            f"Accounting, and the Accounting where it names keys, with the same {keys}"
        )

    async def _apply_database(self, world: AccountingWorld) -> StepOutcome:
        accounting = world.accounting
        if accounting.spec.external or not accounting.spec.redbox.database.enabled:
            return StepOutcome(did=await self._owned.apply(accounting, [], part="database"))
        made = self._cell(world)
        if not (accounting.spec.redbox.database.image or made.database_image):
            raise StepFailed("no image of MariaDB is configured: set spec.redbox.database.image")
        name = names.database_name(accounting.name)
        _, created = await self._password(accounting)
        done = await self._owned.apply(accounting, database_objects(world.served, made), part="database")
        return _outcome(world, [created, done], name)

    async def _apply_slurmdbd(self, world: AccountingWorld) -> StepOutcome:
        accounting = world.accounting
        if accounting.spec.external:
            return StepOutcome(did=await self._owned.apply(accounting, [], part="slurmdbd"))
        name = names.accounting_name(accounting.name)
        check_not_older("slurmdbd", accounting.status.version or "", world.served.release)
        keys, jwks = await self._keys(world)
        if not keys:
            return StepOutcome(waits_for=f"the keys of Controller {world.served.name}", again_in_s=1)
        file = slurmdbd_conf(accounting.name, accounting.spec, await self._address(accounting))
        if file.refused:
            raise StepFailed("; ".join(map(str, file.refused[:5])))
        wanted = {SLURMDBD_CONF: file.text.encode()}
        _, written = await self._secrets.ensure(
            accounting, name, lambda: wanted, lambda files: files.get(SLURMDBD_CONF) != wanted[SLURMDBD_CONF]
        )
        made = replace(self._cell(world, digest_of(file.text, keys)), keys_digest=jwks)
        clusters = [cluster.controller.name for cluster in world.reporting]
        objects = slurmdbd_objects(world.served, made, clusters)
        done = await self._owned.apply(accounting, objects, part="slurmdbd")
        return _outcome(world, [written, done], name)

    async def _await_registration(self, world: AccountingWorld) -> StepOutcome:
        if wrong := world.with_wrong_id:
            raise StepFailed("; ".join(cluster.cure_of_id for cluster in wrong))
        waiting = [cluster for cluster in world.reporting if not cluster.is_registered]
        if not waiting:
            return StepOutcome()
        texts = [
            f"{cluster.name_in_slurm}{f' ({cluster.unread})' if cluster.unread else ''}"
            for cluster in waiting
        ]
        return StepOutcome(
            waits_for=f"slurmctld to register with slurmdbd: {', '.join(texts)}", again_in_s=AGAIN_S
        )

    async def _add_users(self, world: AccountingWorld) -> StepOutcome:
        """Never changed and never removed: an administrator may have given them other accounts."""
        done, failed = [], []
        for cluster in world.reporting:
            try:
                done.append(await self._users.add(cluster))
            except StepFailed as error:
                failed.append(f"{cluster.controller.name}: {error}")
        if failed:
            raise StepFailed("; ".join(failed))
        missing = [cluster.name_in_slurm for cluster in world.reporting if not cluster.is_registered]
        waits = [f"slurmctld to register: {', '.join(missing)}"] if missing else []
        waits += filter(None, (self._users.why_not(cluster.controller) for cluster in world.reporting))
        return StepOutcome(did=", ".join(filter(None, done)), waits_for="; ".join(waits))

    # --------------------------------------------------------------------------------------------- inputs
    async def _password(self, accounting: Accounting) -> tuple[str, str]:
        name = names.database_name(accounting.name)
        files, did = await self._secrets.ensure(accounting, name, new_password)
        if PASSWORD_KEY not in files:
            raise StepFailed(f"Secret {name} has no {PASSWORD_KEY}: delete it and the pod {name}-0")
        return files[PASSWORD_KEY].decode(errors="replace"), did

    async def _address(self, accounting: Accounting) -> DatabaseAddress:
        given = accounting.spec.storage_config
        if given is None:
            password, _ = await self._password(accounting)
            host = names.database_name(accounting.name)
            return DatabaseAddress(host, names.PORT_MARIADB, "slurm_acct_db", "slurm", password)
        key = await self._secrets.key(accounting.namespace, given.password_key_ref)
        text = key.decode(errors="replace").removesuffix("\n")
        return DatabaseAddress(given.host, given.port, given.database, given.username, text)

    async def _keys(self, world: AccountingWorld) -> tuple[list[bytes], str]:
        """All that slurmdbd verifies with, none while the Controller has not made its own; and a digest."""
        spec, namespace = world.served.spec, world.accounting.namespace
        given = [ref for ref in (spec.slurm_key_ref, spec.jwt_key) if ref is not None]
        keys, jwks = [await self._secrets.key(namespace, ref) for ref in given], ""
        if spec.slurm_key_ref is None or spec.jwt_key is None:
            where = ResourcePath(SECRET, names.keys_name(world.served.name), namespace)
            own = await self.context.writer.objects.get(where)
            if own is None:
                return [], ""
            files = decoded(own)
            keys += [files.get(JWKS, b""), files.get(JWT, b"")]
            jwks = "" if spec.slurm_key_ref else jwks_digest(files)
        if (public := spec.jwks_key_ref) is not None:
            content = await files_of_config_map(self.context.writer.objects, namespace, public.name)
            if public.key not in content:
                raise StepFailed(f"ConfigMap {public.name} has no key {public.key}: add it")
            keys.append(content[public.key].encode())
        return keys, jwks

    def _cell(self, world: AccountingWorld, digest: str = "") -> AccountingCell:
        """With the database's image that runs, where the spec names none: as with a Controller's."""
        accounting = world.accounting
        image = accounting.status.database_image or self.context.images.database
        return AccountingCell(accounting.name, accounting.uid, accounting.spec, image, digest)


def _outcome(world: AccountingWorld, done: Iterable[str], name: str) -> StepOutcome:
    waits = "" if is_rolled_out(world.sets.get(name)) else f"{name} to be ready"
    return StepOutcome(did=", ".join(filter(None, done)), waits_for=waits)


def cluster_of(stateful_set: Object) -> str:
    """The Controller that this StatefulSet was made for."""
    labels: Mapping[str, str] = stateful_set.get("metadata", {}).get("labels") or {}
    return labels.get(names.LABEL_CLUSTER, "")


def status_of(world: AccountingWorld, reports: Reports) -> StatusVerdict:
    """Ready: each cluster has registered, and slurmdbd has its users."""
    wrong = world.with_wrong_id
    conditions = [
        *verdict(reports, "slurmdbd answers, and each cluster reports to it"),
        NewCondition(
            MISMATCH,
            "SlurmctldHasAnotherId" if wrong else "NoneHas",
            "; ".join(cluster.cure_of_id for cluster in wrong),
            holds=bool(wrong),
        ),
    ]
    is_up = reports["Slurmdbd"].state is StepState.DONE and world.cell is not None
    before = None if world.accounting.spec.external else world.accounting.status.version
    version = world.cell.release if is_up and world.cell else before
    return AccountingStatus(version=version, database_image=_database_image(world)), conditions


def _database_image(world: AccountingWorld) -> str | None:
    """That was last seen to run; none of a database elsewhere."""
    found = world.sets.get(names.database_name(world.accounting.name))
    before = world.accounting.status.database_image if found else None
    return image_in(found, MARIADB) if is_rolled_out(found) else before
