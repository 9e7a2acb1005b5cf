"""RestApis: slurmrestd for users, behind TLS. The operator never uses it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from redbox_hosting.api import names
from redbox_hosting.api.daemons import RestApi
from redbox_hosting.api.status import RestApiStatus
from redbox_hosting.build.pods.network import daemon_service, service_account
from redbox_hosting.build.pods.parts import SlurmCell
from redbox_hosting.build.pods.slurmrestd import STORES, RestDeployment, connection_digest, rest_deployment
from redbox_hosting.controllers.clusters.certificates import ClusterAuthority
from redbox_hosting.controllers.clusters.cluster_objects import desired
from redbox_hosting.controllers.clusters.secret_files import SecretFiles, decoded
from redbox_hosting.controllers.context import HostingContext
from redbox_hosting.controllers.rollouts import is_rolled_out
from redbox_hosting.controllers.verdict import verdict
from redbox_kube.api import kinds
from redbox_kube.api.objects import Object, ResourcePath
from redbox_kube.controller.controller import Controller, Reconciliation
from redbox_kube.controller.owned import DesiredObject
from redbox_kube.controller.status_reporter import StatusReporter, StatusVerdict
from redbox_kube.controller.steps import ReconcileStep, Reports, StepFailed, StepOutcome

ROLE = "slurmrestd"
OWNED = (kinds.DEPLOYMENT, kinds.SERVICE, kinds.SERVICE_ACCOUNT)


@dataclass(frozen=True)
class RestApiWorld:
    """All that the steps look at."""

    rest_api: RestApi
    cell: SlurmCell
    deployment: Object | None
    slurm_conf: str | None
    """What pods mount; None while there is no configuration."""


@dataclass
class RestApis:
    """The controller of RestApis."""

    context: HostingContext

    def __post_init__(self) -> None:
        context = self.context
        self._owned = context.owned_objects(names.REST_APIS, OWNED)
        self._secrets = SecretFiles(context.writer, self._owned)
        how = Reconciliation[RestApi, RestApiWorld](
            self._observe,
            [
                ReconcileStep("Certificate", self._ensure_certificate),
                ReconcileStep("Slurmrestd", self._apply, needs=("Certificate",)),
            ],
            report=StatusReporter(context.writer, names.REST_APIS, status_of, clock=context.clock),
        )
        self.controller = Controller(
            "restapis",
            context.watches.rest_apis,
            how,
            context.metrics,
            watches=[*self._owned.watches, (context.watches.controllers, context.watches.rest_apis_of)],
            serves=context.leases.may_write,
        )

    async def _observe(self, rest_api: RestApi) -> RestApiWorld:
        controller = self.context.controller_of(rest_api.namespace, rest_api.spec.controller_ref.name)
        deployments = self._owned.of(rest_api, kinds.DEPLOYMENT)
        where = ResourcePath(kinds.CONFIG_MAP, names.mounted_config_name(controller.name), rest_api.namespace)
        mounted = await self.context.writer.objects.get(where)
        return RestApiWorld(
            rest_api,
            self.context.running_cell_of(controller),
            deployments.get(names.rest_api_name(rest_api.name)),
            None if mounted is None else (mounted.get("data") or {}).get("slurm.conf", ""),
        )

    async def _ensure_certificate(self, world: RestApiWorld) -> StepOutcome:
        """Renewed in time by the minute's reconciliation; the TLS front reads it again."""
        rest_api, now = world.rest_api, self.context.clock()
        if (given := rest_api.spec.redbox.tls_secret_ref) is not None and given.name:
            found = await self._secret(rest_api.namespace, given.name)
            missing = {"tls.crt", "tls.key"} - decoded(found or {"metadata": {}}).keys()
            if missing:
                listed = " and ".join(sorted(missing))
                raise StepFailed(f"Secret {given.name} has no {listed}: make it, as with cert-manager")
            return StepOutcome()
        authority_name = names.authority_name(world.cell.name)
        found = await self._secret(rest_api.namespace, authority_name)
        if found is None:
            return StepOutcome(waits_for=f"the authority of Controller {world.cell.name}", again_in_s=1)
        authority = ClusterAuthority.read(decoded(found))
        name = names.rest_api_name(rest_api.name)
        service = f"{name}.{rest_api.namespace}"
        hosts = [name, service, f"{service}.svc", f"{service}.svc.cluster.local"]
        _, did = await self._secrets.ensure(
            rest_api,
            names.tls_name(name),
            partial(authority.issue, name, hosts, now),
            partial(authority.is_due, now=now),
        )
        return StepOutcome(did=did)

    async def _secret(self, namespace: str, name: str) -> Object | None:
        return await self.context.writer.objects.get(ResourcePath(kinds.SECRET, name, namespace))

    async def _apply(self, world: RestApiWorld) -> StepOutcome:
        if world.slurm_conf is None:
            return StepOutcome(waits_for=f"the configuration of Controller {world.cell.name}", again_in_s=1)
        wanted = rest_api_objects(world.cell, world.rest_api, world.slurm_conf)
        did = await self._owned.apply(world.rest_api, wanted)
        name = names.rest_api_name(world.rest_api.name)
        waits = "" if is_rolled_out(world.deployment) else f"{name} to be ready"
        return StepOutcome(did=did, waits_for=waits)


def rest_api_objects(cell: SlurmCell, rest_api: RestApi, slurm_conf: str) -> list[DesiredObject]:
    """Pure."""
    name, spec = names.rest_api_name(rest_api.name), rest_api.spec
    owner = rest_api.owner_reference(names.REST_APIS)
    tls = spec.redbox.tls_secret_ref
    asked = RestDeployment(
        name=name,
        role=ROLE,
        instance=rest_api.name,
        owner=owner,
        port=names.PORT_SLURMRESTD,
        replicas=1 if spec.replicas is None else spec.replicas,
        has_accounting=STORES in slurm_conf,
        connection=connection_digest(slurm_conf),
        account=name,
        tls_secret=tls.name if tls is not None else "",
        container=spec.slurmrestd,
        template=spec.template,
    )
    service = daemon_service(
        cell,
        ROLE,
        rest_api.name,
        name=name,
        port=names.PORT_SLURMRESTD,
        owner=owner,
        user=spec.service,
    )
    manifests = [service_account(cell, ROLE, name), service, rest_deployment(cell, asked)]
    return [desired(manifest) for manifest in manifests]


def status_of(_: RestApiWorld, reports: Reports) -> StatusVerdict:
    """Ready: its pods take connections."""
    return RestApiStatus(), verdict(reports, "slurmrestd takes connections")
