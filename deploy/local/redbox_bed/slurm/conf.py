"""Slurm's configuration files as text, for a release and with or without accounting. Pure.

What differs from a plain installation is so because the bed needs it, and says why where that is not plain.
"""

from __future__ import annotations

from redbox_bed.core.plan import Node, Partition, SlurmCluster

JWT_KEY = "/etc/slurm/jwt.key"
MEMORY_MB = 4000
CPUS = 4


def slurm_conf(cluster: SlurmCluster) -> str:
    sections = [_identity(cluster), _accounting(cluster), _timing(cluster), _resources(cluster)]
    sections += [_node(node) for node in cluster.nodes]
    sections += [_partition(partition) for partition in cluster.partitions]
    return "\n".join(section.strip() for section in sections) + "\n"


def _identity(cluster: SlurmCluster) -> str:
    # Its own metrics, which red-box's are compared with; releases before 25.11 refuse the line.
    metrics = "MetricsType=metrics/openmetrics\n" if cluster.release.has_metrics else ""
    return f"""
{metrics}ClusterName={cluster.name}
SlurmctldHost={cluster.controller}
SlurmUser=slurm
AuthType=auth/munge
CredType=cred/munge
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={JWT_KEY}
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
# The daemons run in the foreground, so their standard error is the log; nothing goes to syslog.
LogTimeFormat=iso8601_ms,format_stderr
SlurmctldSyslogDebug=quiet
SlurmdSyslogDebug=quiet
MailProg=/bin/true
MpiDefault=none
"""


def _accounting(cluster: SlurmCluster) -> str:
    if not cluster.accounting:
        return "# No accounting: no slurmdbd, no associations, nothing in sacct."
    return f"""
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost={cluster.controller}
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu
PriorityType=priority/multifactor
PriorityWeightQOS=10000
"""


def _timing(cluster: SlurmCluster) -> str:
    # Slurm gathers submits for three seconds before it starts them: who does not measure that need not wait.
    fast = "SchedulerParameters=batch_sched_delay=0,sched_min_interval=0\n" if cluster.fast else ""
    return f"""
{fast}ReturnToService=2
SlurmctldTimeout=60
SlurmdTimeout=30
KillWait=5
OverTimeLimit=0
MinJobAge=300
MaxJobCount=20000
MaxArraySize=20001
"""


def _resources(cluster: SlurmCluster) -> str:
    gpus = "GresTypes=gpu\n" if any(node.gpus for node in cluster.nodes) else ""
    return f"""
# The limits of the caller cannot be raised again where CAP_SYS_RESOURCE is missing, so they are not carried.
PropagateResourceLimits=NONE
# Each node says it has {CPUS} CPUs, whatever the machine has.
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=256
{gpus}ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/cgroup
JobAcctGatherFrequency=task=5
"""


def _node(node: Node) -> str:
    gres = f" Gres=gpu:tesla:{node.gpus}" if node.gpus else ""
    return f"NodeName={node.name} CPUs={CPUS} RealMemory={MEMORY_MB}{gres} Feature={','.join(node.features)}"


def _partition(partition: Partition) -> str:
    longest = "UNLIMITED" if partition.max_minutes is None else str(partition.max_minutes)
    default = " Default=YES" if partition.default else ""
    return (
        f"PartitionName={partition.name} Nodes={','.join(partition.nodes)}{default} "
        f"MaxTime={longest} DefaultTime={partition.default_minutes} State=UP"
    )


def gres_conf(cluster: SlurmCluster) -> str:
    """GPUs that are device files without a driver."""
    return "".join(
        f"NodeName={node.name} Name=gpu Type=tesla File=/dev/nvidia[0-{node.gpus - 1}]\n"
        for node in cluster.nodes
        if node.gpus
    )


def mpi_conf() -> str:
    """By tree, Slurm's fence lets a rank go on while another still starts: Open MPI 5 may die of it."""
    return "PMIxCollFence=ring\n"


def cgroup_conf(plugin: str) -> str:
    """`plugin` is the machine's version of control groups, as Slurm names it."""
    return f"CgroupPlugin={plugin}\nConstrainRAMSpace=yes\nConstrainCores=no\nConstrainDevices=yes\n"


def steps_group(node: str) -> str:
    """The control group for a node's job steps: with version 2 slurmd asks systemd for it, if it is missing.

    So it is made beforehand. Without systemd (IgnoreSystemd), slurmd 24.11 moves all beside
    it into a group below, and nothing can join those any more.
    """
    return f"system.slice/{node}_slurmstepd.scope"


def slurmdbd_conf(cluster: SlurmCluster) -> str:
    return f"""DbdHost={cluster.controller}
SlurmUser=slurm
AuthType=auth/munge
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key={JWT_KEY}
StorageType=accounting_storage/mysql
StorageHost=localhost
StorageUser=slurm
StorageLoc=slurm_acct_db
LogTimeFormat=iso8601_ms,format_stderr
PidFile=/run/slurmdbd.pid
"""
