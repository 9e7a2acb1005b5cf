"""Command lines: of Apptainer, of a step of Slurm, and of a program that enters a container. Pure.

No value of the pod's environment is in one of them, but those of `loader_variables`: any user of the node
reads command lines.
"""

import json
import os
from typing import Dict, List, NamedTuple, Optional, Tuple

from redbox.node.program.loader_variables import loads_files
from redbox.runner.program.rules import is_identifier
from redbox.runner.program.volumes import Mount

# In a user namespace also where Apptainer is setuid: else it takes no folder of a user's as an overlay, and
# no command can enter the container.
ISOLATED = ("--userns", "--containall", "--no-init", "--no-umask", "--no-eval", "--no-mount", "tmp,home")
# MPI's ranks find each other by the memory, the processes and the sockets of their node.
SHARED = ("--userns", "--contain", "--cleanenv", "--no-init", "--no-umask", "--no-eval", "--no-mount", "home")
ALL_BUT_CLEAN = {"--containall": ("--contain", "--ipc", "--pid"), "--cleanenv": ()}
"""In place of these, for a container with variables that no shell takes: it has Apptainer's environment."""
APPTAINERS_OWN = ("PATH", "HOME")
"""All that Apptainer needs of the node's variables; in the container it sets others."""
GPU_FLAGS = {"nvidia": "--nv", "rocm": "--rocm"}
GPU_VARIABLES = {
    "nvidia": ("CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"),
    "rocm": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL"),
}
PASSED = ("APPTAINERENV_", "SINGULARITYENV_")
SETTINGS = ("APPTAINER_", "SINGULARITY_", *PASSED)
# Apptainer lets them into a clean environment.
LET_IN = ("TERM", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "FTP_PROXY")
# Of the batch script: they would contradict what a step asks for.
STEP_VARIABLES = (
    "SLURM_MEM_PER_",
    "SLURM_CPUS_PER_TASK",
    "SLURM_NTASKS",
    "SLURM_TRES_PER_TASK",
    "SLURM_DIST",
)
DENIED = (
    "acct add_key bpf clock_settime create_module delete_module finit_module fsconfig fsmount fsopen fspick "
    "init_module ioperm iopl kexec_file_load kexec_load keyctl lookup_dcookie mount mount_setattr move_mount "
    "nfsservctl open_by_handle_at open_tree perf_event_open pivot_root quotactl quotactl_fd reboot "
    "request_key setns settimeofday stime swapoff swapon sysfs umount umount2 unshare uselib userfaultfd "
    "vhangup vm86 vm86old"
)
"""By seccompProfile RuntimeDefault, as by other runtimes. The profile of Apptainer's own packages allows what
it lists, and does not list clone3: no program of a newer glibc could start a thread."""
ARCHITECTURES = {"x86_64": ("X86_64", "X86", "X32"), "aarch64": ("AARCH64", "ARM")}
CONTAINER_NAME = "REDBOX_CONTAINER"
"""In a container, its name in the pod, by which a session finds it."""
OVERHEAD = 30 * 1024 * 1024
"""What Apptainer's own processes of a container need."""
MIB = 1024 * 1024


class EnterTools(NamedTuple):
    """This node's programs for entering a container: absolute, since a container's PATH leads to its own."""

    nsenter: str
    setpriv: Optional[str]
    has_wdns: bool


def quote_field(field: str) -> str:
    return '"{}"'.format(field.replace('"', '""'))


def mount_option(mount: Mount) -> str:
    fields = [quote_field("source=" + mount.source), quote_field("destination=" + mount.destination)]
    return ",".join(["type=bind", *fields, *(["ro"] if mount.read_only else [])])


def container_command(
    runtime: str,
    image: str,
    argv: List[str],
    *,
    overlay: Optional[str],
    cwd: str,
    home: str,
    hostname: str,
    mounts: List[Mount],
    gpus: Optional[str],
    isolated: bool = True,
    clean: bool = True,
    seccomp: Optional[str] = None,
) -> List[str]:
    command = [runtime, "-s", "exec"]
    for flag in ISOLATED if isolated else SHARED:
        command += [flag] if clean else ALL_BUT_CLEAN.get(flag, (flag,))
    command += ["--overlay", overlay] if overlay is not None else []
    command += ["--home", home, "--cwd", cwd]
    command += ["--hostname", hostname] if hostname else []
    command += [GPU_FLAGS[gpus]] if gpus else []
    command += ["--security", "seccomp:" + seccomp] if seccomp is not None else []
    for mount in mounts:
        command += ["--mount", mount_option(mount)]
    return [*command, image, *argv]


def runtime_environment(host: Dict[str, str], values: Dict[str, str], gpus: Optional[str]) -> Dict[str, str]:
    """The environment of Apptainer: the node's, and the container's under the names that it passes on.

    What no shell takes is passed as it is, in an environment that has next to nothing of the node's.
    """
    plain = plain_variables(values)
    environment = {
        name: value
        for name, value in host.items()
        if not name.startswith(SETTINGS) and name.upper() not in LET_IN
        if not plain or name in APPTAINERS_OWN
    }
    given = {name: host[name] for name in GPU_VARIABLES.get(gpus or "", ()) if name in host}
    given.update(values)
    given.pop("HOME", None)  # Apptainer refuses it: --home sets it
    environment.update({PASSED[0] + name: value for name, value in given.items() if name not in plain})
    environment.update(plain)
    return environment


def seccomp_profile(machine: str = os.uname().machine) -> str:
    """As Apptainer reads it; a name that a kernel does not have is no fault."""
    rule = {"names": DENIED.split(), "action": "SCMP_ACT_ERRNO"}
    profile: Dict[str, object] = {"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [rule]}
    if machine in ARCHITECTURES:
        profile["architectures"] = ["SCMP_ARCH_" + name for name in ARCHITECTURES[machine]]
    return json.dumps(profile)


def plain_variables(values: Dict[str, str]) -> Dict[str, str]:
    return {name: value for name, value in values.items() if not is_identifier(name)}


def step_memory(memory_limit: int) -> int:
    """In MiB."""
    return (memory_limit + OVERHEAD + MIB - 1) // MIB


def job_has_memory(memory_limit: int, host: Dict[str, str]) -> bool:
    """Whether the job has as much for a step, as far as Slurm says; else its own limit is the lower one."""
    per_node, per_cpu, cpus = (
        int(host.get(name, "0")) for name in ("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE")
    )
    memory = per_node or per_cpu * cpus
    return not memory or step_memory(memory_limit) <= memory


def step_command(program: List[str], node: str, name: str, memory_limit: int) -> List[str]:
    """One task with a memory limit of its own, within the job."""
    memory = "--mem={}M".format(step_memory(memory_limit))
    options = ["--overlap", "-N1", "-n1", memory, "--cpu-bind=none", "--export=NONE"]
    files = ["--input=none", "--output=none", "--error=none"]
    return ["srun", "-Q", *options, *files, "-J", "pod-" + name, *(["-w", node] if node else []), *program]


def step_environment(host: Dict[str, str]) -> Dict[str, str]:
    return {name: value for name, value in host.items() if not name.startswith(STEP_VARIABLES)}


def split_environment(values: Dict[str, str]) -> Tuple[Dict[str, str], Dict[str, str]]:
    """Those that nsenter may have, and those by which it would load a container's code outside of it."""
    kept = {name: value for name, value in values.items() if not loads_files(name, value)}
    return kept, {name: value for name, value in values.items() if name not in kept}


def enter_command(
    pid: int, cwd: str, argv: List[str], tools: EnterTools, inside: Dict[str, str], *, own_hostname: bool
) -> List[str]:
    """A command inside a container that runs, with variables that are set only there."""
    guard = [tools.setpriv, "--no-new-privs"] if tools.setpriv else []
    where = "--wdns=" + cwd if tools.has_wdns else "--wd"
    enter = [
        tools.nsenter,
        "-t",
        str(pid),
        "-U",
        "--preserve-credentials",
        "-m",
        "-p",
        "-i",
        *(["-u"] if own_hostname else []),
        "-r",
        where,
        "--",
    ]
    setting = ["env", *("{}={}".format(*pair) for pair in inside.items())] if inside else []
    return [*guard, *enter, *setting, *argv]
