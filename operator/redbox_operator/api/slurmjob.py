"""SlurmJob as users write it. The CRD is made from this model (`crds`), and all of the operator reads it.

Other kinds are translated into it where they come in; `resource` then says which kind the object truly is.
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

LONGEST_NAME = 59  # with `-job` behind it, it is still a label of a DNS name
MUTABLE = frozenset({"suspend", "hold", "ttlSecondsAfterFinished"})


class BatchFrom(SlurmClusterKind):
    """Where the batch script is, if not here."""

    config_map_key_ref: Annotated[ObjectKey, Field(description="A key of a ConfigMap of this namespace.")]


class SlurmJobSpec(SlurmClusterKind):
    """One Slurm job: what it runs, where, and what Slurm should give it."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                rule(
                    "[has(self.batch), has(self.batchFrom), has(self.container)].exists_one(given, given)",
                    "say exactly one of batch, batchFrom and container",
                ),
            ]
        }
    )

    cluster: Annotated[
        str | None,
        Field(
            max_length=63,
            pattern=DNS_LABEL,
            description="The SlurmCluster whose Slurm runs the job; `kubectl get slurmclusters` lists "
            "them. It may be left out where there is only one.",
        ),
    ] = None
    batch: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=200_000,
            description="The batch script, as for sbatch: it begins with #!, and its #SBATCH lines count. "
            "What both it and a field of this spec say, the field wins.",
        ),
    ] = None
    batch_from: Annotated[
        BatchFrom | None,
        Field(description="A batch script that lies elsewhere: for one script of many jobs, or a long one."),
    ] = None
    container: Annotated[
        ContainerSpec | None,
        Field(description="A container instead of a script: Apptainer (Singularity) runs it on the nodes."),
    ] = None
    partition: Annotated[
        Name | None, Field(description="As sbatch --partition. Left out: the cluster's default partition.")
    ] = None
    account: Annotated[
        Name | None,
        Field(description="Who pays: as sbatch --account. Left out: the Unix user's default account."),
    ] = None
    qos: Annotated[Name | None, Field(description="The quality of service: as sbatch --qos.")] = None
    resources: Annotated[
        Resources,
        Field(
            description="What Slurm should give the job. A field wins over the script's #SBATCH line; what "
            "is not said is left to the script, the partition and Slurm. These are Slurm's nodes: nothing "
            "of Kubernetes is taken."
        ),
    ] = Resources()
    env: Annotated[
        list[EnvVar],
        Field(
            max_length=256,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
            description="The job's environment variables, with exact values, beside those that Slurm sets.",
        ),
    ] = []
    working_directory: Annotated[
        Path | None,
        Field(
            description="A folder on the Slurm cluster, made if it is missing: as sbatch --chdir. Left "
            "out: the HPC administrator's choice, mostly ~/redbox/<namespace>/<name>-<the first 8 characters "
            "of the SlurmJob's uid>."
        ),
    ] = None
    output: Annotated[
        Path | None,
        Field(
            description="Where stdout goes: as sbatch --output, with its patterns (%j, %A_%a, %x). "
            "`kubectl logs` shows it wherever it is. Left out: slurm-<job id>.out in the working directory."
        ),
    ] = None
    error: Annotated[
        Path | None,
        Field(
            description="Where stderr goes: as sbatch --error. Left out: slurm-<job id>.err, so that it "
            "stays apart; but where output, or the script's own -o or -e, is given, to where stdout goes, by "
            "sbatch's own rule."
        ),
    ] = None
    array: Annotated[
        str | None,
        Field(
            max_length=512,
            pattern=r"^[0-9,:%-]+$",
            description="One job for each index, as sbatch --array: 0-19, 1,3,5, or 0-99%10 for at most "
            "ten at a time. Each finds its index in SLURM_ARRAY_TASK_ID; status.array counts them.",
        ),
    ] = None
    begin: Annotated[
        str | None,
        Field(
            max_length=64,
            pattern=r"^[A-Za-z0-9:+./-]+$",
            description="Not before this time, as sbatch --begin: now+1hour, 2026-12-24T18:00.",
        ),
    ] = None
    depends_on: Annotated[
        list[DependsOn],
        Field(
            max_length=64,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
            description="SlurmJobs of this namespace that this one waits for: in Slurm's own queue where it "
            "can know them, else in Kubernetes, before it is submitted. They can be applied in any order.",
        ),
    ] = []
    options: Annotated[
        list[Text],
        Field(
            max_length=128,
            description="Further options of sbatch by their full names, one a string: --exclusive, "
            "--mail-type=END. What has a field, and what red-box sets, is refused by name.",
        ),
    ] = []
    results: Annotated[
        ResultsSpec | None, Field(description="Files of the job that are copied into a volume at its end.")
    ] = None
    service_account_name: Annotated[
        str,
        Field(
            min_length=1,
            max_length=253,
            description="The service account that red-box sees; the HPC administrator's mapping says which "
            "Unix user it is. The job runs as that user.",
        ),
    ] = "default"
    node_selector: Annotated[
        dict[Annotated[str, Field(max_length=63)], Annotated[str, Field(max_length=63)]],
        Field(
            max_length=64,
            description="Labels of the Kubernetes node that the companion (the job's pod) goes to. "
            "redbox.dev/cluster and redbox.dev/partition also choose these two, where cluster and "
            "partition do not.",
        ),
    ] = {}
    suspend: Annotated[
        bool,
        Field(
            description="Keep it from running: a job that waits is held; one that runs is cancelled, and "
            "starts anew once this is false again. May be changed at any time."
        ),
    ] = False
    hold: Annotated[
        bool,
        Field(
            description="Submit it held, as sbatch --hold; false later releases it. A job that runs is "
            "left alone. May be changed at any time."
        ),
    ] = False
    backoff_limit: Annotated[
        int,
        Field(
            ge=0,
            le=100,
            description="How many times a job that failed is submitted again, as a new job. 0: never.",
        ),
    ] = 0
    retry_lost: Annotated[
        bool,
        Field(
            description="Whether a job whose outcome is lost counts as one that failed, for backoffLimit. It "
            "may have succeeded, or run still: only for jobs that do no harm when they run twice."
        ),
    ] = False
    ttl_seconds_after_finished: Annotated[
        int | None,
        Field(
            ge=0,
            le=2_147_483_647,
            description="The SlurmJob deletes itself, its pod and its log so long after its end. Left out: "
            "it stays. May be changed at any time.",
        ),
    ] = None


class Resource(NamedTuple):
    """A kind as the API server serves it."""

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


SLURM_JOBS = Resource(GROUP, VERSION, "slurmjobs", "SlurmJob")


class SlurmJob(SlurmClusterKind):
    """A job as the API server holds it, of whichever kind it was written."""

    metadata: dict[str, Any]
    spec: SlurmJobSpec
    status: dict[str, Any] = {}
    resource: Resource = SLURM_JOBS
    unreadable: str | None = None  # why its spec is not the one that was written

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
