"""The objects of a Controller, as pure builders make them."""

from __future__ import annotations

from collections.abc import Mapping

from redbox_hosting.api import names
from redbox_hosting.build.pods.network import (
    daemon_service,
    logins_service,
    network_policies,
    service_account,
    slurmctld_services,
    workers_budget,
    workers_service,
)
from redbox_hosting.build.pods.parts import Manifest, SlurmCell
from redbox_hosting.build.pods.slurmctld import slurmctld_set
from redbox_hosting.build.pods.slurmrestd import control, rest_deployment
from redbox_hosting.controllers.context import OperatorPods
from redbox_kube.api import kinds
from redbox_kube.controller.owned import DesiredObject

OWNED = (
    kinds.CONFIG_MAP,
    kinds.DEPLOYMENT,
    kinds.JOB,
    kinds.NETWORK_POLICY,
    kinds.POD_DISRUPTION_BUDGET,
    kinds.SERVICE,
    kinds.SERVICE_ACCOUNT,
    kinds.STATEFUL_SET,
)
BY_NAME = {kind.name: kind for kind in OWNED}


def desired(manifest: Manifest) -> DesiredObject:
    return DesiredObject(BY_NAME[manifest["kind"]], manifest["metadata"]["name"], manifest)


def network_objects(cell: SlurmCell, operator: OperatorPods) -> list[DesiredObject]:
    """What pods need before they start."""
    service = daemon_service(
        cell,
        "control",
        cell.name,
        name=names.control_name(cell.name),
        port=names.PORT_CONTROL,
        owner=cell.owner,
    )
    made = [
        *(service_account(cell, role) for role in ("slurmctld", "slurmd", "control")),
        service,
        workers_service(cell),
        logins_service(cell),
        workers_budget(cell),
        *network_policies(cell, {"namespace": operator.namespace, "name": operator.name}),
    ]
    if not cell.spec.external:
        made += slurmctld_services(cell)
    return [desired(manifest) for manifest in made]


def slurmctld_objects(cell: SlurmCell) -> list[DesiredObject]:
    return [] if cell.spec.external else [desired(slurmctld_set(cell))]


def control_objects(cell: SlurmCell, files: Mapping[str, str]) -> list[DesiredObject]:
    """The operator's slurmrestd."""
    return [desired(rest_deployment(cell, control(cell, files.get("slurm.conf", ""))))]


def config_objects(
    cell: SlurmCell, mounted: tuple[str, dict[str, str]], records: dict[str, dict[str, str]]
) -> list[DesiredObject]:
    """The immutable record of each configuration that is still needed, and the copy that pods mount."""
    digest, files = mounted
    made = [
        DesiredObject(
            kinds.CONFIG_MAP,
            names.mounted_config_name(cell.name),
            {"metadata": {"annotations": {names.ANNOTATION_CONFIG_HASH: digest}}, "data": files},
        )
    ]
    for each, content in records.items():
        made.append(
            DesiredObject(
                kinds.CONFIG_MAP, names.config_name(cell.name, each), {"immutable": True, "data": content}
            )
        )
    labels = {names.LABEL_CLUSTER: cell.name}
    return [
        DesiredObject(
            wanted.kind,
            wanted.name,
            {**wanted.body, "metadata": {**wanted.body.get("metadata", {}), "labels": labels}},
        )
        for wanted in made
    ]
