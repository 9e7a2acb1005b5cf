"""Fields that the schema accepts and nothing implements. They are refused by name in a condition. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import singledispatch

from redbox_hosting.api.controller import ControllerSpec
from redbox_hosting.api.daemons import LoginSetSpec, LoginStrategyType
from redbox_hosting.api.nodeset import ClaimRetention, NodeSetSpec, UpdateType
from redbox_kube.status.models import KubeModel

NO_SIDECAR = "remove it: daemons log to stderr, so `kubectl logs` shows their log"


@dataclass(frozen=True, slots=True)
class UnbuiltField:
    """A field that does nothing, and the cure."""

    path: str
    cure: str

    def __str__(self) -> str:
        return f"{self.path} is not built: {self.cure}"


def unbuilt_fields(spec: KubeModel) -> list[UnbuiltField]:
    """The fields of this spec that are set and do nothing."""
    return [UnbuiltField(path, cure) for path, cure in _unbuilt(spec)]


@singledispatch
def _unbuilt(spec: KubeModel) -> Iterator[tuple[str, str]]:
    del spec
    yield from ()


@_unbuilt.register
def _(spec: ControllerSpec) -> Iterator[tuple[str, str]]:
    if spec.ha and spec.ha.enabled:
        yield "spec.ha", "set enabled to false; Kubernetes starts slurmctld again elsewhere when it is lost"
    if spec.reconfigure:
        yield "spec.reconfigure", "remove it: the operator applies changes through slurmrestd"
    if spec.logfile:
        yield "spec.logfile", NO_SIDECAR
    monitor = spec.metrics and spec.metrics.service_monitor
    if monitor and monitor.enabled:
        yield "spec.metrics.serviceMonitor", "set enabled to false, and make a ServiceMonitor of your own"
    if spec.external:
        yield from _without_effect(spec)
    if spec.redbox.users and spec.redbox.users.sssd_conf_ref:
        yield "spec.redbox.users.sssdConfRef", "name a ConfigMap of users in configMapRef instead"
    if spec.redbox.restore:
        yield "spec.redbox.restore", "remove it, and copy the state into the claim before slurmctld starts"


def _without_effect(spec: ControllerSpec) -> Iterator[tuple[str, str]]:
    """Fields that are lines or files of slurm.conf."""
    fields = {
        "spec.extraConf": spec.extra_conf,
        "spec.configFileRefs": spec.config_file_refs,
        "spec.prologScriptRefs": spec.prolog_script_refs,
        "spec.epilogScriptRefs": spec.epilog_script_refs,
        "spec.prologSlurmctldScriptRefs": spec.prolog_slurmctld_script_refs,
        "spec.epilogSlurmctldScriptRefs": spec.epilog_slurmctld_script_refs,
        "spec.redbox.partitions": spec.redbox.partitions,
    }
    for path, value in fields.items():
        if value:
            yield path, "remove it: an external Controller has the slurm.conf of its slurmctld"


@_unbuilt.register
def _(spec: NodeSetSpec) -> Iterator[tuple[str, str]]:
    if spec.update_strategy.type is UpdateType.SCHEDULED_UPDATE:
        yield "spec.updateStrategy.type ScheduledUpdate", "use RollingUpdate or OnDelete"
    if spec.redbox.on_demand:
        yield "spec.redbox.onDemand", "remove it and set replicas"
    if spec.pin_to_node:
        yield "spec.pinToNode", "remove it and select Kubernetes nodes by the template"
    if ClaimRetention.DELETE in {
        spec.persistent_volume_claim_retention_policy.when_deleted,
        spec.persistent_volume_claim_retention_policy.when_scaled,
    }:
        yield "spec.persistentVolumeClaimRetentionPolicy Delete", "use Retain and delete the claims yourself"
    if spec.ssh and spec.ssh.enabled:
        yield "spec.ssh", "set enabled to false; users log in to a LoginSet"
    if spec.logfile:
        yield "spec.logfile", NO_SIDECAR


@_unbuilt.register
def _(spec: LoginSetSpec) -> Iterator[tuple[str, str]]:
    if spec.initconf:
        yield "spec.initconf", "remove it: the operator prepares each container's files"
    if spec.sssd_conf_ref:
        yield "spec.sssdConfRef", "remove it, and name users in the Controller's spec.redbox.users"
    if spec.strategy.type is LoginStrategyType.RECREATE:
        yield "spec.strategy.type Recreate", "use RollingUpdate: pods are replaced in turn"
