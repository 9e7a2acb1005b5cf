"""Accountings: slurmdbd with its database or that of the user, and a slurmdbd that runs elsewhere.

slurmdbd takes image, users and keys from one Controller that names the Accounting; others may report to it
with the same key. It starts before any slurmctld answers: a new slurmctld waits for slurmdbd to learn its
cluster's id. A slurmctld of 24.11 that had run without accounting has made an id of its own, refuses the one
of slurmdbd and runs on without accounting, until its file with the id is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from redbox_hosting.api import names
from redbox_hosting.api.controller import SlurmController
from redbox_hosting.api.daemons import Accounting
from redbox_hosting.api.status import AccountingStatus
from redbox_hosting.build.config.slurmdbd_conf import DatabaseAddress, slurmdbd_conf
from redbox_hosting.build.pods.accounting import PASSWORD_KEY, AccountingCell
from redbox_hosting.build.pods.parts import SlurmCell
from redbox_hosting.controllers.accountings.accounting_objects import (
    CONF,
    OWNED,
    database_objects,
    digest_of,
    new_password,
    slurmdbd_cell,
    slurmdbd_objects,
)
from redbox_hosting.controllers.accountings.users import users_in
from redbox_hosting.controllers.clusters.secret_files import SecretFiles, decoded
from redbox_hosting.controllers.context import HostingContext
from redbox_hosting.controllers.verdict import verdict
from redbox_hosting.slurm.accounting import SlurmdbClient
from redbox_hosting.slurm.errors import SlurmrestdError
from redbox_kube.api.informer import Place
from redbox_kube.api.kinds import CONFIG_MAP, SECRET, STATEFUL_SET
from redbox_kube.api.objects import ApiError, ResourcePath
from redbox_kube.api.pod_logs import log_tail
from redbox_kube.controller.controller import Controller, Reconciliation
from redbox_kube.controller.owned import OwnedObjects
from redbox_kube.controller.status_reporter import StatusReporter, StatusVerdict
from redbox_kube.controller.steps import ReconcileStep, Reports, StepFailed, StepOutcome, StepState
from redbox_kube.status.conditions import NewCondition

ACCOUNT, ACCOUNT_TEXT = "default", "Users of the cluster"
USERS_AGAIN_S = 600
"""slurmdbd may have got another database."""
AGAIN_S = 5.0
LOG_LINES = 200
ID_MISMATCH = "CLUSTER ID MISMATCH"
MISMATCH = "ClusterIdMismatch"


@dataclass(frozen=True, slots=True)
class ReportingCluster:
    """A Controller that names this Accounting, and what slurmdbd has of it."""

    controller: SlurmController
    slurmdb: SlurmdbClient | None = None
    is_registered: bool = False
    unread: str = ""
    """Why that is not known."""
    has_wrong_id: bool = False

    @property
    def name_in_slurm(self) -> str:
        return self.controller.spec.name_in_slurm(self.controller.namespace, self.controller.name)


@dataclass(frozen=True)
class AccountingWorld:
    """All that the steps look at."""

    accounting: Accounting
    clusters: tuple[ReportingCluster, ...]
    cell: SlurmCell | None
    """Of the Controller that slurmdbd belongs to."""
    ready: Mapping[str, bool]
    """StatefulSets by name, and whether their pod of the newest revision is ready."""

    @property
    def served(self) -> SlurmCell:
        if self.cell is None:
            raise StepFailed("no Controller names this Accounting in spec.accountingRef")
        return self.cell


@dataclass
class Accountings:
    """The controller of Accountings."""

    context: HostingContext
    _added: dict[Place, tuple[frozenset[str], float]] = field(default_factory=dict)
    """By Controller: the users that slurmdbd was seen to have, and when."""

    def __post_init__(self) -> None:
        context = self.context
        self._owned = OwnedObjects(context.writer, names.ACCOUNTINGS, OWNED, namespaces=context.namespaces)
        self._secrets = SecretFiles(context.writer, self._owned)
        how = Reconciliation[Accounting, AccountingWorld](
            self._observe,
            [
                ReconcileStep("Clusters", self._check_clusters),
                ReconcileStep("Database", self._apply_database, needs=("Clusters",)),
                ReconcileStep("Slurmdbd", self._apply_slurmdbd, needs=("Clusters",)),
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
            watches=[*self._owned.watches, (context.watches.controllers, _accounting_of)],
            serves=context.leases.may_write,
        )
        context.connections.follow(self._slurm_has_changed)

    def _slurm_has_changed(self, controller: Place) -> None:
        if (found := self.context.watches.controllers.get(controller)) is not None:
            for place in _accounting_of(controller, found):
                self.controller.queue.add(place)

    # --------------------------------------------------------------------------------------- the snapshot
    async def _observe(self, accounting: Accounting) -> AccountingWorld:
        sets = self._owned.of(accounting, STATEFUL_SET)
        controllers = sorted(self._controllers_of(accounting.place), key=_age)
        own = sets.get(names.accounting_name(accounting.name), {}).get("metadata", {}).get("labels", {})
        # slurmdbd stays with its Controller, since selectors of a StatefulSet never change.
        controllers.sort(key=lambda controller: controller.name != own.get(names.LABEL_CLUSTER))
        cell = None
        if controllers and not accounting.spec.external:
            cell = slurmdbd_cell(self.context.cell_of(controllers[0]), accounting.spec)
        return AccountingWorld(
            accounting=accounting,
            clusters=tuple([await self._cluster(controller) for controller in controllers]),
            cell=cell,
            ready={name: _is_ready(body) for name, body in sets.items()},
        )

    def _controllers_of(self, accounting: Place) -> Iterator[SlurmController]:
        for place, controller in self.context.watches.controllers.items():
            if accounting in _accounting_of(place, controller) and not controller.being_deleted:
                yield controller

    async def _cluster(self, controller: SlurmController) -> ReportingCluster:
        made = ReportingCluster(controller)
        try:
            slurmdb = SlurmdbClient(self.context.slurm_of(*controller.place))
            registered = await slurmdb.registered_clusters()
        except SlurmrestdError as error:
            wrong = await self._has_wrong_id(controller)
            return ReportingCluster(controller, unread=str(error), has_wrong_id=wrong)
        is_registered = made.name_in_slurm in registered
        wrong = not is_registered and await self._has_wrong_id(controller)
        return ReportingCluster(controller, slurmdb, is_registered, has_wrong_id=wrong)

    async def _has_wrong_id(self, controller: SlurmController) -> bool:
        """By slurmctld's own words in its log, which is read only where the Controller is degraded."""
        if controller.spec.external or not any(
            condition.type == "Degraded" and condition.status == "True"
            for condition in controller.status.conditions
        ):
            return False
        pod = names.controller_host(controller.name)
        try:
            log = await log_tail(
                self.context.writer.objects, controller.namespace, pod, "slurmctld", lines=LOG_LINES
            )
        except ApiError:
            return False
        return ID_MISMATCH in log

    # ------------------------------------------------------------------------------------------ the steps
    async def _check_clusters(self, world: AccountingWorld) -> StepOutcome:
        """That they have one key: slurmdbd accepts those that have its key."""
        if not world.clusters:
            return StepOutcome(waits_for="a Controller that names it in spec.accountingRef")
        external = world.accounting.spec.external_config
        controllers = [cluster.controller for cluster in world.clusters]
        if external:
            for controller in controllers:
                if controller.spec.slurm_key_ref is None and not controller.spec.external:
                    raise StepFailed(
                        f"Controller {controller.name} has a key of its own, which slurmdbd at "
                        f"{external.host} does not have: create a Controller whose slurmKeyRef and jwtKeyRef "
                        "name the keys of that slurmdbd"
                    )
        elif len({controller.spec.slurm_key_ref for controller in controllers}) > 1 or (
            len(controllers) > 1 and controllers[0].spec.slurm_key_ref is None
        ):
            listed = " and ".join(sorted(controller.name for controller in controllers))
            raise StepFailed(f"the Controllers {listed} have different keys: give all the same slurmKeyRef")
        return StepOutcome()

    async def _apply_database(self, world: AccountingWorld) -> StepOutcome:
        accounting = world.accounting
        if accounting.spec.external or not accounting.spec.redbox.database.enabled:
            return StepOutcome(did=await self._owned.apply(accounting, [], part="database"))
        made = self._cell(world)
        if not (accounting.spec.redbox.database.image or made.database_image):
            raise StepFailed("no image of MariaDB is configured: set spec.redbox.database.image")
        _, created = await self._password(accounting)
        done = await self._owned.apply(accounting, database_objects(world.served, made), part="database")
        return _outcome(world, [created, done], names.database_name(accounting.name))

    async def _apply_slurmdbd(self, world: AccountingWorld) -> StepOutcome:
        accounting = world.accounting
        if accounting.spec.external:
            return StepOutcome(did=await self._owned.apply(accounting, [], part="slurmdbd"))
        keys = await self._keys(world)
        if not keys:
            return StepOutcome(waits_for=f"the keys of Controller {world.served.name}", again_in_s=1)
        file = slurmdbd_conf(accounting.name, accounting.spec, await self._address(accounting))
        if file.refused:
            raise StepFailed("; ".join(map(str, file.refused[:5])))
        wanted = {CONF: file.text.encode()}
        name = names.accounting_name(accounting.name)
        _, written = await self._secrets.ensure(
            accounting, name, lambda: wanted, lambda files: dict(files) != wanted
        )
        made = self._cell(world, digest_of(file.text, keys))
        clusters = [cluster.controller.name for cluster in world.clusters]
        objects = slurmdbd_objects(world.served, made, clusters)
        done = await self._owned.apply(accounting, objects, part="slurmdbd")
        return _outcome(world, [written, done], name)

    async def _await_registration(self, world: AccountingWorld) -> StepOutcome:
        for cluster in world.clusters:
            if cluster.has_wrong_id and not cluster.is_registered:
                raise StepFailed(_cure(cluster.controller))
        waiting = [cluster for cluster in world.clusters if not cluster.is_registered]
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
        done = [
            await self._add_users_of(cluster, cluster.slurmdb)
            for cluster in world.clusters
            if cluster.is_registered and cluster.slurmdb is not None
        ]
        missing = [cluster.name_in_slurm for cluster in world.clusters if not cluster.is_registered]
        waits = f"slurmctld to register: {', '.join(missing)}" if missing else ""
        return StepOutcome(did=", ".join(filter(None, done)), waits_for=waits)

    async def _add_users_of(self, cluster: ReportingCluster, slurmdb: SlurmdbClient) -> str:
        place, now = cluster.controller.place, self.context.clock().timestamp()
        wanted = await self._users_of(cluster.controller)
        known, seen = self._added.get(place, (None, 0.0))
        if known == wanted and now < seen + USERS_AGAIN_S:
            return ""
        await slurmdb.add_account(ACCOUNT, cluster.name_in_slurm, ACCOUNT_TEXT)
        missing = wanted - await slurmdb.users_of(cluster.name_in_slurm) if wanted else frozenset()
        if missing:
            await slurmdb.add_users(missing, ACCOUNT, cluster.name_in_slurm)
        self._added[place] = wanted, now
        return f"{len(missing)} users added to the account {ACCOUNT}" if missing else ""

    # --------------------------------------------------------------------------------------------- inputs
    async def _users_of(self, controller: SlurmController) -> frozenset[str]:
        users = controller.spec.redbox.users
        if users is None or users.config_map_ref is None:
            return frozenset()
        where = ResourcePath(CONFIG_MAP, users.config_map_ref.name, controller.namespace)
        found = await self.context.writer.objects.get(where)
        if found is None:
            raise StepFailed(f"there is no ConfigMap {where.name} in the namespace: create it")
        return users_in((found.get("data") or {}).get("passwd", ""))

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

    async def _keys(self, world: AccountingWorld) -> list[bytes]:
        """All that slurmdbd verifies with; empty while the Controller has not made its own."""
        spec, namespace = world.served.spec, world.accounting.namespace
        given = [ref for ref in (spec.slurm_key_ref, spec.jwt_key) if ref is not None]
        keys = [await self._secrets.key(namespace, ref) for ref in given]
        if spec.slurm_key_ref is None or spec.jwt_key is None:
            where = ResourcePath(SECRET, names.keys_name(world.served.name), namespace)
            own = await self.context.writer.objects.get(where)
            if own is None:
                return []
            files = decoded(own)
            keys += [files.get("slurm.jwks", b""), files.get("jwt.key", b"")]
        return keys

    def _cell(self, world: AccountingWorld, digest: str = "") -> AccountingCell:
        accounting = world.accounting
        return AccountingCell(
            accounting.name, accounting.uid, accounting.spec, self.context.images.database, digest
        )


def _cure(controller: SlurmController) -> str:
    pod = names.controller_host(controller.name)
    return (
        f"{ID_MISMATCH}: slurmctld of {controller.name} ran without accounting and has a cluster id that "
        "slurmdbd does not know, so it runs on without accounting. Jobs and nodes stay if its file with "
        f"the id is removed: kubectl -n {controller.namespace} exec {pod} -c slurmctld -- "
        "rm /var/spool/slurmctld/clustername"
    )


def _outcome(world: AccountingWorld, done: Iterable[str], name: str) -> StepOutcome:
    waits = "" if world.ready.get(name) else f"{name} to be ready"
    return StepOutcome(did=", ".join(filter(None, done)), waits_for=waits)


def _is_ready(body: Mapping[str, object]) -> bool:
    status, metadata = body.get("status") or {}, body["metadata"]
    assert isinstance(status, dict)  # noqa: S101 (an object of the API server)
    assert isinstance(metadata, dict)  # noqa: S101
    is_seen = status.get("observedGeneration") == metadata.get("generation")
    newest = status.get("currentRevision") == status.get("updateRevision")
    return bool(status.get("readyReplicas")) and is_seen and newest


def _age(controller: SlurmController) -> tuple[str, str]:
    return str(controller.metadata.get("creationTimestamp", "")), controller.name


def _accounting_of(place: Place, controller: SlurmController) -> Iterable[Place]:
    ref = controller.spec.accounting_ref
    return [(place[0], ref.name)] if ref is not None and ref.name else []


def status_of(world: AccountingWorld, reports: Reports) -> StatusVerdict:
    """Ready: each cluster has registered, and slurmdbd has its users."""
    wrong = [cluster for cluster in world.clusters if cluster.has_wrong_id and not cluster.is_registered]
    conditions = [
        *verdict(reports, "slurmdbd answers, and each cluster reports to it"),
        NewCondition(
            MISMATCH,
            "SlurmctldHasAnotherId" if wrong else "NoneHas",
            "; ".join(_cure(cluster.controller) for cluster in wrong),
            holds=bool(wrong),
        ),
    ]
    is_up = reports["Slurmdbd"].state is StepState.DONE and world.cell is not None
    version = world.cell.release if is_up and world.cell else world.accounting.status.version
    return AccountingStatus(version=version), conditions
