"""Controller: one Slurm cluster, with its slurmctld and its slurm.conf."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from redbox_hosting.api.fields import (
    OPTIONAL_NAME,
    ConfigMapKeyRef,
    ExternalDaemon,
    JwtKeyFields,
    Name,
    ObjectRef,
    Profile,
    SecretKeyRef,
    SlurmName,
    SlurmTime,
)
from redbox_hosting.api.pod_schemas import ContainerFields, PodTemplate, ServiceFields
from redbox_hosting.api.status import ControllerStatus
from redbox_kube.controller.kube_object import KubeObject
from redbox_kube.schemas.openapi import Schema, one_of
from redbox_kube.status.models import KubeModel

LONGEST_CONF = 65_536
CLUSTER_NAME = r"^[a-z0-9][a-z0-9_-]*$"
KEYED_BY_NAME: Schema = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
PATH = r"^/[A-Za-z0-9._~/-]*$"
Label = Annotated[str, Field(max_length=1024)]
Cidr = Annotated[str, Field(max_length=49, pattern=r"^[0-9a-fA-F.:]+/[0-9]{1,3}$")]
Refs = Annotated[list[ObjectRef] | None, Field(max_length=32, json_schema_extra={"nullable": True})]
"""Charts write null where there is none."""


class HighAvailability(KubeModel):
    """A second slurmctld. Not built: `enabled: true` is refused in a condition."""

    enabled: bool = Field(description="Run backups of slurmctld. Not built.")
    backups: int | None = Field(None, ge=1, le=9, description="How many. Not built.")


class Persistence(KubeModel):
    """The volume of slurmctld's state."""

    enabled: bool = Field(
        default=True, description="Keep the state on a claim. Without one, a restart forgets all jobs."
    )
    existing_claim: str | None = Field(
        None,
        max_length=253,
        pattern=OPTIONAL_NAME,
        description="A claim of this namespace, instead of one that the operator makes.",
    )
    access_modes: list[Annotated[str, Field(max_length=32)]] | None = Field(
        None, max_length=4, description="Of the claim that the operator makes. The default is ReadWriteOnce."
    )
    storage_class_name: str | None = Field(None, max_length=253, description="Its storage class.")
    volume_mode: str | None = Field(None, max_length=32, description="Its mode. Only Filesystem works.")
    volume_name: str | None = Field(None, max_length=253, description="The volume that it binds.")
    resources: dict[str, dict[str, Annotated[str | int, Field(union_mode="left_to_right")]]] | None = Field(
        None,
        json_schema_extra={
            "maxProperties": 2,
            "additionalProperties": {
                "type": "object",
                "maxProperties": 8,
                "additionalProperties": {"x-kubernetes-int-or-string": True},
            },
        },
        description="Its size, as in a claim: requests.storage. The default is 4Gi.",
    )
    annotations: dict[str, Label] = Field({}, max_length=64, description="Annotations of the claim.")
    labels: dict[str, Label] = Field({}, max_length=64, description="Labels of the claim.")


class MetricsEndpoint(KubeModel):
    """A path that Prometheus reads."""

    path: str = Field(max_length=253, pattern=PATH, description="The path, such as /metrics/jobs.")
    interval: str | None = Field(None, max_length=20, description="How often, such as 30s.")
    scrape_timeout: str | None = Field(None, max_length=20, description="For how long it waits.")


class ServiceMonitorFields(KubeModel):
    """A ServiceMonitor of the Prometheus operator. Not built: `enabled: true` is refused in a condition."""

    enabled: bool = Field(default=False, description="Make a ServiceMonitor.")
    labels: dict[str, Label] = Field({}, max_length=64, description="Its labels.")
    annotations: dict[str, Label] = Field({}, max_length=64, description="Its annotations.")
    interval: str | None = Field(None, max_length=20, description="How often Prometheus reads.")
    scrape_timeout: str | None = Field(None, max_length=20, description="For how long it waits.")
    endpoints: list[MetricsEndpoint] = Field([], max_length=16, description="The paths to read.")


class MetricsFields(KubeModel):
    """Slurm's own metrics, which slurmctld serves from 25.11 on."""

    enabled: bool = Field(default=False, description="Serve metrics.")
    service_monitor: ServiceMonitorFields | None = Field(None, description="Not built.")


class PartitionFields(KubeModel):
    """A partition."""

    name: SlurmName = Field(description="Its name.")
    node_sets: list[Name] = Field(
        [], max_length=64, description="The NodeSets whose nodes it has. Left out: all of this Controller."
    )
    default: bool = Field(default=False, description="Jobs that name no partition run here.")
    max_time: SlurmTime | None = Field(
        None, description="The longest time limit of a job: minutes, H:MM:SS, D-HH:MM:SS or UNLIMITED."
    )
    default_time: SlurmTime | None = Field(None, description="The time limit of a job that has none.")
    def_mem_per_cpu: int | None = Field(
        None, alias="defMemPerCPU", ge=1, le=100_000_000, description="MiB for each CPU of a job."
    )
    qos: SlurmName | None = Field(None, description="The QOS whose limits the partition has.")
    allow_accounts: list[SlurmName] = Field(
        [], max_length=256, description="Only these accounts may use it. Left out: all."
    )
    allow_groups: list[SlurmName] = Field(
        [], max_length=256, description="Only these Unix groups may use it. Left out: all."
    )


class UsersSource(KubeModel):
    """The Unix users of the cluster."""

    config_map_ref: ObjectRef | None = Field(
        None,
        description="A ConfigMap with the keys passwd and group, in the formats of /etc/passwd and "
        "/etc/group. Ids begin at 500. A broken line is left out, and named in a condition.",
    )
    sssd_conf_ref: SecretKeyRef | None = Field(None, description="Or an sssd.conf in a Secret.")


class HomesSource(KubeModel):
    """The volume of users' homes."""

    claim_name: Name = Field(
        description="A ReadWriteMany claim of this namespace, mounted at /home in workers and logins. The "
        "operator makes the folders of users whose home is /home/FOLDER."
    )


class TokenRules(KubeModel):
    """The users that Tokens may be for."""

    users: list[SlurmName] = Field(
        [], max_length=256, description="A Token of any other user is refused, root's and slurm's included."
    )


class RestoreSource(KubeModel):
    """A copy of state and database to begin with."""

    claim_name: Name = Field(description="The claim that holds the copy.")
    path: str = Field("/", max_length=1024, pattern=PATH, description="The folder of the copy in it.")


class MungeFields(KubeModel):
    """Authentication by munge, of a site whose slurmctld runs elsewhere."""

    key_ref: SecretKeyRef = Field(description="The munge.key of the site.")


class RedboxControllerFields(KubeModel):
    """Fields that other operators of Slurm do not have."""

    profile: Profile = Field(
        Profile.PLAIN,
        description="Plain: every pod passes Pod Security baseline. Privileged: workers are privileged and "
        "confine jobs with cgroups.",
    )
    max_nodes: int = Field(
        1024, ge=1, le=65_533, description="The most nodes that the cluster can have. It only grows."
    )
    partitions: list[PartitionFields] = Field(
        [],
        max_length=64,
        json_schema_extra=KEYED_BY_NAME,
        description="The cluster's partitions. A partition that is left out later ends its jobs first.",
    )
    users: UsersSource | None = Field(
        None,
        json_schema_extra=one_of("configMapRef", "sssdConfRef"),
        description="The Unix users of the cluster. Left out: the users of the image.",
    )
    homes: HomesSource | None = Field(
        None, description="Users' homes. Left out: homes are in the image or in volumes of your own."
    )
    tokens: TokenRules | None = Field(None, description="What Tokens may be made.")
    outside_addresses: list[Cidr] = Field(
        [],
        max_length=32,
        description="Networks, such as 10.1.0.0/16, of hosts outside of Kubernetes that belong to the "
        "cluster: its slurmctld, nodes, login nodes. NetworkPolicies let in whatever is there.",
    )
    munge: MungeFields | None = Field(
        None, description="For an external Controller with AuthType=auth/munge, instead of slurmKeyRef."
    )
    restore: RestoreSource | None = Field(None, description="Begin with the state and database of this copy.")
    trial: bool = Field(
        default=True,
        description="A changed configuration first runs in a pod of its own, with a slurmctld and a slurmd.",
    )


class ControllerSpec(JwtKeyFields):
    """One Slurm cluster."""

    cluster_name: str | None = Field(
        None,
        min_length=1,
        max_length=40,
        pattern=CLUSTER_NAME,
        description="Slurm's ClusterName. Left out: NAMESPACE_NAME.",
    )
    slurm_key_ref: SecretKeyRef | None = Field(
        None, description="The key that Slurm's daemons share. The operator makes one if this is left out."
    )
    jwks_key_ref: ConfigMapKeyRef | None = Field(
        None, description="Public keys (JWKS) of another issuer of tokens."
    )
    accounting_ref: ObjectRef | None = Field(None, description="The Accounting that it reports to.")
    external: bool = Field(
        default=False, description="slurmctld runs elsewhere; then externalConfig says where."
    )
    external_config: ExternalDaemon | None = Field(None, description="The slurmctld that runs elsewhere.")
    ha: HighAvailability | None = Field(None, description="Not built.")
    slurmctld: ContainerFields = Field({}, description="The container slurmctld, as in a pod.")
    reconfigure: ContainerFields = Field(
        {}, description="A container, as in a pod. Refused in a condition: no such container exists."
    )
    logfile: ContainerFields = Field(
        {}, description="A container, as in a pod. Refused in a condition: daemons log to stderr."
    )
    inplace_reconfigure: bool | None = Field(
        None, description="Accepted for compatibility. Changes are always applied without a restart."
    )
    template: PodTemplate = Field({}, description="The pod of slurmctld, as in a pod.")
    service: ServiceFields = Field({}, description="The Service of slurmctld, as in a pod's Service.")
    extra_conf: str | None = Field(
        None,
        max_length=LONGEST_CONF,
        description="Lines for slurm.conf. A key that loads code, or that the operator relies on, is "
        "refused in a condition.",
    )
    config_file_refs: Refs = Field(None, description="ConfigMaps whose keys become files next to slurm.conf.")
    prolog_script_refs: Refs = Field(None, description="ConfigMaps of Prolog scripts.")
    epilog_script_refs: Refs = Field(None, description="ConfigMaps of Epilog scripts.")
    prolog_slurmctld_script_refs: Refs = Field(None, description="ConfigMaps of PrologSlurmctld scripts.")
    epilog_slurmctld_script_refs: Refs = Field(None, description="ConfigMaps of EpilogSlurmctld scripts.")
    persistence: Persistence | None = Field(None, description="The volume of slurmctld's state.")
    metrics: MetricsFields | None = Field(None, description="Slurm's own metrics.")
    redbox: RedboxControllerFields = Field(
        RedboxControllerFields(), description="Fields that other operators of Slurm do not have."
    )

    def name_in_slurm(self, namespace: str, name: str) -> str:
        """Slurm's ClusterName, in 40 characters at most."""
        return self.cluster_name or f"{namespace}_{name}".lower().replace(".", "-")[:40]


class SlurmController(KubeObject):
    """A Controller as stored at the API server."""

    spec: ControllerSpec
    status: ControllerStatus = ControllerStatus()
