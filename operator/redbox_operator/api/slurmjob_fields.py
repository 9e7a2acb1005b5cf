"""Nested fields of a SlurmJob's spec: environment, container, results, dependencies."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import PydanticCustomError

from redbox_api.job_parts import Container as RequestedContainer
from redbox_api.job_parts import ContainerOptions, EnvName, EnvValue
from redbox_kube.schemas.openapi import one_of, rule
from redbox_kube.schemas.volume_schemas import CLAIM_TEMPLATE
from redbox_kube.status.models import KubeModel

DNS_LABEL = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"
ObjectName = Annotated[str, Field(min_length=1, max_length=253)]
KeyName = Annotated[str, Field(min_length=1, max_length=253, pattern=r"^[A-Za-z0-9._-]+$")]
# As a pod's fieldRef, without resources: those are the companion's, not the job's.
FIELD_PATH = (
    r"^(metadata\.(name|namespace|uid|(labels|annotations)\['[^']+'\])"
    r"|spec\.(nodeName|serviceAccountName)|status\.(hostIP|podIP))$"
)
DEEPEST = 32
MOST_NAMED = 8
Given = TypeVar("Given")


def bounded(given: Given) -> Given:
    """Bounds nesting: objects stored before the schema named every field may exceed our serializers."""
    level: list[object] = [given]
    for _ in range(DEEPEST):
        level = [inner for outer in level for inner in _inside(outer)]
    if level:
        raise PydanticCustomError("nesting", "is nested more than {deepest} deep", {"deepest": DEEPEST})
    return given


def _inside(outer: object) -> Iterable[object]:
    if isinstance(outer, dict):
        return outer.values()
    return outer if isinstance(outer, list) else ()


OfKubernetes = Annotated[dict[str, Any], AfterValidator(bounded)]
"""Part of an object of Kubernetes' own; its schema is in `volume_schemas`."""


def refuse_several(model: KubeModel, *fields: str) -> None:
    """Of these fields at most one may be set, as the CRD requires: objects may be older than its rule."""
    given = [to_camel(name) for name in fields if getattr(model, name) not in (None, [], False)]
    if len(given) > 1:
        raise PydanticCustomError("one_source", "{named} are set: keep one", {"named": " and ".join(given)})


class OneSource(KubeModel):
    """Base of models with exactly one source: what is validated is then what the pod's builder emits.

    The CRD has the same rule. Objects from before it, and fields that it does not name, get past the CRD.
    """

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _has_one(cls, given: object) -> object:
        if not isinstance(given, dict):
            return given
        sources = {name: source for name, source in given.items() if source is not None}
        if len(sources) != 1:
            named = " and ".join(sorted(sources)[:MOST_NAMED]) or "no source"
            raise PydanticCustomError("one_source", "it has {named}: keep exactly one", {"named": named})
        return sources

    def emitted(self) -> dict[str, Any]:
        """Its source as a pod has it."""
        return self.model_dump(by_alias=True, exclude_defaults=True)


class ObjectKey(KubeModel):
    """One key of a ConfigMap or a Secret in the SlurmJob's namespace."""

    name: ObjectName = Field(description="The object's name.")
    key: KeyName = Field(description="The key in it.")


class OptionalKey(ObjectKey):
    """A key that may be missing."""

    optional: bool = Field(
        default=False,
        description="If it is missing, the job runs without it; otherwise the job waits for it.",
    )


class FieldOfPod(KubeModel):
    """A field of the companion, the job's pod."""

    field_path: str = Field(
        max_length=317,
        pattern=FIELD_PATH,
        description="metadata.name, metadata.namespace, metadata.uid, metadata.labels['KEY'], "
        "metadata.annotations['KEY'], spec.nodeName, spec.serviceAccountName, status.hostIP or "
        "status.podIP of the job's pod. With Virtual delivery uid, node and addresses are those of "
        "the pod that submits.",
    )


class ValueFrom(OneSource):
    """The source of a variable's value: read when the job is submitted, and not stored in any object."""

    model_config = ConfigDict(json_schema_extra=one_of("secretKeyRef", "configMapKeyRef", "fieldRef"))

    secret_key_ref: OptionalKey | None = Field(None, description="A key of a Secret.")
    config_map_key_ref: OptionalKey | None = Field(None, description="A key of a ConfigMap.")
    field_ref: FieldOfPod | None = Field(None, description="A field of the job's pod.")


class EnvVar(KubeModel):
    """One environment variable of the job."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                rule("!has(self.value) || !has(self.valueFrom)", "set value or valueFrom, not both")
            ]
        }
    )

    name: EnvName = Field(max_length=256, description="Letters, digits and _.")
    value: EnvValue | None = Field(None, description="The value, taken literally; $(NAME) is not replaced.")
    value_from: ValueFrom | None = Field(None, description="The source of the value.")

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        refuse_several(self, "value", "value_from")
        return self


class PortSpec(KubeModel):
    """A port of the job's pod in Kubernetes, and the port in the running job that it leads to."""

    name: str = Field(
        min_length=1, max_length=15, pattern=DNS_LABEL, description="Its name, for a Service's targetPort."
    )
    port: int = Field(
        ge=1024,
        le=65_535,
        description="The port of the pod: 1024 or more, because the companion is not root.",
    )
    target_port: int | None = Field(
        None,
        ge=1,
        le=65_535,
        description="The port on which the job's own program listens on its node. Default: `port`.",
    )
    node: str | None = Field(
        None,
        min_length=1,
        max_length=253,
        pattern=r"^[A-Za-z0-9._-]+$",
        description="Which of the job's Slurm nodes. Default: its first.",
    )


class ContainerSpec(KubeModel):
    """A job that is a container."""

    image: str = Field(
        min_length=1,
        max_length=4096,
        pattern=r"^[^\x00-\x20-][^\x00-\x1f]*$",
        description="The image for Apptainer: the path of a SIF file on the Slurm cluster, or docker://, "
        "library://, oras://, https://.",
    )
    command: list[EnvValue] = Field(
        [], max_length=256, description="The program to run in it. Default: the image's own runscript."
    )
    args: list[EnvValue] = Field([], max_length=256, description="Its arguments, taken literally.")
    options: ContainerOptions = Field(ContainerOptions(), description="Options of Apptainer.")
    registry_secret: ObjectName | None = Field(
        None,
        description="A Secret of this namespace of type kubernetes.io/basic-auth: its username and "
        "password log in to the image's registry.",
    )

    def requested(self) -> RequestedContainer:
        """As in the request to red-box; credentials are added by the companion."""
        return RequestedContainer(
            image=self.image, command=self.command, args=self.args, options=self.options
        )


class DependencyType(StrEnum):
    """What the other job has to do before this one may start, in Slurm's terms."""

    AFTER = "after"
    AFTERANY = "afterany"
    AFTEROK = "afterok"
    AFTERNOTOK = "afternotok"
    AFTERCORR = "aftercorr"


class DependsOn(KubeModel):
    """Another SlurmJob of this namespace that this one waits for."""

    name: ObjectName = Field(description="The other SlurmJob.")
    type: DependencyType = Field(
        DependencyType.AFTEROK,
        description="afterok: it succeeded (the default). afternotok: it failed. afterany: it ended. "
        "after: it started. aftercorr: of two arrays, the task of the same index succeeded.",
    )


class DependsOnJob(KubeModel):
    """A job of the Slurm cluster that this SlurmJob waits for, submitted by sbatch, say."""

    job_id: str = Field(
        alias="jobID",
        pattern=r"^[0-9]{1,10}(_[0-9]{1,10})?$",
        description="Slurm's id of the job, or of a task of an array: 4711, 4711_3.",
    )
    type: DependencyType = Field(DependencyType.AFTEROK, description="As of dependsOn.")


class ExistingClaim(KubeModel):
    """A PersistentVolumeClaim in the SlurmJob's namespace."""

    claim_name: ObjectName = Field(description="The PersistentVolumeClaim.")


class Nfs(KubeModel):
    """A folder of an NFS server."""

    server: str = Field(min_length=1, max_length=253, description="Its name or address.")
    path: str = Field(min_length=1, max_length=4096, pattern=r"^/", description="The folder.")


class Ephemeral(KubeModel):
    """A volume that is created for the job's pod and deleted with it."""

    volume_claim_template: OfKubernetes = Field(
        json_schema_extra=CLAIM_TEMPLATE,
        description="As in a pod: metadata and spec of the PersistentVolumeClaim to create.",
    )


class HostPath(KubeModel):
    """A folder of a Kubernetes node. It is created if it is missing, whatever its type."""

    path: str
    type: Literal["DirectoryOrCreate"]

    @model_validator(mode="before")
    @classmethod
    def _created(cls, given: object) -> object:
        return {**given, "type": "DirectoryOrCreate"} if isinstance(given, dict) else given


class Volume(OneSource):
    """The volume for results. Old kinds may name a folder of a Kubernetes node, where that is allowed."""

    # One of another name is kept, so that a refusal can name it.
    model_config = ConfigDict(
        extra="allow", json_schema_extra=one_of("persistentVolumeClaim", "nfs", "ephemeral")
    )

    persistent_volume_claim: ExistingClaim | None = Field(
        None, description="An existing volume, which is kept."
    )
    nfs: Nfs | None = Field(
        None, description="A folder of an NFS server. The restricted Pod Security level does not allow it."
    )
    ephemeral: Ephemeral | None = Field(None, description="A volume that exists as long as the job's pod.")
    host_path: SkipJsonSchema[HostPath | None] = None

    @property
    def unknown_source(self) -> str | None:
        """The name of its source, if no field has it."""
        return next(iter(self.model_extra or ()), None)


class CollectWhen(StrEnum):
    """The ends of a job after which results are copied."""

    ALWAYS = "Always"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class ResultsSpec(KubeModel):
    """Files of the job that are copied into a volume at its end."""

    sources: list[Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00\n\r]+$")]] = Field(
        alias="from",
        min_length=1,
        max_length=64,
        description="Files, folders and patterns (out/*.dat) in the working directory; they keep their "
        "names and modes. An absolute one is copied without its folder: /scratch/a/*.dat yields x.dat.",
    )
    volume: Volume = Field(description="The volume for them.")
    folder: str | None = Field(
        None,
        max_length=1024,
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*$",
        description="A folder of the volume, created if it is missing. Default: the root of the volume.",
    )
    when: CollectWhen = Field(
        CollectWhen.ALWAYS,
        description="Always (the default), or only if the job Succeeded, or only if it Failed.",
    )
