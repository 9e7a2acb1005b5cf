"""What is applied of a gateway, and what is withdrawn."""

from __future__ import annotations

from redbox_resourced.nodes.gateways import (
    OLD_KEYS,
    AdvertisedByCluster,
    advertised_by_cluster,
    field_manager_of,
    gateway_configurations,
)
from redbox_resourced.nodes.node_view import NodeView
from redbox_resourced.nodes.server_side_apply import ApplyConfiguration
from redbox_resourced.partitions.advertised import AdvertisedPartition, advertised_partition
from redbox_resourced.partitions.overrides import NO_OVERRIDE, Overrides
from tests.resourced.factories import followed, partition, real_node

HPC1 = {"redbox.dev/gateway.hpc1": "true"}
BOTH = {**HPC1, "redbox.dev/gateway.hpc2": "true"}


def offers_of(cluster: str, *names: str) -> tuple[AdvertisedPartition, ...]:
    return tuple(advertised_partition(cluster, partition(name), NO_OVERRIDE) for name in names)


def claims(
    node: NodeView, offers: AdvertisedByCluster, *, old_keys: bool = False
) -> dict[str, list[ApplyConfiguration]]:
    by_manager: dict[str, list[ApplyConfiguration]] = {}
    for claim in gateway_configurations(node, offers, old_keys=old_keys):
        by_manager.setdefault(claim.manager, []).append(claim)
    return by_manager


def is_withdrawn(applied: list[ApplyConfiguration]) -> bool:
    nulls = {"metadata": {"labels": {"some.redbox.dev/key": None}, "annotations": {}}}
    return [(claim.withdraws, claim.body) for claim in applied] == [(True, nulls)]


def test_each_cluster_speaks_for_itself() -> None:
    offers = {"hpc1": offers_of("hpc1", "debug"), "hpc2": offers_of("hpc2", "debug")}
    applied = claims(real_node("n", BOTH), offers)
    assert set(applied) == {field_manager_of("hpc1"), field_manager_of("hpc2")}
    capacity = applied[field_manager_of("hpc2")][1].body["status"]["capacity"]
    assert all(key.startswith("debug.hpc2.redbox.dev/") for key in capacity)


def test_a_node_that_is_no_gateway_of_it_hears_nothing_from_a_cluster() -> None:
    offers = {"hpc1": offers_of("hpc1", "debug"), "hpc2": offers_of("hpc2", "debug")}
    assert set(claims(real_node("n", HPC1), offers)) == {field_manager_of("hpc1")}


def test_what_was_said_is_withdrawn_where_the_label_went() -> None:
    node = real_node("n", {}, (field_manager_of("hpc1"),))
    applied = claims(node, {"hpc1": offers_of("hpc1", "debug")})
    assert is_withdrawn(applied[field_manager_of("hpc1")])


def test_what_a_deleted_cluster_said_is_withdrawn() -> None:
    node = real_node("n", BOTH, (field_manager_of("hpc1"), field_manager_of("hpc2")))
    applied = claims(node, {"hpc1": offers_of("hpc1", "debug")})
    assert is_withdrawn(applied[field_manager_of("hpc2")])
    assert not is_withdrawn(applied[field_manager_of("hpc1")])


def test_what_a_silent_cluster_said_stays() -> None:
    node = real_node("n", HPC1, (field_manager_of("hpc1"), OLD_KEYS))
    assert claims(node, {"hpc1": None}, old_keys=True) == {}


def test_what_a_cluster_said_stays_while_slurm_lists_no_partition_at_all() -> None:
    node = real_node("n", HPC1, (field_manager_of("hpc1"), OLD_KEYS))
    hidden = advertised_by_cluster({"hpc1": followed()}, (), Overrides())
    assert claims(node, hidden, old_keys=True) == {}


def test_what_a_cluster_said_is_withdrawn_where_its_filter_lets_nothing_through() -> None:
    node = real_node("n", HPC1, (field_manager_of("hpc1"),))
    cluster = followed(partition("debug"), partitions={"include": ["none-such"]})
    assert is_withdrawn(
        claims(node, advertised_by_cluster({"hpc1": cluster}, (), Overrides()))[field_manager_of("hpc1")]
    )


def test_old_keys_speak_of_the_default_partition_of_the_first_cluster() -> None:
    first = (
        advertised_partition("hpc1", partition("a"), NO_OVERRIDE),
        advertised_partition("hpc1", partition("b", is_default=True), NO_OVERRIDE),
    )
    applied = claims(real_node("n", BOTH), {"hpc2": offers_of("hpc2", "debug"), "hpc1": first}, old_keys=True)
    assert applied[OLD_KEYS][0].body["metadata"]["labels"]["wlm.sylabs.io/partition"] == "b"


def test_old_keys_are_withdrawn_where_they_are_no_longer_wanted() -> None:
    node = real_node("n", HPC1, (OLD_KEYS,))
    assert is_withdrawn(claims(node, {"hpc1": offers_of("hpc1", "debug")})[OLD_KEYS])
