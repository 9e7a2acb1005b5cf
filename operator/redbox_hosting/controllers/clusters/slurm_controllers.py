"""Controllers: slurmctld with its configuration and keys, and `<name>-control`.

A new configuration is tried in a pod of its own, projected into slurmctld's pod, read by a reconfigure, and
read back by the marker among its licenses. One that slurmctld refuses leaves the old one running, and the
mounted ConfigMap is put back, so that a restart finds what ran before. No answer is neither: it is asked
again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial

from redbox_hosting.api import names
from redbox_hosting.api.controller import SlurmController
from redbox_hosting.api.daemons import Accounting
from redbox_hosting.api.nodeset import NodeSet
from redbox_hosting.api.unbuilt import unbuilt_fields
from redbox_hosting.build.config.releases import release_of
from redbox_hosting.controllers.clusters.certificates import ensure_authority
from redbox_hosting.controllers.clusters.cluster_objects import (
    OWNED,
    config_objects,
    control_objects,
    network_objects,
    slurmctld_objects,
)
from redbox_hosting.controllers.clusters.cluster_world import ClusterWorld, recorded_files
from redbox_hosting.controllers.clusters.configuration import (
    Configurations,
    files_named_by,
    running_digest,
)
from redbox_hosting.controllers.clusters.control_connections import ControlConnections
from redbox_hosting.controllers.clusters.controller_status import status_of
from redbox_hosting.controllers.clusters.keys import FORMER_JWT, JWT, ROTATION, new_keys
from redbox_hosting.controllers.clusters.reconfiguration import AGAIN_S, Reconfigurations
from redbox_hosting.controllers.clusters.rotation.key_readers import KeyReaders
from redbox_hosting.controllers.clusters.rotation.key_rotation import Rotation
from redbox_hosting.controllers.clusters.rotation.key_rotations import ROTATED, KeyRotations, rotation_asked
from redbox_hosting.controllers.clusters.secret_files import SecretFiles
from redbox_hosting.controllers.clusters.slurmctld_pod import (
    address_of,
    end_of_slurmctld,
    is_of_the_configuration,
)
from redbox_hosting.controllers.clusters.trials import Trials
from redbox_hosting.controllers.clusters.upgrades import (
    SlurmUpgrades,
    configured_release,
    image_in,
    oldest_slurmd,
)
from redbox_hosting.controllers.clusters.users.user_steps import UserSteps
from redbox_hosting.controllers.clusters.users.users_view import UsersView, read_view
from redbox_hosting.controllers.context import HostingContext
from redbox_hosting.controllers.rollouts import is_rolled_out
from redbox_hosting.controllers.unstarted_pods import why_not_started
from redbox_hosting.slurm.errors import SlurmrestdError, SlurmUnknown, TokenRefused
from redbox_kube.api.informer import Place
from redbox_kube.api.kinds import CONFIG_MAP, DEPLOYMENT, JOB, POD, SERVICE, STATEFUL_SET
from redbox_kube.api.objects import Object
from redbox_kube.controller.controller import Controller, Reconciliation
from redbox_kube.controller.finalizer import Finalizer
from redbox_kube.controller.kube_object import ObjectT
from redbox_kube.controller.owned import is_owned
from redbox_kube.controller.status_reporter import READY, StatusReporter
from redbox_kube.controller.steps import ReconcileStep, StepFailed, StepOutcome
from redbox_kube.controller.watched import Concerns, WatchedKind
from redbox_kube.status.conditions import ConditionStatus

UNASKED = SlurmUnknown("slurmrestd has not been asked yet")
SELDOM_S = 10.0
SETTLING = timedelta(minutes=1)
"""A Slurm that was away for longer is asked less often."""
SLURMCTLD, TRIAL, HOMES = "slurmctld", "trial", "homes"


@dataclass
class SlurmControllers:
    """The controller of Controllers."""

    context: HostingContext

    def __post_init__(self) -> None:
        context = self.context
        self._owned = context.owned_objects(names.CONTROLLERS, OWNED)
        self._secrets = SecretFiles(context.writer, self._owned)
        self._configurations = Configurations(context)
        self._connections = ControlConnections(context)
        self._reconfigurations = Reconfigurations(context, self._connections)
        self._trials = Trials(context.writer, self._owned, context.clock)
        self._pods: WatchedKind[Object] = WatchedKind(
            context.writer.objects,
            POD,
            namespaces=context.namespaces,
            selection={"labelSelector": f"{names.LABEL_ROLE} in ({SLURMCTLD},{TRIAL},{HOMES})"},
        )
        self._config_maps: WatchedKind[str] = WatchedKind(
            context.writer.objects, CONFIG_MAP, namespaces=context.namespaces, reduced=_version_of
        )
        self._upgrades = SlurmUpgrades(context)
        finalizer = Finalizer(context.writer, names.CONTROLLERS, names.FINALIZER_NODE_SETS)
        rotation = KeyRotations(self._secrets, KeyReaders(context, self._reconfigurations))
        serving = [
            ReconcileStep("Authority", self._check_authority),
            ReconcileStep("Keys", self._make_keys, needs=("Authority",)),
            ReconcileStep("Image", self._check_image),
            ReconcileStep("Network", self._apply_network, needs=("Authority", "Image")),
            *UserSteps(context, self._owned).steps(),
            ReconcileStep("Configuration", self._apply_configuration, needs=("Authority", "Image")),
            ReconcileStep("Daemons", self._apply_daemons, needs=("Keys", "Image")),
            ReconcileStep("Slurm", self._reconfigure, needs=("Daemons",)),
            ReconcileStep(ROTATED, rotation.advance, needs=("Slurm",)),
        ]
        how = Reconciliation[SlurmController, ClusterWorld](
            self._observe,
            [ReconcileStep("Finalizer", lambda world: finalizer.add(world.controller)), *serving],
            deletion=[
                *serving,
                ReconcileStep("NodeSets", self._await_node_sets),
                ReconcileStep(
                    "Finalizer", lambda world: finalizer.lift(world.controller), needs=("NodeSets",)
                ),
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
                (self._pods, _controller_of_pod),
                (self._config_maps, self._controllers_with_files_of),
            ],
            serves=context.leases.may_write,
        )

        self._follow(context.watches.node_sets, _controller_of)
        self._follow(context.watches.accountings, self._controllers_with)
        context.watches.controllers.follow(self._forget_if_gone)

    def _follow(self, kind: WatchedKind[ObjectT], concerns: Concerns[ObjectT]) -> None:
        """Only what users write of it: its status changes with each pod, and is in no configuration."""
        kind.follow(self.controller.queue.add, concerns, input_of=lambda item: item.user_input)
        self.controller.watched.append(kind)

    def _forget_if_gone(self, place: Place) -> None:
        if self.context.watches.controllers.get(place) is None:
            self._connections.disconnect(place, "its Controller was deleted")
            self._reconfigurations.forget(place)

    # ---------------------------------------------------------------------------------------- the snapshot
    async def _observe(self, controller: SlurmController) -> ClusterWorld:
        cell, why_no_cell = None, ""
        try:
            cell = self.context.cell_of(controller)
        except StepFailed as error:
            why_no_cell = str(error)
        configs = self._owned.of(controller, CONFIG_MAP)
        service = self._owned.of(controller, SERVICE).get(names.control_name(controller.name), {})
        client = self._connections.client_of(controller.place)
        pod = self._pod_of(controller)
        self._connections.supervise(controller.place, address_of(pod) if pod else "")
        running, nodes, oldest = "", None, controller.status.oldest_slurmd
        unread: SlurmrestdError | None = UNASKED
        if client is not None:
            try:
                running = running_digest(await client.licenses())
                snapshot = self.context.snapshots.of(controller.place)
                found = await client.nodes() if snapshot.unknown else [*snapshot.nodes.values()]
                nodes, oldest, unread = len(found), oldest_slurmd(found), None
            except SlurmrestdError as error:
                unread = error
                if isinstance(error, TokenRefused):
                    self._connections.token_refused(controller.place)
        applied = recorded_files(configs, controller.name, running or controller.status.config_hash or "")
        wanted, refusal = None, ""
        daemons = self._owned.of(controller, STATEFUL_SET) | self._owned.of(controller, DEPLOYMENT)
        image = image_in(daemons.get(names.controller_name(controller.name)), SLURMCTLD)
        try:
            if cell is not None:
                release = configured_release(cell, oldest, release_of(image) if image else None)
                wanted = await self._configurations.wanted(
                    controller, replace(cell, release=release), applied, client
                )
        except StepFailed as error:
            refusal = str(error)
        return ClusterWorld(
            controller=controller,
            cell=cell,
            why_no_cell=why_no_cell,
            configs=configs,
            daemons=daemons,
            pod=pod,
            trials=self._trials_of(controller),
            users=await self._users(controller),
            control_ip=str(service.get("spec", {}).get("clusterIP") or ""),
            client=client,
            running=running,
            unread=unread,
            release=client.release if client and not unread else "",
            nodes=nodes,
            oldest_slurmd=oldest,
            wanted=wanted,
            refusal=refusal,
        )

    def _pod_of(self, controller: SlurmController) -> Object | None:
        """None while it ends: then its end says nothing of the configuration."""
        pod = self._pods.get((controller.namespace, names.controller_host(controller.name)))
        return None if pod is None or "deletionTimestamp" in pod["metadata"] else pod

    def _trials_of(self, controller: SlurmController) -> dict[str, Object]:
        found = self._pods_of(controller, TRIAL)
        return {pod["metadata"]["name"]: pod for pod in found if is_owned(pod, controller)}

    async def _users(self, controller: SlurmController) -> UsersView:
        jobs, pods = self._owned.of(controller, JOB), self._pods_of(controller, HOMES)
        return await read_view(self.context.writer.objects, controller, jobs, pods)

    def _pods_of(self, controller: SlurmController, role: str) -> list[Object]:
        """Without those that end."""
        about = {names.LABEL_ROLE: role, names.LABEL_CLUSTER: controller.name}
        return [
            pod
            for _, pod in self._pods.items_in(controller.namespace)
            if about.items() <= pod["metadata"]["labels"].items()
            and "deletionTimestamp" not in pod["metadata"]
        ]

    # ---------------------------------------------------------------------------------------- the steps
    async def _check_authority(self, world: ClusterWorld) -> None:
        """An operator of an older format does not know all that a newer one has made."""
        if why_not := self.context.leases.why_not_delete(world.controller.namespace):
            raise StepFailed(f"nothing is changed: {why_not}")

    async def _check_image(self, world: ClusterWorld) -> None:
        """Deletion needs no release, and neither does the connection by which NodeSets are drained."""
        if world.cell is None:
            raise StepFailed(world.why_no_cell)

    async def _await_node_sets(self, world: ClusterWorld) -> StepOutcome:
        """Slurmctld and the workers' budget go with the Controller."""
        left = [
            *(node_set.name for node_set in self.context.watches.node_sets_of(world.controller.place)),
            *self.context.watches.node_sets.unreadable_in(world.controller.namespace),
        ]
        if left:
            return StepOutcome(waits_for=f"the deletion of its NodeSets: {', '.join(left[:8])}")
        return StepOutcome()

    async def _make_keys(self, world: ClusterWorld) -> StepOutcome:
        controller, now, name = world.controller, self.context.clock(), world.controller.name
        keys, did = await self._token_keys(controller)
        authority, made = await ensure_authority(self._secrets, controller, now)
        done = [did, made]
        endpoints = [names.control_name(name)]
        if not controller.spec.external:
            endpoints.append(names.controller_name(name))
        for owner in endpoints:
            hosts = [f"{owner}.{controller.namespace}.svc", owner]
            _, made = await self._secrets.ensure(
                controller,
                names.tls_name(owner),
                partial(authority.issue, owner, hosts, now),
                partial(authority.is_due, now=now),
            )
            done.append(made)
        self._connections.connect(controller.place, world.control_ip, authority, keys)
        return StepOutcome(did=", ".join(filter(None, done)))

    async def _token_keys(self, controller: SlurmController) -> tuple[tuple[bytes, ...], str]:
        """A slurmctld that runs elsewhere has keys of its own, which the spec names."""
        keys, did = names.keys_name(controller.name), ""
        made: Mapping[str, bytes] = {}
        if not controller.spec.external:
            made, did = await self._secrets.ensure(controller, keys, partial(_first_keys, controller))
        if given := controller.spec.jwt_key:
            return (await self._secrets.key(controller.namespace, given),), did
        if not made.get(JWT):
            raise StepFailed(f"Secret {keys} has no jwt.key: delete it and the cluster's pods")
        return (made[JWT], *filter(None, [made.get(FORMER_JWT)])), did

    async def _apply_network(self, world: ClusterWorld) -> StepOutcome:
        wanted = network_objects(world.built, self.context.operator)
        return StepOutcome(did=await self._owned.apply(world.controller, wanted, part="network"))

    async def _apply_configuration(self, world: ClusterWorld) -> StepOutcome:
        mounted = world.mounted
        assert world.wanted is not None  # noqa: S101 (else there is nothing to mount)
        records = {world.wanted.digest: world.wanted.files, mounted.digest: mounted.files}
        if files := world.files_of(world.before):
            records.setdefault(world.before, dict(files))
        wanted = config_objects(world.built, (mounted.digest, mounted.files), records)
        did = await self._owned.apply(world.controller, wanted, part="configuration")
        trial = await self._trials.advance(world)
        if unbuilt := unbuilt_fields(world.controller.spec):
            raise StepFailed("; ".join(map(str, unbuilt)))
        if refused := mounted.digest != world.wanted.digest and world.refused(world.wanted.digest):
            record = names.config_name(world.controller.name, world.wanted.digest)
            raise StepFailed(
                f"Slurm refused the configuration: {refused}: correct it, or delete ConfigMap {record} to "
                "try it again"
            )
        return replace(trial, did=", ".join(filter(None, [did, trial.did])))

    async def _apply_daemons(self, world: ClusterWorld) -> StepOutcome:
        """Slurmctld first: an older slurmrestd may ask a newer slurmctld, and not the other way round."""
        if world.wanted is None:
            return StepOutcome(waits_for="a configuration")
        controller, mounted = world.controller, world.mounted
        step = await self._upgrades.step_of(world)
        slurmctld = slurmctld_objects(step.cell)
        control = control_objects(step.cell, mounted.files)
        did = await self._owned.apply(controller, slurmctld, part="slurmctld")
        waits = [each.name for each in slurmctld if not is_rolled_out(world.daemons.get(each.name))]
        if not (did or waits) or control[0].name not in world.daemons:
            did = ", ".join(filter(None, [did, await self._owned.apply(controller, control, part="control")]))
        if world.pod is not None and slurmctld:
            await self._reconfigurations.project(world.pod, mounted.digest)
            if why := end_of_slurmctld(world.pod):
                if is_of_the_configuration(why):
                    await self._reconfigurations.refuse(world, mounted.digest, why)
                raise StepFailed(f"slurmctld does not start: {why}")
        waits += [each.name for each in control if not is_rolled_out(world.daemons.get(each.name))]
        if not waits:
            return StepOutcome(did, step.why_blocked, again_in_s=AGAIN_S if step.why_blocked else None)
        why = why_not_started(world.pod, SLURMCTLD) if world.pod else ""
        return StepOutcome(
            did=did, waits_for=f"{' and '.join(sorted(waits))} to be ready{f' ({why})' if why else ''}"
        )

    async def _reconfigure(self, world: ClusterWorld) -> StepOutcome:
        mounted = world.mounted
        if isinstance(world.unread, TokenRefused) and (key := world.controller.spec.jwt_key):
            raise StepFailed(f"{world.unread}: Secret {key.name} must have slurmctld's jwt_key as {key.key}")
        if world.client is None or world.unread:
            pause_s = AGAIN_S if self.context.clock() - _waits_since(world) < SETTLING else SELDOM_S
            return StepOutcome(waits_for=f"an answer of Slurm: {world.unread}", again_in_s=pause_s)
        if world.controller.spec.external:
            return StepOutcome()
        if world.running == mounted.digest and not self._reconfigurations.has_to_reread(world):
            if world.wanted and world.wanted.removing:
                gone = ", ".join(world.wanted.removing)
                waits = f"the jobs of the removed partitions {gone} to end"
                return StepOutcome(waits_for=waits, again_in_s=SELDOM_S)
            return StepOutcome()
        return await self._reconfigurations.apply(world, world.client, mounted)

    def _controllers_with_files_of(self, place: Place, _: str) -> Iterable[Place]:
        """Those whose spec names this ConfigMap of a user."""
        for own, controller in self.context.watches.controllers.items():
            if own[0] == place[0] and place[1] in files_named_by(controller.spec):
                yield own

    def _controllers_with(self, place: Place, _: Accounting) -> Iterable[Place]:
        for own, controller in self.context.watches.controllers.items():
            ref = controller.spec.accounting_ref
            if own[0] == place[0] and ref is not None and ref.name == place[1]:
                yield own


def _first_keys(controller: SlurmController) -> Mapping[str, bytes]:
    if controller.status.config_hash:
        keys = names.keys_name(controller.name)
        raise StepFailed(
            f"Secret {keys} is gone: restore it. New keys would cut the cluster off from its workers"
        )
    return {**new_keys(), ROTATION: Rotation(rotation_asked(controller)).text}


def _version_of(config_map: Object) -> str:
    """Its content is read when it is needed: there may be many."""
    return str(config_map["metadata"]["resourceVersion"])


def _controller_of(place: Place, node_set: NodeSet) -> Iterable[Place]:
    yield place[0], node_set.spec.controller_ref.name


def _controller_of_pod(place: Place, pod: Object) -> Iterable[Place]:
    yield place[0], str(pod["metadata"]["labels"].get(names.LABEL_CLUSTER, ""))


def _waits_since(world: ClusterWorld) -> datetime:
    """When the Controller was ready last, or began."""
    conditions = world.controller.status.conditions
    not_ready = (
        each.last_transition_time
        for each in conditions
        if each.type == READY and each.status is not ConditionStatus.TRUE
    )
    return next(not_ready, datetime.max.replace(tzinfo=UTC))
