"""Which control groups a machine has, and what a host's processes have to enter."""

from pathlib import Path

import pytest

from redbox_bed.hosts.cgroups import CgroupsV1, CgroupsV2, v1_hierarchies, v2_mount

HYBRID = """\
tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,relatime,name=systemd 0 0
cgroup /sys/fs/cgroup/net_cls cgroup rw,relatime,net_cls 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0
cgroup /elsewhere/memory cgroup rw,relatime,memory 0 0
"""


def test_of_version_1_only_what_slurm_and_containers_use_is_taken_and_each_once() -> None:
    assert v1_hierarchies(HYBRID) == {
        Path("/sys/fs/cgroup/memory"): {"memory"},
        Path("/sys/fs/cgroup/cpu,cpuacct"): {"cpu", "cpuacct"},
    }


def test_version_2_is_found_where_it_is_mounted() -> None:
    assert v2_mount(HYBRID) == Path("/sys/fs/cgroup/unified")
    assert v2_mount("proc /proc proc rw 0 0\n") is None


@pytest.fixture
def version_1(tmp_path: Path) -> CgroupsV1:
    hierarchies = {"memory": ["memory"], "cpuset": ["cpuset"]}
    for name in hierarchies:
        (tmp_path / name).mkdir()
    return CgroupsV1("bed", {tmp_path / name: frozenset(found) for name, found in hierarchies.items()})


def test_a_host_of_version_1_has_a_group_in_every_hierarchy(version_1: CgroupsV1, tmp_path: Path) -> None:
    assert version_1.entry_files("n1") == [
        str(tmp_path / "memory/bed/n1/cgroup.procs"),
        str(tmp_path / "cpuset/bed/n1/cgroup.procs"),
    ]
    assert version_1.entry_files("n1") == version_1.birth_files("n1")
    assert version_1.description == "v1 memory cpuset"


def test_a_host_of_version_2_is_born_in_its_root_and_lives_in_its_leaf(tmp_path: Path) -> None:
    groups = CgroupsV2("bed", tmp_path)
    assert groups.birth_files("n1") == [str(tmp_path / "bed/n1/cgroup.procs")]
    assert groups.entry_files("n1") == [str(tmp_path / "bed/n1/init/cgroup.procs")]


def test_of_version_2_a_daemon_gets_a_group_whose_parents_hand_controllers_down(tmp_path: Path) -> None:
    for group in (tmp_path / "bed/n1", tmp_path / "bed/n1/system.slice"):
        group.mkdir(parents=True)
        (group / "cgroup.controllers").write_text("cpu memory pids rdma\n")
    CgroupsV2("bed", tmp_path).delegate("n1", "system.slice/n1.scope")
    assert (tmp_path / "bed/n1/system.slice/n1.scope").is_dir()
    for group in (tmp_path / "bed/n1", tmp_path / "bed/n1/system.slice"):
        assert (group / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"


def test_members_are_those_of_the_groups_below_too(version_1: CgroupsV1, tmp_path: Path) -> None:
    below = tmp_path / "memory/bed/n1/slurm/job_1"
    below.mkdir(parents=True)
    (below / "cgroup.procs").write_text("11\n12\n")
    (tmp_path / "memory/bed/n1/cgroup.procs").write_text("10\n")
    (tmp_path / "memory/bed/n2").mkdir()
    (tmp_path / "memory/bed/n2/cgroup.procs").write_text("20\n")
    assert sorted(version_1.members("n1")) == [10, 11, 12]
    assert sorted(version_1.members()) == [10, 11, 12, 20]


def test_removing_what_is_not_there_is_no_fault(version_1: CgroupsV1, tmp_path: Path) -> None:
    (tmp_path / "memory/bed/n1/slurm").mkdir(parents=True)
    version_1.remove("n1")
    version_1.remove("n1")
    assert list((tmp_path / "memory/bed").iterdir()) == []
