"""Slurm's configuration says what the plan says."""

from redbox_bed.core.plan import Options, SlurmCluster, make_plan
from redbox_bed.slurm.accounts import associations, parse_associations, sacctmgr_lines
from redbox_bed.slurm.conf import cgroup_conf, gres_conf, slurm_conf, slurmdbd_conf
from redbox_bed.slurm.daemons import daemons_of


def cluster(options: Options = Options(), index: int = 0) -> SlurmCluster:  # noqa: B008 (frozen)
    return make_plan(options).clusters[index]


def settings(text: str) -> dict[str, str]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines if " " not in line.partition("=")[0])


def test_partitions_have_their_nodes_and_limits() -> None:
    lines = slurm_conf(cluster()).splitlines()
    assert "PartitionName=debug Nodes=n1,n2,n3 Default=YES MaxTime=30 DefaultTime=10 State=UP" in lines
    assert "PartitionName=long Nodes=n1,n2,n3 MaxTime=UNLIMITED DefaultTime=60 State=UP" in lines
    assert "PartitionName=GPU_big Nodes=n3 MaxTime=1440 DefaultTime=60 State=UP" in lines


def test_only_the_gpu_node_has_gpus_and_its_features() -> None:
    lines = slurm_conf(cluster()).splitlines()
    assert [line for line in lines if line.startswith("NodeName=n3")] == [
        "NodeName=n3 CPUs=4 RealMemory=4000 Gres=gpu:tesla:2 Feature=gpu,a100,nvlink"
    ]
    assert not any("gpu" in line for line in lines if line.startswith(("NodeName=n1", "NodeName=n2")))
    assert gres_conf(cluster()) == "NodeName=n3 Name=gpu Type=tesla File=/dev/nvidia[0-1]\n"


def test_a_cluster_without_gpus_does_not_speak_of_them() -> None:
    second = cluster(Options(hpc2=True), 1)
    assert "GresTypes" not in slurm_conf(second)
    assert gres_conf(second) == ""


def test_with_accounting_associations_limits_and_qos_are_enforced() -> None:
    found = settings(slurm_conf(cluster()))
    assert found["AccountingStorageType"] == "accounting_storage/slurmdbd"
    assert set(found["AccountingStorageEnforce"].split(",")) == {"associations", "limits", "qos"}


def test_without_accounting_nothing_of_it_is_configured_or_started() -> None:
    plan = make_plan(Options(accounting=False))
    without = plan.clusters[0]
    assert not [name for name in settings(slurm_conf(without)) if name.startswith("AccountingStorage")]
    started = {daemon.name for daemon in daemons_of(without, plan.host("ctl"))}
    assert started == {"munged", "slurmctld", "slurmrestd"}


def test_jobs_are_tracked_and_confined_by_control_groups() -> None:
    found = settings(slurm_conf(cluster()))
    assert found["ProctrackType"] == "proctrack/cgroup"
    assert found["TaskPlugin"] == "task/cgroup"
    assert settings(cgroup_conf("cgroup/v1"))["ConstrainDevices"] == "yes"


def test_the_version_of_control_groups_is_said_and_never_guessed() -> None:
    assert settings(cgroup_conf("cgroup/v2"))["CgroupPlugin"] == "cgroup/v2"


def test_only_a_fast_bed_starts_jobs_without_gathering_them() -> None:
    assert "batch_sched_delay=0" in slurm_conf(cluster(Options(fast=True)))
    assert "SchedulerParameters" not in slurm_conf(cluster())


def test_each_cluster_has_a_database_of_its_own() -> None:
    first, second = make_plan(Options(hpc2=True)).clusters
    assert settings(slurmdbd_conf(first))["DbdHost"] == "ctl"
    assert settings(slurmdbd_conf(second))["DbdHost"] == "ctl2"


def test_daemons_start_in_the_order_in_which_they_need_each_other() -> None:
    plan = make_plan(Options())
    order = [daemon.name for daemon in daemons_of(plan.clusters[0], plan.host("ctl"))]
    assert order == ["munged", "mariadbd", "slurmdbd", "slurmctld", "slurmrestd"]


def test_slurm_knows_alice_and_bob_but_not_carol() -> None:
    lines = sacctmgr_lines("hpc1")
    assert "add user alice Account=physics,biology DefaultAccount=physics" in lines
    assert "add user bob Account=biology DefaultAccount=biology" in lines
    assert not any("carol" in line for line in lines)
    assert lines.index("add account biology Description=biology Organization=uni") < lines.index(
        "add user bob Account=biology DefaultAccount=biology"
    )


def test_who_belongs_to_which_account_is_read_back_without_the_accounts_own_rows() -> None:
    listed = "root|\nroot|root\nbiology|\nbiology|alice\nbiology|bob\nphysics|alice\n"
    assert associations() < parse_associations(listed)
    assert not associations() <= parse_associations("root|\nroot|root\nphysics|alice\n")
