"""The kinds of Sylabs' operators, translated into our own SlurmJob.

The rest of the operator works with one kind only. Fields that Red Box decides otherwise are ignored: `ssh`
(the HPC administrator maps users), and the resources of the old companion.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from redbox_api.job_parts import ContainerOptions, Resources
from redbox_clusters.names import OLD_SLURM_JOBS, OLDEST_SLURM_JOBS, WLM_GROUP, WLM_JOBS
from redbox_kube.api.kinds import Kind
from redbox_kube.schemas.volume_schemas import MOUNT
from redbox_kube.status.models import KubeModel
from redbox_operator.api.constants import pod_name
from redbox_operator.api.slurmjob import SlurmJob, SlurmJobSpec
from redbox_operator.api.slurmjob_fields import CollectWhen, ContainerSpec, ResultsSpec, Volume, bounded
from redbox_operator.api.slurmjob_status import JobPhase, SlurmJobStatus

CHOOSES_PARTITION = f"{WLM_GROUP}/partition"
OLD_WORDS = {
    JobPhase.PENDING: JobPhase.PENDING,
    JobPhase.SUBMITTED: JobPhase.PENDING,
    JobPhase.SUSPENDED: JobPhase.PENDING,
    JobPhase.RUNNING: JobPhase.RUNNING,
    JobPhase.SUCCEEDED: JobPhase.SUCCEEDED,
    JobPhase.FAILED: JobPhase.FAILED,
    JobPhase.CANCELLED: JobPhase.FAILED,
}
"""`.status.status` of the old kinds has four values, which tools wait for."""


def _as_text(value: object) -> object:
    """`wlm.sylabs.io/cuda: 10` is an integer in their own example; labels of nodes are strings."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


SelectorValue = Annotated[
    str, BeforeValidator(_as_text), Field(max_length=63), WithJsonSchema({"x-kubernetes-int-or-string": True})
]
Selector = Annotated[
    dict[str, SelectorValue],
    Field(max_length=64, description="Labels of the Kubernetes node for the job's pod."),
]


WORD: dict[str, Any] = {"type": "string", "maxLength": 4096}
SECRET_KEY: dict[str, Any] = {"type": "object", "properties": {"name": WORD, "key": WORD}}
KEY: dict[str, Any] = {"type": "object", "properties": {"secretKeyRef": SECRET_KEY}}
COUNTS: dict[str, Any] = {"maxProperties": 64, "additionalProperties": {"x-kubernetes-int-or-string": True}}
IGNORED = "Accepted for compatibility, and ignored."  # kubectl refuses unknown fields


def _without_name(given: object) -> object:
    return {key: value for key, value in given.items() if key != "name"} if isinstance(given, dict) else given


class OldResults(KubeModel):
    """Results are copied into the volume's folder `<name>-job` when the job has succeeded."""

    source: str = Field(
        alias="from",
        min_length=1,
        max_length=4096,
        pattern=r"^[^\x00\n\r]+$",
        description="A path or pattern.",
    )
    mount: Annotated[
        Volume, BeforeValidator(_without_name), BeforeValidator(bounded), WithJsonSchema(MOUNT)
    ] = Field(
        description="A volume as in a pod: persistentVolumeClaim, nfs or ephemeral; hostPath where the "
        "cluster's administrator allows it.",
    )

    def translated(self, name: str) -> ResultsSpec:
        return ResultsSpec(
            sources=[self.source], volume=self.mount, folder=pod_name(name), when=CollectWhen.SUCCEEDED
        )


class OldSlurmJobSpec(KubeModel):
    """A batch script."""

    batch: str = Field(min_length=1, max_length=200_000, description="The script, as for sbatch.")
    node_selector: Selector = {}
    results: OldResults | None = None
    ssh: dict[str, Any] = Field(
        {},
        json_schema_extra={"properties": {"user": WORD, "password": WORD, "key": KEY}},
        description=IGNORED,
    )
    resources: dict[str, Any] = Field({}, json_schema_extra=COUNTS, description=IGNORED)

    def translated(self, name: str) -> SlurmJobSpec:
        return SlurmJobSpec(batch=self.batch, **_common(self, name))


class OldOptions(KubeModel):
    """Options of Singularity."""

    allow_unsigned: bool = False
    clean_env: bool = False
    fake_root: bool = False
    ipc: bool = False
    pid: bool = False
    no_privs: bool = False
    writable: bool = False
    app: str = Field("", max_length=128, pattern=r"^[A-Za-z0-9_.-]*$")
    host_name: str = Field("", max_length=253, pattern=r"^[A-Za-z0-9.-]*$")
    binds: list[Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00\n\r]+$")]] = Field(
        [], max_length=64
    )

    def translated(self) -> ContainerOptions:
        return ContainerOptions(**{name: value for name, value in self.model_dump().items() if value})


class OldResources(KubeModel):
    """0 means that a resource is not set."""

    nodes: int = Field(0, ge=0, le=100_000)
    cpu_per_node: int = Field(0, ge=0, le=100_000)
    mem_per_node: int = Field(0, ge=0, le=1_000_000_000, description="In MB.")
    wall_time: int = Field(0, ge=0, le=1_000_000_000, description="In seconds.")

    def translated(self) -> Resources:
        minutes = -(-self.wall_time // 60)
        return Resources(
            nodes=self.nodes or None,
            tasks_per_node=1 if self.cpu_per_node else None,
            cpus_per_task=self.cpu_per_node or None,
            mem_per_node=f"{self.mem_per_node}M" if self.mem_per_node else None,
            time=str(minutes) if minutes else None,
        )


class WlmJobSpec(KubeModel):
    """A container."""

    image: str = Field(
        min_length=1,
        max_length=4096,
        pattern=r"^[^\x00-\x20-][^\x00-\x1f]*$",
        description="The image that Singularity runs: a path on the Slurm cluster, library://, docker://.",
    )
    options: OldOptions = OldOptions()
    resources: OldResources = OldResources()
    node_selector: Selector = {}
    results: OldResults | None = None

    def translated(self, name: str) -> SlurmJobSpec:
        return SlurmJobSpec(
            container=ContainerSpec(image=self.image, options=self.options.translated()),
            resources=self.resources.translated(),
            **_common(self, name),
        )


OLD_KINDS: dict[Kind, type[OldSlurmJobSpec | WlmJobSpec]] = {
    OLD_SLURM_JOBS: OldSlurmJobSpec,
    OLDEST_SLURM_JOBS: OldSlurmJobSpec,
    WLM_JOBS: WlmJobSpec,
}


def translated(resource: Kind, raw: dict[str, Any]) -> SlurmJob:
    """The SlurmJob that is equivalent to an object of an old kind."""
    spec = OLD_KINDS[resource].model_validate(raw.get("spec"))
    return SlurmJob(
        metadata=raw["metadata"],
        spec=spec.translated(str(raw["metadata"]["name"])),
        status=raw.get("status", SlurmJobStatus()),
        resource=resource,
    )


def _common(spec: OldSlurmJobSpec | WlmJobSpec, name: str) -> dict[str, Any]:
    selector = dict(spec.node_selector)
    return {
        "partition": selector.pop(CHOOSES_PARTITION, None),
        "node_selector": selector,
        "results": spec.results.translated(name) if spec.results else None,
    }
