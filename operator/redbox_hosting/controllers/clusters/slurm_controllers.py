"""Controllers: slurmctld with its configuration and keys, and `<name>-control`.

A new configuration is projected into slurmctld's pod by an annotation, read by a reconfigure, and read back
by the marker among its licenses. One that slurmctld refuses leaves the old one running, and the mounted
ConfigMap is put back, so that a restart finds what ran before. No answer is neither: it is asked again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from redbox_hosting.api import names
from redbox_hosting.api.controller import SlurmController
from redbox_hosting.api.daemons import Accounting
from redbox_hosting.api.nodeset import NodeSet
from redbox_hosting.api.status import ControllerStatus
from redbox_hosting.api.unbuilt import unbuilt_fields
from redbox_hosting.build.pods.parts import OPERATOR_IN_TLS, SlurmCell
from redbox_hosting.controllers.clusters.certificates import (
    CERTIFICATE_LIFE,
    RENEWED_AT,
    ClusterAuthority,
    client_context,
)
from redbox_hosting.controllers.clusters.cluster_objects import (
    OWNED,
    config_objects,
    daemon_objects,
    network_objects,
)
from redbox_hosting.controllers.clusters.configuration import (
    Configurations,
    WantedConfiguration,
    running_digest,
)
from redbox_hosting.controllers.clusters.keys import new_keys, signed_token
from redbox_hosting.controllers.clusters.secret_files import SecretFiles
from redbox_hosting.controllers.context import HostingContext
from redbox_hosting.slurm.client import SlurmrestdClient
from redbox_hosting.slurm.errors import SlurmRefusal, SlurmrestdError, SlurmUnknown
from redbox_kube.api.informer import Place
from redbox_kube.api.kinds import CONFIG_MAP, DEPLOYMENT, POD, SERVICE, STATEFUL_SET
from redbox_kube.api.objects import ResourcePath
from redbox_kube.controller.controller import Controller, Reconciliation
from redbox_kube.controller.owned import OwnedObjects
from redbox_kube.controller.status_reporter import READY, StatusReporter, StatusVerdict
from redbox_kube.controller.steps import ReconcileStep, Reports, StepFailed, StepOutcome, StepState
from redbox_kube.status.conditions import NewCondition

AGAIN_S = 1.0
SLURM_USER = "slurm"
STORES = "AccountingStorageType=accounting_storage/slurmdbd"
REFUSED_AGAIN = timedelta(minutes=1)
"""A configuration that was refused is tried again: the cause may have been in the state, not in the text."""


@dataclass(frozen=True)
class ClusterWorld:
    """All that the steps look at."""

    controller: SlurmController
    cell: SlurmCell
    configs: Mapping[str, Mapping[str, str]]
    """The files of our ConfigMaps by name."""
    ready: frozenset[str]
    """StatefulSets and Deployments whose only pod is ready."""
    control_ip: str
    client: SlurmrestdClient | None
    running: str
    """The digest of what slurmctld runs, empty where it was not read."""
    unread: str
    """Why it was not."""
    nodes: int | None
    wanted: WantedConfiguration | None
    refusal: str
    """Why there is no wanted configuration."""


@dataclass
class _Connection:
    """One cluster's client: from what it was made, and until when its certificate serves."""

    made_from: tuple[object, ...]
    ends: datetime
    client: SlurmrestdClient


@dataclass
class SlurmControllers:
    """The controller of Controllers."""

    context: HostingContext
    _refused: dict[Place, tuple[str, str]] = field(default_factory=dict)
    """The digest that slurmctld refused last, and its words."""
    _connections: dict[Place, _Connection] = field(default_factory=dict)

    def __post_init__(self) -> None:
        context = self.context
        self._owned = OwnedObjects(context.writer, names.CONTROLLERS, OWNED, namespaces=context.namespaces)
        self._secrets = SecretFiles(context.writer, self._owned)
        self._configurations = Configurations(context)
        how = Reconciliation[SlurmController, ClusterWorld](
            self._observe,
            [
                ReconcileStep("Keys", self._make_keys),
                ReconcileStep("Network", self._apply_network),
                ReconcileStep("Configuration", self._apply_configuration),
                ReconcileStep("Daemons", self._apply_daemons, needs=("Keys",)),
                ReconcileStep("Slurm", self._reconfigure, needs=("Daemons",)),
            ],
            report=StatusReporter(context.writer, names.CONTROLLERS, status_of, clock=context.clock),
        )
        self.controller = Controller(
            "controllers",
            context.watches.controllers,
            how,
            context.metrics,
            watches=[
                *self._owned.watches,
                (context.watches.node_sets, _controller_of),
                (context.watches.accountings, self._controllers_with),
            ],
            serves=context.leases.may_write,
        )

    # ---------------------------------------------------------------------------------------- the snapshot
    async def _observe(self, controller: SlurmController) -> ClusterWorld:
        cell = self.context.cell_of(controller)
        configs = {
            name: dict(body.get("data") or {})
            for name, body in self._owned.of(controller, CONFIG_MAP).items()
        }
        service = self._owned.of(controller, SERVICE).get(names.control_name(controller.name), {})
        connection = self._connections.get(controller.place)
        client = connection.client if connection else None
        running, nodes, unread = "", None, "slurmrestd has not been asked yet"
        if client is not None:
            try:
                running = running_digest(await client.licenses())
                nodes, unread = len(await client.nodes()), ""
            except SlurmrestdError as error:
                unread = str(error)
        applied = configs.get(
            names.config_name(controller.name, running or controller.status.config_hash or "-")
        )
        wanted, refusal = None, ""
        try:
            wanted = await self._configurations.wanted(controller, cell, applied, client)
        except StepFailed as error:
            refusal = str(error)
        return ClusterWorld(
            controller=controller,
            cell=cell,
            configs=configs,
            ready=frozenset(self._ready(controller)),
            control_ip=str(service.get("spec", {}).get("clusterIP") or ""),
            client=client,
            running=running,
            unread=unread,
            nodes=nodes,
            wanted=wanted,
            refusal=refusal,
        )

    def _ready(self, controller: SlurmController) -> Iterable[str]:
        for kind in (STATEFUL_SET, DEPLOYMENT):
            for name, body in self._owned.of(controller, kind).items():
                if (body.get("status") or {}).get("readyReplicas"):
                    yield name

    # ---------------------------------------------------------------------------------------- the steps
    async def _make_keys(self, world: ClusterWorld) -> StepOutcome:
        controller, now, name = world.controller, self.context.clock(), world.controller.name
        keys, did = await self._secrets.ensure(controller, names.keys_name(name), new_keys)
        make = lambda: ClusterAuthority.make(f"{name}.{controller.namespace}", now).files  # noqa: E731
        files, made = await self._secrets.ensure(controller, names.authority_name(name), make)
        authority, done = ClusterAuthority.read(files), [did, made]
        for owner in (names.control_name(name), names.controller_name(name)):
            hosts = [f"{owner}.{controller.namespace}.svc", owner]
            _, made = await self._secrets.ensure(
                controller,
                names.tls_name(owner),
                partial(authority.issue, owner, hosts, now),
                partial(authority.is_due, now=now),
            )
            done.append(made)
        given = controller.spec.jwt_key
        key = await self._secrets.key(controller.namespace, given) if given else keys.get("jwt.key", b"")
        if not key:
            raise StepFailed(
                f"Secret {names.keys_name(name)} has no jwt.key: delete it and the cluster's pods"
            )
        self._connect(world, authority, key)
        return StepOutcome(did=", ".join(filter(None, done)))

    def _connect(self, world: ClusterWorld, authority: ClusterAuthority, key: bytes) -> None:
        """A client of control, which has a certificate of its own and signs a new token for each request."""
        place, now = world.controller.place, self.context.clock()
        made_from = (world.control_ip, authority.pem, key)
        before = self._connections.get(place)
        if not world.control_ip or (before and before.made_from == made_from and now < before.ends):
            return

        async def token() -> str:
            return signed_token(key, SLURM_USER, self.context.clock())

        # By address: the operator's own pod may have no names of Services.
        host = f"[{world.control_ip}]" if ":" in world.control_ip else world.control_ip
        client = SlurmrestdClient(
            f"https://{host}:{names.PORT_CONTROL}",
            token=token,
            tls=client_context(authority.issue(OPERATOR_IN_TLS, (), now)),
            server_name=f"{names.control_name(place[1])}.{place[0]}.svc",
        )
        ends = now + timedelta(seconds=CERTIFICATE_LIFE.total_seconds() * RENEWED_AT)
        self._connections[place] = _Connection(made_from, ends, client)
        self.context.connections.connect(place, client)

    async def _apply_network(self, world: ClusterWorld) -> StepOutcome:
        wanted = network_objects(world.cell, self.context.operator)
        return StepOutcome(did=await self._owned.apply(world.controller, wanted, part="network"))

    def _mounted(self, world: ClusterWorld) -> WantedConfiguration:
        """The wanted one, or what runs where slurmctld has refused that."""
        if world.wanted is None:
            raise StepFailed(world.refusal)
        digest, _ = self._refused.get(world.controller.place, ("", ""))
        before = world.running or world.controller.status.config_hash or ""
        files = world.configs.get(names.config_name(world.controller.name, before))
        if digest == world.wanted.digest and files and before != digest:
            return WantedConfiguration(before, dict(files))
        return world.wanted

    async def _apply_configuration(self, world: ClusterWorld) -> StepOutcome:
        mounted = self._mounted(world)
        assert world.wanted is not None  # noqa: S101 (else there is nothing to mount)
        records = {world.wanted.digest: world.wanted.files, mounted.digest: mounted.files}
        before = world.running or world.controller.status.config_hash or ""
        if files := world.configs.get(names.config_name(world.controller.name, before)):
            records.setdefault(before, dict(files))
        wanted = config_objects(world.cell, (mounted.digest, mounted.files), records)
        did = await self._owned.apply(world.controller, wanted, part="configuration")
        if unbuilt := unbuilt_fields(world.controller.spec):
            raise StepFailed("; ".join(map(str, unbuilt)))
        if mounted.digest != world.wanted.digest:
            raise StepFailed(self._refused[world.controller.place][1])
        return StepOutcome(did=did)

    async def _apply_daemons(self, world: ClusterWorld) -> StepOutcome:
        mounted = self._mounted(world)
        has_accounting = STORES in mounted.files.get("slurm.conf", "")  # else slurmrestd ends at its start
        wanted = daemon_objects(world.cell, mounted.digest, has_accounting=has_accounting)
        did = await self._owned.apply(world.controller, wanted, part="daemons")
        missing = sorted({daemon.name for daemon in wanted} - world.ready)
        waits = f"{' and '.join(missing)} to be ready" if missing else ""
        return StepOutcome(did=did, waits_for=waits)

    async def _reconfigure(self, world: ClusterWorld) -> StepOutcome:
        mounted, place = self._mounted(world), world.controller.place
        if world.controller.spec.external:
            if world.unread:
                raise SlurmUnknown(world.unread)
            return StepOutcome()
        if world.client is None or world.unread:
            return StepOutcome(waits_for=f"an answer of Slurm: {world.unread}", again_in_s=AGAIN_S)
        if world.running == mounted.digest:
            if world.wanted and world.wanted.removing:
                gone = ", ".join(world.wanted.removing)
                return StepOutcome(
                    waits_for=f"the jobs of the removed partitions {gone} to end", again_in_s=10
                )
            return StepOutcome()
        await self._annotate(world, mounted.digest)
        try:
            await world.client.reconfigure()
        except SlurmUnknown as error:
            return StepOutcome(waits_for=f"an answer to the reconfigure: {error}", again_in_s=AGAIN_S)
        except SlurmRefusal as error:
            if running_digest(await world.client.licenses()) == world.running and world.running:
                self._refused[place] = (mounted.digest, f"slurmctld refused the configuration: {error}")
            raise
        return StepOutcome(waits_for="slurmctld to run the new configuration", again_in_s=AGAIN_S)

    async def _annotate(self, world: ClusterWorld, digest: str) -> None:
        """The kubelet then projects the new files within a second, and not within a minute."""
        where = ResourcePath(POD, names.controller_host(world.controller.name), world.controller.namespace)
        annotations = {names.ANNOTATION_CONFIG_HASH: digest}
        if await self.context.writer.objects.merge(where, {"metadata": {"annotations": annotations}}) is None:
            raise StepFailed(f"the pod {where.name} is not there yet")
        self.context.writer.count(POD.name, "patch")

    def _controllers_with(self, place: Place, _: Accounting) -> Iterable[Place]:
        for own, controller in self.context.watches.controllers.items():
            ref = controller.spec.accounting_ref
            if own[0] == place[0] and ref is not None and ref.name == place[1]:
                yield own


def _controller_of(place: Place, node_set: NodeSet) -> Iterable[Place]:
    yield place[0], node_set.spec.controller_ref.name


def status_of(world: ClusterWorld, reports: Reports) -> StatusVerdict:
    """Ready: slurmctld was seen to run the configuration that the spec asks for."""
    failed = [
        f"{name}: {report.message}" for name, report in reports.items() if report.state is StepState.FAILED
    ]
    waits = [report.message for report in reports.values() if report.state is StepState.WAITING]
    is_ready = not failed and not waits
    why = "; ".join(failed) or "; ".join(waits) or "slurmctld runs the wanted configuration"
    conditions = [
        NewCondition(READY, "Ready" if is_ready else "NotReady", why, holds=is_ready),
        NewCondition("Progressing", "Waiting" if waits else "Done", "; ".join(waits), holds=bool(waits)),
        NewCondition(
            "Degraded", "StepsFailed" if failed else "NoneFailed", "; ".join(failed), holds=bool(failed)
        ),
    ]
    before = world.controller.status
    return (
        ControllerStatus(
            version=world.cell.release if world.running else before.version,
            config_hash=world.running or before.config_hash,
            nodes=world.nodes if world.nodes is not None else before.nodes,
        ),
        conditions,
    )
