"""SlurmJob as users write it. The CRD is generated from this model (`crds`).

Jobs of old kinds are translated into it when they are decoded; `resource` is the kind of the original object.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple, Self

from pydantic import ConfigDict, Field, model_validator

from redbox_api.job_parts import SbatchFields
from redbox_clusters.names import SLURM_JOBS
from redbox_kube.api.kinds import Kind
from redbox_kube.api.objects import ResourcePath
from redbox_kube.schemas.openapi import rule
from redbox_kube.status.models import KubeModel, StoredObject
from redbox_operator.api.slurmjob_fields import (
    DNS_LABEL,
    ContainerSpec,
    DependsOn,
    DependsOnJob,
    EnvVar,
    ObjectKey,
    OneSource,
    PortSpec,
    ResultsSpec,
    refuse_several,
)
from redbox_operator.api.slurmjob_status import SlurmJobStatus

LONGEST_NAME = 59  # `<name>-job` is still one label of a DNS name
MUTABLE = frozenset({"suspend", "hold", "ttlSecondsAfterFinished"})


class BatchFrom(OneSource):
    """The place of a batch script outside of the SlurmJob."""

    config_map_key_ref: ObjectKey = Field(description="A key of a ConfigMap of this namespace.")


class SlurmJobProgram(KubeModel):
    """The program of a SlurmJob, and the cluster that runs it."""

    cluster: str | None = Field(
        None,
        max_length=63,
        pattern=DNS_LABEL,
        description="The SlurmCluster whose Slurm runs the job; `kubectl get slurmclusters` lists "
        "them. May be omitted if there is only one, and no SlurmEndpoint in this namespace.",
    )
    endpoint: str | None = Field(
        None,
        max_length=63,
        pattern=DNS_LABEL,
        description="Or the SlurmEndpoint of this namespace whose Slurm runs the job; `kubectl get "
        "slurmendpoints` lists them. Of cluster and endpoint only one can be set.",
    )
    batch: str | None = Field(
        None,
        min_length=1,
        max_length=200_000,
        description="The batch script, as for sbatch: it begins with #! and may have #SBATCH lines. "
        "A field of this spec takes precedence over a #SBATCH line.",
    )
    batch_from: BatchFrom | None = Field(
        None, description="A batch script in a ConfigMap: for a script of many jobs, or a long one."
    )
    container: ContainerSpec | None = Field(
        None, description="A container instead of a script: Apptainer (Singularity) runs it on the nodes."
    )


class SlurmJobSpec(SbatchFields, SlurmJobProgram):
    """One Slurm job: its program, its cluster and partition, and its resources."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                rule(
                    "[has(self.batch), has(self.batchFrom), has(self.container)].exists_one(given, given)",
                    "set exactly one of batch, batchFrom and container",
                ),
                rule("!(has(self.cluster) && has(self.endpoint))", "set only one of cluster and endpoint"),
                rule(
                    "!(has(self.container) && has(self.arguments))",
                    "arguments are a script's: a container has container.args",
                ),
                rule(
                    "!(has(self.dependsOnAny) && self.dependsOnAny && has(self.dependsOnJobs))",
                    "with dependsOnAny name SlurmJobs alone",
                ),
            ]
        }
    )

    env: list[EnvVar] = Field(
        default_factory=list,
        max_length=256,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        description="The job's environment variables, in addition to those that Slurm sets.",
    )
    depends_on: list[DependsOn] = Field(
        default_factory=list,
        max_length=64,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        description="SlurmJobs of this namespace that this one waits for, in Slurm's queue or before it is "
        "submitted. Apply them in any order.",
    )
    depends_on_jobs: list[DependsOnJob] = Field(
        default_factory=list,
        max_length=64,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["jobID"]},
        description="Jobs of the Slurm cluster that are no SlurmJobs and that this one waits for in Slurm's "
        "queue. Slurm refuses an id that it does not have.",
    )
    depends_on_any: bool = Field(
        default=False,
        description="One of dependsOn is enough, as ? in sbatch --dependency; dependsOnJobs must be empty. "
        "The job is submitted as soon as one is met.",
    )
    results: ResultsSpec | None = Field(
        None, description="Files of the job to copy into a volume when it ends."
    )
    ports: list[PortSpec] = Field(
        default_factory=list,
        max_length=16,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        description="Ports that the job serves, for a Service that selects redbox.dev/slurmjob: NAME. The "
        "job's pod relays them, and is ready while all of them answer.",
    )
    service_account_name: str = Field(
        "default",
        min_length=1,
        max_length=253,
        description="The service account of the job. It runs as the Unix user to which the HPC "
        "administrator maps that account.",
    )
    node_selector: dict[Annotated[str, Field(max_length=63)], Annotated[str, Field(max_length=63)]] = Field(
        default_factory=dict,
        max_length=64,
        description="Labels of the Kubernetes node for the companion (the job's pod). "
        "redbox.dev/cluster and redbox.dev/partition also choose cluster and partition, if those "
        "fields are omitted.",
    )
    suspend: bool = Field(
        default=False,
        description="Keep it from running: a pending job is held; a running one is cancelled, and "
        "starts again when this is false. May be changed at any time.",
    )
    hold: bool = Field(
        default=False,
        description="Submit it held, as sbatch --hold; false later releases it. A running job is "
        "not affected. May be changed at any time.",
    )
    backoff_limit: int = Field(
        0, ge=0, le=100, description="How many times a failed job is submitted again, as a new job. 0: never."
    )
    retry_lost: bool = Field(
        default=False,
        description="A lost job counts as failed for backoffLimit. It may have succeeded or still run, so "
        "this is only for jobs that can safely run twice. A job that Slurm forgot (ForgottenBySlurm) "
        "counts anyway, unless something shows that it had started.",
    )
    ttl_seconds_after_finished: int | None = Field(
        None,
        ge=0,
        le=2_147_483_647,
        description="Seconds after its end when the SlurmJob is deleted, with its pod and its log. "
        "Default: never. May be changed at any time.",
    )

    @model_validator(mode="after")
    def _has_one_program(self) -> Self:
        refuse_several(self, "batch", "batch_from", "container")
        refuse_several(self, "cluster", "endpoint")
        refuse_several(self, "container", "arguments")
        refuse_several(self, "depends_on_any", "depends_on_jobs")
        return self


class SlurmJobRef(NamedTuple):
    """Kind, namespace and name of a SlurmJob or of a job of an old kind."""

    resource: Kind
    namespace: str
    name: str

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


def path_of(ref: SlurmJobRef) -> ResourcePath:
    """The object's path at the API server."""
    return ResourcePath(ref.resource, ref.name, ref.namespace)


class SlurmJob(StoredObject):
    """A job as stored at the API server, of our kind or of an old one."""

    spec: SlurmJobSpec
    status: SlurmJobStatus = Field(default_factory=SlurmJobStatus)
    resource: Kind = SLURM_JOBS
    unreadable: str | None = None  # why its spec could not be decoded
    is_whole: bool = True  # of one in the object cache only a part of the spec may be kept

    @property
    def ref(self) -> SlurmJobRef:
        return SlurmJobRef(self.resource, self.namespace, self.name)

    @property
    def annotations(self) -> dict[str, str]:
        return dict(self.metadata.get("annotations", {}))

    @property
    def user_input(self) -> tuple[object, ...]:
        """What users change: spec and deletion raise the generation, annotations do not."""
        return self.generation, self.being_deleted, self.annotations


def awaits_pods(spec: SlurmJobSpec, status: SlurmJobStatus) -> bool:
    """Whether a pod of the ended job has not reported yet that the log was read, or what was copied.

    With Virtual delivery the companion is done before the pod that copies the results has even begun.
    """
    results_due = spec.results is not None and bool(status.job_id) and status.results is None
    return status.companion is not None and (results_due or not status.companion.done)
