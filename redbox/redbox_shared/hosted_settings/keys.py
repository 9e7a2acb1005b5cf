"""The keys of slurm.conf and slurmdbd.conf that users may set, and why others are refused.

An allow-list decides: a later release of Slurm may add keys that load code.
"""

from __future__ import annotations

LOADS_CODE = "it names a program or plugin that a daemon runs"
RELIED_ON = "the operator relies on its own value"
USE_FIELD = "use the field of the same meaning in the spec"
STATIC_NODE = "nodes register themselves; make a NodeSet"
NOT_BUILT = "it is not built"
NOT_LISTED = "it is not in the list of keys that can be set"

REFUSED: dict[str, str] = {
    **dict.fromkeys(
        (
            *("acctgatherenergytype", "acctgatherfilesystemtype", "acctgatherinterconnecttype"),
            *("acctgatherprofiletype", "bcastexclude", "burstbuffertype", "clifilterplugins"),
            *("communicationparameters", "dependencyparameters", "federationparameters"),
            *("healthcheckprogram", "include", "jobcomptype", "jobcontainertype", "jobsubmitplugins"),
            *("mailprog", "nodefeaturesplugins", "plugindir", "plugstackconfig", "powerplugin"),
            *("prioritysitefactorplugin", "rebootprogram", "resumefailprogram", "resumeprogram"),
            *("resvepilog", "resvprolog", "slurmctldprimaryoffprog", "slurmctldprimaryonprog"),
            *("srunepilog", "srunprolog", "suspendprogram", "taskepilog", "taskprolog"),
            *("unkillablestepprogram", "archivescript"),
        ),
        LOADS_CODE,
    ),
    **dict.fromkeys(
        (
            *("accountingstoragebackuphost", "accountingstoragehost", "accountingstorageport"),
            *("accountingstoragetype", "authaltparameters", "authalttypes", "authinfo", "authtype"),
            *("clustername", "controladdr", "controlmachine", "credtype", "dbdaddr", "dbdhost", "dbdport"),
            *("firstjobid", "grestypes", "jobacctgathertype", "logtimeformat", "maxjobcount", "maxnodecount"),
            *("metricstype", "pidfile", "proctracktype", "reconfigflags", "resumerate", "resumetimeout"),
            *("returntoservice", "selecttype", "slurmctldaddr", "slurmctldhost", "slurmctldlogfile"),
            *("slurmctldparameters", "slurmctldpidfile", "slurmctldport", "slurmctldsyslogdebug"),
            *("slurmdlogfile", "slurmdparameters", "slurmdpidfile", "slurmdport", "slurmdspooldir"),
            *("slurmdsyslogdebug", "slurmdtimeout", "slurmduser", "slurmuser", "slurmschedlogfile"),
            *("srunportrange", "statesavelocation", "storagehost", "storageloc", "storagepass"),
            *("storageport", "storagetype", "storageuser", "switchtype", "suspendexcnodes"),
            *("suspendexcparts", "suspendexcstates", "suspendrate", "suspendtime", "suspendtimeout"),
            *("taskplugin", "logfile", "usepam", "nodeaddr", "nodehostname", "port", "cpus", "realmemory"),
            *("gres", "state"),
        ),
        RELIED_ON,
    ),
    **dict.fromkeys(("prolog", "epilog", "prologslurmctld", "epilogslurmctld", "oversubscribe"), USE_FIELD),
    **dict.fromkeys(("nodename", "downnodes", "frontendname"), STATIC_NODE),
    **dict.fromkeys(
        ("topology", "topologyplugin", "topologyparam", "x11parameters", "prologflags"), NOT_BUILT
    ),
}

SLURM_KEYS = {
    key.lower(): key
    for key in (
        *("AccountingStorageEnforce", "AccountingStorageTRES", "AccountingStoreFlags", "BatchStartTimeout"),
        *("CompleteWait", "CpuFreqDef", "CpuFreqGovernors", "DebugFlags", "DefCpuPerGPU", "DefMemPerCPU"),
        *("DefMemPerGPU", "DefMemPerNode", "DisableRootJobs", "EnforcePartLimits"),
        *("FairShareDampeningFactor", "GpuFreqDef", "GroupUpdateForce", "GroupUpdateTime"),
        *("InactiveLimit", "JobAcctGatherFrequency", "JobAcctGatherParams", "JobFileAppend", "JobRequeue"),
        *("KillOnBadExit", "KillWait", "LaunchParameters", "Licenses", "MaxArraySize", "MaxDBDMsgs"),
        *("MaxJobId", "MaxMemPerCPU", "MaxMemPerNode", "MaxStepCount", "MaxTasksPerNode"),
        *("MessageTimeout", "MinJobAge", "MpiDefault", "MpiParams", "OverTimeLimit", "PreemptExemptTime"),
        *("PreemptMode", "PreemptParameters", "PreemptType", "PriorityCalcPeriod"),
        *("PriorityDecayHalfLife", "PriorityFavorSmall", "PriorityFlags", "PriorityMaxAge"),
        *("PriorityParameters", "PriorityType", "PriorityUsageResetPeriod", "PriorityWeightAge"),
        *("PriorityWeightAssoc", "PriorityWeightFairshare", "PriorityWeightJobSize"),
        *("PriorityWeightPartition", "PriorityWeightQOS", "PriorityWeightTRES", "PrivateData"),
        *("PropagatePrioProcess", "PropagateResourceLimits", "PropagateResourceLimitsExcept"),
        *("RequeueExit", "RequeueExitHold", "ResvOverRun", "SchedulerParameters", "SchedulerTimeSlice"),
        *("SchedulerType", "SelectTypeParameters", "SlurmctldDebug", "SlurmctldTimeout", "SlurmdDebug"),
        *("SlurmSchedLogLevel", "TCPTimeout", "TmpFS", "TrackWCKey", "TreeWidth"),
        *("UnkillableStepTimeout", "VSizeFactor", "WaitTime"),
    )
}
PLUGIN_VALUES = {
    "mpidefault": ("none", "pmix", "pmi2"),
    "preempttype": ("preempt/none", "preempt/partition_prio", "preempt/qos"),
    "prioritytype": ("priority/basic", "priority/multifactor"),
    "schedulertype": ("sched/backfill", "sched/builtin"),
}
"""Keys that name a plugin: only those of the image."""

PARTITION_KEYS = {
    key.lower(): key
    for key in (
        *("AllowAccounts", "AllowGroups", "AllowQos", "Default", "DefaultTime", "DefCpuPerGPU"),
        *("DefMemPerCPU", "DefMemPerGPU", "DefMemPerNode", "DenyAccounts", "DenyQos", "DisableRootJobs"),
        *("ExclusiveUser", "GraceTime", "Hidden", "LLN", "MaxCPUsPerNode", "MaxMemPerCPU"),
        *("MaxMemPerNode", "MaxNodes", "MaxTime", "MinNodes", "Nodes", "OverTimeLimit", "PreemptMode"),
        *("PriorityJobFactor", "PriorityTier", "QOS", "ReqResv", "RootOnly", "SelectTypeParameters"),
        *("State", "TRESBillingWeights"),
    )
}

SLURMDBD_KEYS = {
    key.lower(): key
    for key in (
        *("AllResourcesAbsolute", "ArchiveEvents", "ArchiveJobs", "ArchiveResvs", "ArchiveSteps"),
        *("ArchiveSuspend", "ArchiveTXN", "ArchiveUsage", "CommitDelay", "DebugFlags", "DebugLevel"),
        *("DefaultQOS", "DisableCoordDBD", "MaxQueryTimeRange", "MessageTimeout", "Parameters"),
        *("PrivateData", "PurgeEventAfter", "PurgeJobAfter", "PurgeResvAfter", "PurgeStepAfter"),
        *("PurgeSuspendAfter", "PurgeTXNAfter", "PurgeUsageAfter", "TCPTimeout", "TrackSlurmctldDown"),
        *("TrackWCKey",),
    )
}

NODE_KEYS = {
    "features": "Feature",
    **{
        key.lower(): key
        for key in (
            *("CoreSpecCount", "CpuSpecList", "Feature", "MemSpecLimit", "TmpDisk", "Weight", "CpuBind"),
        )
    },
}
"""Options of a node. Its size follows from limits, and its name and address from its pod."""

CONFIG_FILES = frozenset({"acct_gather.conf", "gres.conf", "mpi.conf"})
REFUSED_FILES: dict[str, str] = {
    **dict.fromkeys(("slurm.conf", "slurmdbd.conf", "cgroup.conf"), RELIED_ON),
    **dict.fromkeys(("plugstack.conf", "job_submit.lua", "cli_filter.lua", "oci.conf"), LOADS_CODE),
    **dict.fromkeys(("topology.conf", "topology.yaml"), NOT_BUILT),
}


def why_refused(key: str) -> str:
    """Of a key that is not allowed."""
    return REFUSED.get(key.lower(), NOT_LISTED)
