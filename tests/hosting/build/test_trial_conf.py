"""What a trial's daemons run in place of the cluster's configuration, as a difference."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from redbox_hosting.build.config.releases import SlurmRelease
from redbox_hosting.build.config.slurm_conf import ClusterInputs, SlurmdbdAddress, cluster_files
from redbox_slurmpod.trial.configuration import trial_files
from tests.hosting.factories import inputs
from tests.hosting.snapshots import check

SNAPSHOTS = Path(__file__).with_name("snapshots")
ACCOUNTING = SlurmdbdAddress("acct-accounting")
NEEDS_SLURMDBD = (
    "AccountingStorageEnforce=limits,qos\nAccountingStorageTRES=gres/gpu\nPriorityWeightTRES=gres/gpu=100\n"
    "PartitionName=p Nodes=w QOS=high AllowQos=a,b AllowAccounts=c TRESBillingWeights=GRES/gpu=4 State=UP\n"
)
DEVICES = (
    "AutoDetect=nvidia\n"
    "Name=gpu Type=a File=/dev/nvidia[0-3] Cores=0-31 Links=-1,16,16,16\n"
    "Name=gpu Type=b Count=2 Cores=0-15\n"
    "NodeName=w-1 name=gpu MultipleFiles=/dev/a,/dev/b count=1 Flags=CountOnly\n"
)
CASES: dict[str, ClusterInputs] = {
    "trial-plain": inputs(),
    "trial-24.11": inputs(release=SlurmRelease.R24_11),
    "trial-privileged": inputs({"redbox": {"profile": "Privileged"}}),
    "trial-accounting": inputs({"extraConf": NEEDS_SLURMDBD}, accounting=ACCOUNTING),
    "trial-jwks": inputs({"jwksKeyRef": {"name": "idp", "key": "jwks"}}),
    "trial-devices": inputs(config_files={"gres.conf": DEVICES, "mpi.conf": "File=x\n"}),
    "trial-scripts": inputs(
        scripts={
            "Prolog": {"p": "#!/bin/sh\nSlurmctldHost=x\n"},
            "PrologSlurmctld": {"q": "#!/bin/sh\nexit 0"},
        }
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_only_what_the_pod_lacks_is_changed(name: str) -> None:
    files = cluster_files(CASES[name]).files
    made = trial_files(files)
    assert made.keys() == files.keys()
    lines = [
        line
        for file in files
        for line in difflib.unified_diff(
            files[file].splitlines(), made[file].splitlines(), file, file, n=0, lineterm=""
        )
        if not line.startswith(("@@", "+++"))
    ]
    check(SNAPSHOTS / f"{name}.txt", "".join(f"{line}\n" for line in lines))


def test_a_line_that_no_daemon_takes_stays() -> None:
    wrong = "ProctrackType=proctrack/nosuch\nJobAcctGatherType=jobacct_gather/nosuch\nProlog=/no/such\n"
    made = trial_files(
        {"slurm.conf": wrong, "cgroup.conf": "Nonsense=yes\n", "gres.conf": "Name=gpu Fool=x\n"}
    )
    assert made == {"slurm.conf": wrong, "cgroup.conf": "Nonsense=yes\n", "gres.conf": "Name=gpu Fool=x\n"}
