"""SlurmJob as users write it. The CRD is generated from this model (`crds`).

Jobs of old kinds are translated into it when they are decoded; `resource` is the kind of the original object.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from pydantic import ConfigDict, Field

from redbox_api.job_parts import Name, Path, Resources, Text
from redbox_kube.names import GROUP, VERSION
from redbox_kube.slurm_cluster import SlurmClusterKind
from redbox_operator.api.openapi import rule
from redbox_operator.api.slurmjob_fields import (
    DNS_LABEL,
    ContainerSpec,
    DependsOn,
    EnvVar,
    ObjectKey,
    ResultsSpec,
)
from redbox_operator.api.slurmjob_status import SlurmJobStatus

LONGEST_NAME = 59  # `<name>-job` is still one label of a DNS name
MUTABLE = frozenset({"suspend", "hold", "ttlSecondsAfterFinished"})


class BatchFrom(SlurmClusterKind):
    """The place of a batch script outside of the SlurmJob."""

    config_map_key_ref: ObjectKey = Field(description="A key of a ConfigMap of this namespace.")


class SlurmJobSpec(SlurmClusterKind):
    """One Slurm job: its program, its cluster and partition, and its resources."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                rule(
                    "[has(self.batch), has(self.batchFrom), has(self.container)].exists_one(given, given)",
                    "set exactly one of batch, batchFrom and container",
                )
            ]
        }
    )

    cluster: str | None = Field(
        None,
        max_length=63,
        pattern=DNS_LABEL,
        description="The SlurmCluster whose Slurm runs the job; `kubectl get slurmclusters` lists "
        "them. May be omitted if there is only one.",
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
    partition: Name | None = Field(
        None, description="As sbatch --partition. Default: the cluster's default partition."
    )
    account: Name | None = Field(
        None, description="The account to charge, as sbatch --account. Default: the user's default account."
    )
    qos: Name | None = Field(None, description="The quality of service, as sbatch --qos.")
    resources: Resources = Field(
        Resources(),
        description="The resources of the job in Slurm. A field takes precedence over the "
        "script's #SBATCH line; omitted fields are left to the script, the partition and Slurm. They are "
        "resources of Slurm's nodes, not of Kubernetes.",
    )
    env: list[EnvVar] = Field(
        [],
        max_length=256,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        description="The job's environment variables, in addition to those that Slurm sets.",
    )
    working_directory: Path | None = Field(
        None,
        description="A folder on the Slurm cluster, created if it is missing, as sbatch --chdir. "
        "Default: set by the HPC administrator, usually ~/redbox/<namespace>/<name>-<the first 8 "
        "characters of the SlurmJob's uid>.",
    )
    output: Path | None = Field(
        None,
        description="The file for stdout, as sbatch --output, with its patterns (%j, %A_%a, %x). "
        "`kubectl logs` shows it wherever it is. Default: slurm-<job id>.out in the working directory.",
    )
    error: Path | None = Field(
        None,
        description="The file for stderr, as sbatch --error. Default: slurm-<job id>.err, separate from "
        "stdout; but if output, or the script's own -o or -e, is set, the file of stdout, by sbatch's "
        "own rule.",
    )
    array: str | None = Field(
        None,
        max_length=512,
        pattern=r"^[0-9,:%-]+$",
        description="One job for each index, as sbatch --array: 0-19, 1,3,5, or 0-99%10 for at most "
        "ten at a time. Each task has its index in SLURM_ARRAY_TASK_ID; status.array counts them.",
    )
    begin: str | None = Field(
        None,
        max_length=64,
        pattern=r"^[A-Za-z0-9:+./-]+$",
        description="Not before this time, as sbatch --begin: now+1hour, 2026-12-24T18:00.",
    )
    depends_on: list[DependsOn] = Field(
        [],
        max_length=64,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        description="SlurmJobs of this namespace that this one waits for: in Slurm's queue where Slurm "
        "can track them, otherwise in Kubernetes before it is submitted. Apply them in any order.",
    )
    options: list[Text] = Field(
        [],
        max_length=128,
        description="Further options of sbatch by their full names, one per string: --exclusive, "
        "--mail-type=END. Options that have a field, or that red-box sets, are refused by name.",
    )
    results: ResultsSpec | None = Field(
        None, description="Files of the job to copy into a volume when it ends."
    )
    service_account_name: str = Field(
        "default",
        min_length=1,
        max_length=253,
        description="The service account of the job's requests to red-box; the HPC administrator maps it "
        "to a Unix user. The job runs as that user.",
    )
    node_selector: dict[Annotated[str, Field(max_length=63)], Annotated[str, Field(max_length=63)]] = Field(
        {},
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
        description="Whether a job whose outcome is lost counts as failed, for backoffLimit. It "
        "may have succeeded, or may still run: only for jobs that can safely run twice.",
    )
    ttl_seconds_after_finished: int | None = Field(
        None,
        ge=0,
        le=2_147_483_647,
        description="Seconds after its end when the SlurmJob is deleted, with its pod and its log. "
        "Default: never. May be changed at any time.",
    )


class Resource(NamedTuple):
    """A kind at the API server."""

    group: str
    version: str
    plural: str
    kind: str

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}"


class SlurmJobRef(NamedTuple):
    """Kind, namespace and name of a SlurmJob or of a job of an old kind."""

    resource: Resource
    namespace: str
    name: str

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"


SLURM_JOBS = Resource(GROUP, VERSION, "slurmjobs", "SlurmJob")


class SlurmJob(SlurmClusterKind):
    """A job as stored at the API server, of our kind or of an old one."""

    metadata: dict[str, Any]
    spec: SlurmJobSpec
    status: SlurmJobStatus = SlurmJobStatus()
    resource: Resource = SLURM_JOBS
    unreadable: str | None = None  # why its spec could not be decoded

    @property
    def ref(self) -> SlurmJobRef:
        return SlurmJobRef(self.resource, self.namespace, self.name)

    @property
    def name(self) -> str:
        return str(self.metadata["name"])

    @property
    def namespace(self) -> str:
        return str(self.metadata["namespace"])

    @property
    def uid(self) -> str:
        return str(self.metadata["uid"])

    @property
    def annotations(self) -> dict[str, str]:
        return dict(self.metadata.get("annotations", {}))

    @property
    def finalizers(self) -> list[str]:
        return list(self.metadata.get("finalizers", []))

    @property
    def being_deleted(self) -> bool:
        return "deletionTimestamp" in self.metadata

    @property
    def user_input(self) -> tuple[object, ...]:
        """What users change: spec and deletion raise the generation, annotations do not."""
        return self.metadata.get("generation"), self.being_deleted, self.annotations
