"""What a bed consists of follows from its options alone."""

import pytest

from redbox_bed.core.errors import NotPossibleError
from redbox_bed.core.plan import LOOPBACK, Options, Release, Role, Source, choose_options, make_plan


def names(options: Options) -> list[str]:
    return [spec.name for spec in make_plan(options).hosts]


def test_the_default_bed_is_one_slurm_cluster_beside_kubernetes() -> None:
    assert names(Options()) == ["gw", "login", "ctl", "n1", "n2", "n3", "k0", "k1", "k2"]


@pytest.mark.parametrize("kube", [Source.NONE, Source.EXISTING])
def test_without_kubernetes_of_its_own_the_bed_has_none_of_its_hosts(kube: Source) -> None:
    assert names(Options(kube=kube)) == ["gw", "login", "ctl", "n1", "n2", "n3"]


def test_with_an_existing_slurm_the_bed_has_none_of_its_hosts() -> None:
    assert names(Options(slurm=Source.EXISTING)) == ["gw", "k0", "k1", "k2"]


def test_a_second_cluster_has_a_partition_of_the_same_name_and_hosts_of_its_own() -> None:
    plan = make_plan(Options(hpc2=True))
    first, second = plan.clusters
    assert {"debug"} <= {partition.name for partition in first.partitions}
    assert [partition.name for partition in second.partitions] == ["debug"]
    assert not set(first.hosts) & set(second.hosts)


def test_one_partition_reaches_into_the_nodes_of_another() -> None:
    partitions = {partition.name: partition for partition in make_plan(Options()).clusters[0].partitions}
    assert set(partitions["GPU_big"].nodes) < set(partitions["debug"].nodes)
    assert partitions["long"].max_minutes is None


def test_no_two_hosts_have_one_address() -> None:
    addresses = [spec.address for spec in make_plan(Options(hpc2=True)).hosts]
    assert len(set(addresses)) == len(addresses)


@pytest.mark.parametrize("release", Release)
def test_the_release_decides_the_root_of_slurms_hosts_only(release: Release) -> None:
    plan = make_plan(Options(release=release))
    assert plan.host("n1").root == f"slurm-{release}"
    assert plan.host("k1").root == plan.host("gw").root == "node"


@pytest.mark.parametrize("text", ["27.05", "24", "24.11.5", ""])
def test_an_unknown_release_is_refused_with_those_that_there_are(text: str) -> None:
    with pytest.raises(NotPossibleError, match=r"has no Slurm .*: 22\.05, 24\.11, 26\.05$"):
        Release.read(text)


def test_ports_lead_only_to_hosts_that_are_there_and_move_together() -> None:
    plan = make_plan(Options(kube=Source.NONE, port_offset=1000))
    assert {(forward.port, forward.host, forward.target_port) for forward in plan.forwards} == {
        (13222, "login", 22),
        (19443, "login", 8443),
    }


def test_nothing_but_red_boxs_port_leaves_loopback() -> None:
    plan = make_plan(Options(kube=Source.EXISTING, address="192.0.2.7"))
    assert {forward.target_port for forward in plan.forwards if forward.address != LOOPBACK} == {8443}


def test_only_slurms_hosts_have_a_slow_home() -> None:
    plan = make_plan(Options(slow_home=True))
    assert plan.has_slow_home(plan.host("n1"))
    assert not plan.has_slow_home(plan.host("k1"))
    assert not make_plan(Options()).has_slow_home(plan.host("n1"))


def test_the_switch_is_the_only_one_of_its_role() -> None:
    assert [spec.name for spec in make_plan(Options(hpc2=True)).of_role(Role.SWITCH)] == ["gw"]


def test_an_unknown_host_is_refused_with_the_names_of_those_there_are() -> None:
    with pytest.raises(NotPossibleError, match=r"'n9'.*login, ctl, n1"):
        make_plan(Options()).host("n9")


def test_options_are_read_back_as_they_were_saved() -> None:
    options = Options(release=Release.V22_05, accounting=False, hpc2=True, kube=Source.NONE, port_offset=7)
    assert Options.from_json(options.to_json()) == options


def test_a_new_bed_takes_the_options_asked_for() -> None:
    assert choose_options(None, {"hpc2": True}) == Options(hpc2=True)


def test_a_bed_that_is_there_keeps_its_options_when_none_are_asked_for() -> None:
    assert choose_options(Options(accounting=False), {}) == Options(accounting=False)


def test_other_options_than_those_of_the_bed_are_refused_with_what_to_do() -> None:
    with pytest.raises(NotPossibleError, match=r"made with accounting; .* take it down first"):
        choose_options(Options(), {"accounting": False})
    with pytest.raises(NotPossibleError, match=r"made with release 24\.11"):
        choose_options(Options(), {"release": Release.V22_05})
