"""The configuration that a trial runs: the new one without what only the cluster has. Pure.

A trial has no slurmdbd, no GPU and no cgroup of its own, and all its daemons run as SlurmUser. A line that is
left out here is not tried.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

HOST = "trial"
"""The host name of the pod, and the name of its node."""
SLURM_CONF = "slurm.conf"
_REPLACED: Mapping[str, str | None] = {
    "SlurmctldHost": f"{HOST}(127.0.0.1)",
    "SlurmctldAddr": None,
    "SlurmdUser": "slurm",
    "AuthAltParameters": "jwt_key=/etc/slurm/jwt.key",
    "AccountingStorageType": "accounting_storage/none",
    "AccountingStorageHost": None,
    "AccountingStoragePort": None,
    "AccountingStorageEnforce": None,
    "AccountingStorageTRES": None,
    "PriorityWeightTRES": None,
}
"""Settings by their keys; None: left out."""
_CONFINEMENT = {
    "ProctrackType=proctrack/cgroup": "ProctrackType=proctrack/linuxproc",
    "TaskPlugin=task/cgroup,task/affinity": "TaskPlugin=task/none",
    "JobAcctGatherType=jobacct_gather/cgroup": "JobAcctGatherType=jobacct_gather/linux",
    "CgroupPlugin=cgroup/v2": "CgroupPlugin=disabled",
}
"""Lines of the profile Privileged."""
_OF_ACCOUNTING = re.compile(
    r'\s+(?:AllowAccounts|AllowQos|DenyAccounts|DenyQos|QOS|TRESBillingWeights)=(?:"[^"]*"|\S*)',
    re.IGNORECASE,
)
"""Options of a partition: slurmctld ends where its database does not have the QOS or the TRES."""
_DEVICES = re.compile(r'\b(?:File|MultipleFiles)=(?:"[^"]*"|\S*)', re.IGNORECASE)
_COUNT = re.compile(r'\s+Count=(?:"[^"]*"|\S*)', re.IGNORECASE)
_OF_THE_MACHINE = re.compile(r'\s+(?:Cores|CPUs|Links)=(?:"[^"]*"|\S*)', re.IGNORECASE)


def trial_files(files: Mapping[str, str]) -> dict[str, str]:
    """Each file by its name."""
    made = dict(files)
    for name, change in (("slurm.conf", _setting), ("cgroup.conf", _confinement), ("gres.conf", _device)):
        if name in files:
            changed = (change(line) for line in files[name].splitlines())
            made[name] = "".join(f"{line}\n" for line in changed if line is not None)
    return made


def _setting(line: str) -> str | None:
    key, _, _ = line.partition("=")
    if key in _REPLACED:
        value = _REPLACED[key]
        return None if value is None else f"{key}={value}"
    if key == "PartitionName":
        return _OF_ACCOUNTING.sub("", line)
    return _confinement(line)


def _confinement(line: str) -> str:
    return _CONFINEMENT.get(line, line)


def _device(line: str) -> str:
    """A count has to be that of the device files, and slurmd ends without one of them."""
    line = _OF_THE_MACHINE.sub("", line)
    return _DEVICES.sub("File=/dev/null", _COUNT.sub("", line)) if _DEVICES.search(line) else line
