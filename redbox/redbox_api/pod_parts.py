"""A Kubernetes pod as a job: what resourced sends to red-box, and red-box hands to the runner on the node.

All references are resolved: values of Secrets, ConfigMaps and fields are in `env` and in volumes' files. What
only the node can say (addresses, the node's name) is named, and the runner puts it in. The runner also
expands `$(NAME)` in values, commands and arguments, by Kubernetes' rules.
"""

from __future__ import annotations

import base64
from typing import Annotated, Literal

from pydantic import Base64Bytes, BeforeValidator, Field, model_validator

from redbox_api.job_parts import EnvValue, Path, RegistryCredentials, RequestModel

MAX_CONTAINERS, MAX_VOLUMES, MAX_MOUNTS = 64, 256, 256
MAX_DYNAMIC_PORTS = 64
DnsLabel = Annotated[str, Field(max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
DnsName = Annotated[str, Field(max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
FILE_PATH_PATTERN = r"^[^\x00/][^\x00]*$"
ABSOLUTE_PATTERN = r"^/[^\x00\n\r]*$"
FilePath = Annotated[str, Field(min_length=1, max_length=4096, pattern=FILE_PATH_PATTERN)]
Mode = Annotated[int, Field(ge=0, le=0o777)]
Port = Annotated[int, Field(ge=1, le=65535)]
UnixId = Annotated[int, Field(ge=0, le=2**31 - 1)]
Seconds = Annotated[int, Field(ge=0, le=10**9)]
SourceNumber = Annotated[int, Field(ge=0, le=65535)]
Deadline = Annotated[int | None, Field(ge=1, le=10**9)]
Inputs = Annotated[str, Field(max_length=4096, pattern=r"^[ -~]*$")]
"""The versions of all that a pod is made of and that may change, in its sender's own form."""


POD_ENV_NAME_PATTERN = r"^[ -<>-~]{1,256}$"


class PodEnv(RequestModel):
    """A variable: a value, or what only the node can say."""

    name: Annotated[str, Field(pattern=POD_ENV_NAME_PATTERN)]
    """As Kubernetes takes it, not a shell: any printable ASCII but `=`."""
    value: EnvValue | None = None
    from_node: Literal["podIP", "podIPs", "hostIP", "hostIPs", "nodeName"] | None = None
    from_port: Port | None = None
    """The port that the runner has chosen for this declared one."""

    @model_validator(mode="after")
    def _has_one_source(self) -> PodEnv:
        if sum(source is not None for source in (self.value, self.from_node, self.from_port)) != 1:
            raise ValueError("a variable has exactly one of value, fromNode and fromPort")
        return self


def _in_base64(content: object) -> object:
    """Decoders skip characters outside base64: the file would silently have another content."""
    try:
        encoded = content.encode("ascii") if isinstance(content, str) else content
        if isinstance(encoded, bytes):
            base64.b64decode(encoded.replace(b"\n", b""), validate=True)
    except ValueError:
        raise ValueError("must be in base64") from None
    return content


class PodFile(RequestModel):
    """A file of a volume, by its path in the volume."""

    path: FilePath
    content: Annotated[Base64Bytes, BeforeValidator(_in_base64)]
    mode: Mode = 0o644
    source: SourceNumber = 0
    """Which of the volume's sources brings it: the files of one may be replaced while the pod runs."""


class FilesVolume(RequestModel):
    """Files of Secrets, ConfigMaps and fields: in the job's private folder, read-only in the containers."""

    files: Annotated[list[PodFile], Field(max_length=4096, fail_fast=True)]
    secret: Annotated[bool, Field(description="in memory where the node has room there, else mode 0600")] = (
        False
    )


class EmptyDirVolume(RequestModel):
    """A new folder on the node's local disk, or in its memory; removed when the job ends."""

    in_memory: bool = False
    size_limit: Annotated[int | None, Field(ge=0, description="in bytes")] = None


class HostPathVolume(RequestModel):
    """A path of the Slurm node, with the user's rights; `type` is Kubernetes' own."""

    path: Annotated[Path, Field(pattern=ABSOLUTE_PATTERN)]
    type: Literal[
        "", "DirectoryOrCreate", "Directory", "FileOrCreate", "File", "Socket", "CharDevice", "BlockDevice"
    ] = ""


class PodVolume(RequestModel):
    """A volume: exactly one kind."""

    name: DnsLabel
    files: FilesVolume | None = None
    empty_dir: EmptyDirVolume | None = None
    host_path: HostPathVolume | None = None

    @model_validator(mode="after")
    def _is_one_kind(self) -> PodVolume:
        if sum(kind is not None for kind in (self.files, self.empty_dir, self.host_path)) != 1:
            raise ValueError("a volume has exactly one of files, emptyDir and hostPath")
        return self


class PodMount(RequestModel):
    """Where a container sees a volume, or the `sub_path` below it (expanded as values are, if said so)."""

    volume: DnsLabel
    mount_path: Annotated[Path, Field(pattern=ABSOLUTE_PATTERN)]
    sub_path: Annotated[str, Field(max_length=4096, pattern=r"^[^\x00]*$")] = ""
    expand_sub_path: bool = False
    read_only: bool = False


class HttpHeader(RequestModel):
    """A header of a probe."""

    name: Annotated[str, Field(max_length=256, pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")]
    value: Annotated[str, Field(max_length=4096, pattern=r"^[^\x00\r\n]*$")]


class PodHandler(RequestModel):
    """What a probe or a hook does: exactly one of exec, http_port, tcp_port, grpc_port and sleep_s."""

    exec: Annotated[list[EnvValue], Field(min_length=1, max_length=1024, fail_fast=True)] | None = None
    http_port: Port | None = None
    http_path: Annotated[str, Field(max_length=4096, pattern=r"^[^\x00\r\n]*$")] = "/"
    http_host: Annotated[str, Field(max_length=253, pattern=r"^[A-Za-z0-9.:-]*$")] = ""
    https: bool = False
    http_headers: Annotated[list[HttpHeader], Field(max_length=64, fail_fast=True)] = []
    tcp_port: Port | None = None
    grpc_port: Port | None = None
    grpc_service: Annotated[str, Field(max_length=253, pattern=r"^[^\x00\r\n]*$")] = ""
    sleep_s: Seconds | None = None

    @model_validator(mode="after")
    def _is_one_kind(self) -> PodHandler:
        kinds = (self.exec, self.http_port, self.tcp_port, self.grpc_port, self.sleep_s)
        if sum(kind is not None for kind in kinds) != 1:
            raise ValueError("a handler has exactly one of exec, httpPort, tcpPort, grpcPort and sleepS")
        return self


class PodProbe(PodHandler):
    """A probe with Kubernetes' numbers."""

    initial_delay_s: Seconds = 0
    period_s: Annotated[int, Field(ge=1, le=10**9)] = 10
    timeout_s: Annotated[int, Field(ge=1, le=10**9)] = 1
    success_threshold: Annotated[int, Field(ge=1, le=10**6)] = 1
    failure_threshold: Annotated[int, Field(ge=1, le=10**6)] = 3
    termination_grace_s: Seconds | None = None


class ContainerProgram(RequestModel):
    """A container, an init container, or a sidecar (an init container with `always_restarts`)."""

    name: DnsLabel
    image: Annotated[str, Field(min_length=1, max_length=4096, pattern=r"^[^\x00-\x20-][^\x00-\x1f]*$")]
    """docker://…, or the absolute path of a SIF."""
    shown_image: Annotated[str, Field(max_length=4096)] = ""
    """As the pod's author wrote it, for the status."""
    pull_policy: Literal["Always", "IfNotPresent", "Never"] = "IfNotPresent"
    command: Annotated[list[EnvValue], Field(max_length=1024, fail_fast=True)] = []
    args: Annotated[list[EnvValue], Field(max_length=1024, fail_fast=True)] | None = None
    """None: the image's own, if there is no command either."""
    working_dir: Annotated[str, Field(max_length=4096, pattern=r"^(/[^\x00]*)?$")] = ""
    env: Annotated[list[PodEnv], Field(max_length=8192, fail_fast=True)] = []
    mounts: Annotated[list[PodMount], Field(max_length=MAX_MOUNTS, fail_fast=True)] = []
    ports: Annotated[list[Port], Field(max_length=256, fail_fast=True)] = []
    """Those that it declares: one that another listener has is reported as PortInUse."""
    always_restarts: bool = False
    stdin: bool = False
    """Whether clients can attach to its standard input; without a client it waits for input."""
    stdin_once: bool = False
    """Whether its standard input ends with the first client's."""
    tty: bool = False
    """Whether it has a terminal."""
    startup_probe: PodProbe | None = None
    liveness_probe: PodProbe | None = None
    readiness_probe: PodProbe | None = None
    post_start: PodHandler | None = None
    pre_stop: PodHandler | None = None
    stop_signal: Annotated[str, Field(pattern=r"^SIG[A-Z0-9+-]{2,16}$")] | None = None
    memory_limit: Annotated[int | None, Field(ge=1, description="in bytes")] = None
    read_only_root: bool = False
    default_seccomp: bool = False
    """Whether its program gets the runner's filter of system calls."""
    run_as_user: UnixId | None = None
    """The number that the job's user has inside, and sees; outside it stays the user's own."""
    run_as_group: UnixId | None = None
    message_path: Annotated[str, Field(max_length=4096, pattern=r"^[^\x00]*$")] = "/dev/termination-log"
    """terminationMessagePath."""
    message_from_logs: bool = False
    """terminationMessagePolicy: FallbackToLogsOnError."""

    @property
    def is_entered(self) -> bool:
        """Whether a probe or a hook runs a command in it."""
        handlers = (
            *(self.startup_probe, self.liveness_probe, self.readiness_probe),
            *(self.post_start, self.pre_stop),
        )
        return any(handler is not None and handler.exec is not None for handler in handlers)


class EphemeralProgram(ContainerProgram):
    """A container that is added to a pod that runs, as `kubectl debug` does; it is never started again."""

    target: DnsLabel | None = None
    """The container among whose processes it runs; None: it has its own PID namespace."""


RegistryLogins = Annotated[list[RegistryCredentials], Field(min_length=1, max_length=64, fail_fast=True)]


class PodProgram(RequestModel):
    """A pod whose containers one job runs on its first node."""

    name: DnsName
    namespace: DnsLabel
    uid: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]{1,64}$")]
    restart_policy: Literal["Always", "OnFailure", "Never"] = "Always"
    init_containers: Annotated[list[ContainerProgram], Field(max_length=MAX_CONTAINERS, fail_fast=True)] = []
    containers: Annotated[
        list[ContainerProgram], Field(min_length=1, max_length=MAX_CONTAINERS, fail_fast=True)
    ]
    volumes: Annotated[list[PodVolume], Field(max_length=MAX_VOLUMES, fail_fast=True)] = []
    hostname: Annotated[str, Field(max_length=253, pattern=r"^[A-Za-z0-9.-]*$")] = ""
    hosts_file: Annotated[str, Field(max_length=65536, pattern=r"^[^\x00]*$")] = ""
    """Lines of hostAliases, appended to the node's own."""
    resolv_conf: Annotated[str, Field(max_length=65536, pattern=r"^[^\x00]*$")] = ""
    termination_grace_s: Seconds = 30
    active_deadline_s: Deadline = None
    """From the job's start, by the runner; the request's time limit is later."""
    inputs: Inputs = ""
    """Shown with the job, so that its sender can tell what has changed since. Without it nothing can."""
    scratch: Annotated[Path, Field(pattern=ABSOLUTE_PATTERN)] = "/tmp"  # noqa: S108 (a folder of the job's own is made there)
    gpus: Literal["nvidia", "rocm"] | None = None
    dynamic_ports: bool = False
    """Whether a free port of its node takes the place of each declared one, in probes too."""
    mpi: str | None = Field(None, max_length=64, pattern=r"^[a-z0-9_]+$", description="as srun --mpi: pmix")
    registries: Annotated[dict[str, RegistryCredentials | RegistryLogins], Field(max_length=64)] = {}
    """By registry, as imagePullSecrets give them; several of one are tried in turn."""

    @model_validator(mode="after")
    def _names_are_unique_and_known(self) -> PodProgram:
        names = [container.name for container in (*self.init_containers, *self.containers)]
        volumes = [volume.name for volume in self.volumes]
        if len(set(names)) < len(names) or len(set(volumes)) < len(volumes):
            raise ValueError("names of containers, and of volumes, are unique in a pod")
        self._check_dynamic_ports()
        for container in (*self.init_containers, *self.containers):
            if self.mpi is not None and (container.stdin or container.tty):
                raise ValueError(
                    f"container {container.name} has stdin or tty, but the ranks of an MPI program share no "
                    "terminal: leave them out, or leave out MPI"
                )
            if self.mpi is not None and container.is_entered and container in self.containers:
                raise ValueError(
                    f"container {container.name} has a probe or a hook that executes a command in it, but an "
                    "MPI program has a container for each rank: use httpGet or tcpSocket, or leave them out"
                )
            if self.mpi is not None and (container.run_as_user, container.run_as_group) != (None, None):
                raise ValueError(
                    f"container {container.name} has runAsUser, runAsGroup or fsGroup, but the ranks of an "
                    "MPI program find each other by their user: leave them out, or leave out MPI"
                )
            if unknown := {mount.volume for mount in container.mounts} - set(volumes):
                raise ValueError(
                    f"container {container.name} mounts {', '.join(sorted(unknown))}, which no volume is"
                )
        return self

    def _check_dynamic_ports(self) -> None:
        containers = (*self.init_containers, *self.containers)
        declared = {port for container in containers for port in container.ports}
        if self.dynamic_ports and len(declared) > MAX_DYNAMIC_PORTS:
            raise ValueError(f"a pod with dynamic ports declares at most {MAX_DYNAMIC_PORTS}")
        wanted = {variable.from_port for container in containers for variable in container.env} - {None}
        if wanted and not (self.dynamic_ports and wanted <= declared):
            raise ValueError("fromPort is a declared port of a pod with dynamic ports")


class SourceUpdate(RequestModel):
    """The files that one source of a volume of files has now: all of them."""

    volume: DnsLabel
    source: SourceNumber = 0
    files: Annotated[list[PodFile], Field(max_length=4096, fail_fast=True)] = []


class PodUpdate(RequestModel):
    """What has changed of a pod whose job exists."""

    inputs: Annotated[Inputs, Field(min_length=1)]
    """In place of those of its request, or of the update before."""
    sources: Annotated[list[SourceUpdate], Field(max_length=256, fail_fast=True)] = []
    active_deadline_s: Deadline = None
    """Counts if it is sooner than the pod's own."""
