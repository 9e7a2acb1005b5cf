"""Parts of a job that SlurmJobs have as well: resources, a container with its options, and Slurm's details.

`kubectl explain` and the API's documentation show their descriptions.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, SerializationInfo, field_serializer
from pydantic.alias_generators import to_camel

ENV_NAME_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,255}$"
REVEAL_SECRETS = {"reveal": True}  # the context in which a dump holds secrets as they are: only for the wire

TIME_PATTERN = r"^(UNLIMITED|[0-9]+|[0-9]+:[0-5]?[0-9](:[0-5]?[0-9])?|[0-9]+-[0-9]+(:[0-9]+){0,2})$"
MEMORY_PATTERN = r"^[0-9]{1,12}[KMGT]?$"
GPUS_PATTERN = r"^([A-Za-z0-9_.-]{1,64}:)?[0-9]{1,6}$"
Memory = Annotated[str, Field(max_length=16, pattern=MEMORY_PATTERN)]
Text = Annotated[str, Field(max_length=1024, pattern=r"^[^\x00\n\r]*$")]
Name = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$")]
Path = Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00\n\r]+$")]
EnvName = Annotated[str, Field(pattern=ENV_NAME_PATTERN)]
EnvValue = Annotated[str, Field(max_length=131072, pattern=r"^[^\x00]*$")]
Argument = Annotated[str, Field(max_length=8192, pattern=r"^[^\x00]*$")]


class RequestModel(BaseModel):
    """Base of requests: an unknown field is rejected by its name.

    Lists are fail_fast: an error of pydantic is 1 KB, and a list of a request may have thousands of items.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)


class Resources(RequestModel):
    """Resources for the job; unset ones are left to the script, the partition and Slurm."""

    nodes: int | None = Field(None, ge=1, le=100_000, description="as --nodes: how many")
    tasks: int | None = Field(
        None, ge=1, le=10_000_000, description="as --ntasks: processes in all, as srun starts them"
    )
    tasks_per_node: int | None = Field(
        None, ge=1, le=100_000, description="as --ntasks-per-node: processes on each node"
    )
    cpus_per_task: int | None = Field(
        None, ge=1, le=100_000, description="as --cpus-per-task: for each process's threads"
    )
    mem_per_node: Memory | None = Field(None, description="memory on each node, as --mem: 4G, 512M")
    mem_per_cpu: Memory | None = Field(None, description="memory for each CPU instead, as --mem-per-cpu: 2G")
    gpus_per_node: str | None = Field(
        None, max_length=80, pattern=GPUS_PATTERN, description="on each node, as --gpus-per-node: 2, a100:2"
    )
    gres: str | None = Field(
        None,
        max_length=512,
        pattern=r"^[A-Za-z0-9_.:,()/=-]+$",
        description="other countable things on each node, as --gres: license:2",
    )
    time: str | None = Field(
        None,
        max_length=32,
        pattern=TIME_PATTERN,
        description="at most so long, as --time: 90 (minutes), 2:00:00, 1-12:00:00, UNLIMITED",
    )


class RegistryCredentials(RequestModel):
    """How to log in to the registry that the image comes from; never shown, never in argv."""

    username: Annotated[str, Field(max_length=256, pattern=r"^[^\x00\n\r]*$")]
    password: SecretStr

    @field_serializer("password", when_used="json")
    def _hide(self, password: SecretStr, info: SerializationInfo) -> str:
        return password.get_secret_value() if info.context == REVEAL_SECRETS else "**********"


class ContainerOptions(RequestModel):
    """Singularity's switches, by the names that the Sylabs operator gave them."""

    allow_unsigned: Annotated[bool, Field(description="the image need not be signed")] = False
    clean_env: Annotated[bool, Field(description="no variable of the job but its own env, as -e")] = False
    contain: Annotated[bool, Field(description="no home and no /tmp of the host, as -c")] = False
    fake_root: Annotated[bool, Field(description="be root inside, as -f")] = False
    ipc: Annotated[bool, Field(description="its own IPC namespace, as -i")] = False
    pid: Annotated[bool, Field(description="its own PID namespace, as -p")] = False
    no_privs: Annotated[bool, Field(description="without any capability, as --no-privs")] = False
    writable: Annotated[bool, Field(description="the image may be written to, as -w")] = False
    app: str | None = Field(None, max_length=128, pattern=r"^[A-Za-z0-9_.-]+$", description="which SCIF app")
    host_name: str | None = Field(
        None, max_length=253, pattern=r"^[A-Za-z0-9.-]+$", description="its host name inside"
    )
    binds: list[Path] = Field(
        [], fail_fast=True, max_length=64, description="folders of the host: /data, /data:/inside:ro"
    )
    gpus: Literal["nvidia", "rocm"] | None = Field(
        None, description="the node's GPUs inside, as --nv or --rocm"
    )
    mpi: str | None = Field(None, max_length=64, pattern=r"^[a-z0-9_]+$", description="as srun --mpi: pmix")


class Container(RequestModel):
    """A job that is a container: `singularity run IMAGE ARGS`, or `exec` where a command is given."""

    image: Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00-\x20-][^\x00-\x1f]*$")]
    command: Annotated[list[EnvValue], Field(max_length=1024, fail_fast=True)] = []
    args: Annotated[list[EnvValue], Field(max_length=1024, fail_fast=True)] = []
    options: ContainerOptions = ContainerOptions()
    registry: RegistryCredentials | None = None


class SbatchFields(RequestModel):
    """Fields that a SlurmJob and a request to red-box have in common, as options of sbatch."""

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
    working_directory: Path | None = Field(
        None,
        description="A folder on the Slurm cluster, created if it is missing, as sbatch --chdir; it takes "
        "precedence over the script's #SBATCH --chdir. Default: that --chdir, where a relative one is below "
        "the folder of the HPC administrator's settings, else that folder: usually "
        "~/redbox/<namespace>/<name>-<the first 8 characters of the SlurmJob's uid>.",
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
    arguments: list[Argument] = Field(
        [],
        fail_fast=True,
        max_length=128,
        description="Arguments of the script, as behind its name on sbatch's command line, whatever its "
        "interpreter. Other users of the login node and of Slurm's accounting can see them.",
    )
    options: list[Text] = Field(
        [],
        fail_fast=True,
        max_length=128,
        description="Further options of sbatch by their full names, one per string: --exclusive, "
        "--mail-type=END. Options that have a field outside of resources, or that red-box sets, are refused "
        "by name.",
    )


class JobDetails(BaseModel):
    """What a job and the status of its SlurmJob have in common; each adds the names of its own form."""

    state: str | None = Field(None, description="The job's state in Slurm's terms.")
    job_id: str | None = Field(None, alias="jobID", description="The Slurm job id of the newest attempt.")
    partition: str | None = Field(None, description="The job's partition in Slurm.")
    nodes: list[str] = Field(default_factory=list, description="The Slurm nodes that it runs or ran on.")
    exit_code: int | None = None
    signal: int | None = Field(None, description="The signal that ended it.")
    submitted_at: datetime | None = None
    started_at: datetime | None = None
    ended_at: datetime | None = None
    stale_since: datetime | None = Field(
        None, description="Since when Slurm has not reported the job's state."
    )
    working_directory: str | None = None
