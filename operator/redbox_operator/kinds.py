"""SlurmJob as users write it. The CRD is made from this model (`crds`)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from redbox_api.models import Resources
from redbox_kube.slurm_cluster import Kind

DNS_NAME = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"


class EnvVar(Kind):
    """One environment variable of the job."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=256)]
    value: Annotated[str, Field(max_length=32768)] = ""


class SlurmJobSpec(Kind):
    """One Slurm job: what it runs, where, and what Slurm should give it."""

    cluster: Annotated[
        str, Field(max_length=63, pattern=DNS_NAME, description="The SlurmCluster whose Slurm runs the job.")
    ]
    batch: Annotated[
        str,
        Field(
            min_length=1,
            max_length=200_000,
            description="The batch script, as for sbatch: it begins with #!, and its #SBATCH lines count.",
        ),
    ]
    partition: Annotated[
        str | None, Field(max_length=256, description="As sbatch --partition; else Slurm's default.")
    ] = None
    account: Annotated[str | None, Field(max_length=256, description="As sbatch --account.")] = None
    qos: Annotated[str | None, Field(max_length=256, description="As sbatch --qos.")] = None
    resources: Annotated[
        Resources,
        Field(description="What Slurm should give the job; a field wins over the script's #SBATCH line."),
    ] = Resources()
    env: Annotated[
        list[EnvVar], Field(max_length=256, description="The job's environment, with exact values.")
    ] = []
    working_directory: Annotated[
        str | None, Field(max_length=4096, description="On the Slurm cluster; made if it is missing.")
    ] = None
    output: Annotated[str | None, Field(max_length=4096, description="As sbatch --output.")] = None
    error: Annotated[str | None, Field(max_length=4096, description="As sbatch --error.")] = None
    options: Annotated[
        list[Annotated[str, Field(max_length=1024)]],
        Field(max_length=128, description="Further options of sbatch, one a string: --exclusive."),
    ] = []
    service_account_name: Annotated[
        str, Field(max_length=253, description="Whose mapping at red-box says which Unix user runs the job.")
    ] = "default"


class SlurmJob(Kind):
    """A SlurmJob as the API server holds it."""

    metadata: dict[str, Any]
    spec: SlurmJobSpec
    status: dict[str, Any] = {}

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
    def finalizers(self) -> list[str]:
        return list(self.metadata.get("finalizers", []))

    @property
    def being_deleted(self) -> bool:
        return "deletionTimestamp" in self.metadata
