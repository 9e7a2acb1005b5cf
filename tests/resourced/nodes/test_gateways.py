"""What is said of a gateway, and what is withdrawn."""

from __future__ import annotations

from redbox_resourced.nodes.gateways import OLD_KEYS, Offers, claims_of_gateway, manager_of, offers_now
from redbox_resourced.nodes.node_view import SeenNode
from redbox_resourced.nodes.server_side_apply import Claim
from redbox_resourced.partitions.advertised import Offer, offer_of
from redbox_resourced.partitions.overrides import AS_SLURM_SAYS, Overrides
from tests.resourced.clusters_seen import followed, partition, real_node

HPC1 = {"redbox.dev/gateway.hpc1": "true"}
BOTH = {**HPC1, "redbox.dev/gateway.hpc2": "true"}


def offers_of(cluster: str, *names: str) -> tuple[Offer, ...]:
    return tuple(offer_of(cluster, partition(name), AS_SLURM_SAYS) for name in names)


def claims(node: SeenNode, offers: Offers, *, old_keys: bool = False) -> dict[str, list[Claim]]:
    by_manager: dict[str, list[Claim]] = {}
    for claim in claims_of_gateway(node, offers, old_keys=old_keys):
        by_manager.setdefault(claim.manager, []).append(claim)
    return by_manager


def is_withdrawn(said: list[Claim]) -> bool:
    nulls = {"metadata": {"labels": {"some.redbox.dev/key": None}, "annotations": {}}}
    return [(claim.withdraws, claim.body) for claim in said] == [(True, nulls)]


def test_each_cluster_speaks_for_itself() -> None:
    offers = {"hpc1": offers_of("hpc1", "debug"), "hpc2": offers_of("hpc2", "debug")}
    said = claims(real_node("n", BOTH), offers)
    assert set(said) == {manager_of("hpc1"), manager_of("hpc2")}
    capacity = said[manager_of("hpc2")][1].body["status"]["capacity"]
    assert all(key.startswith("debug.hpc2.redbox.dev/") for key in capacity)


def test_a_node_that_is_no_gateway_of_it_hears_nothing_from_a_cluster() -> None:
    offers = {"hpc1": offers_of("hpc1", "debug"), "hpc2": offers_of("hpc2", "debug")}
    assert set(claims(real_node("n", HPC1), offers)) == {manager_of("hpc1")}


def test_what_was_said_is_withdrawn_where_the_label_went() -> None:
    node = real_node("n", {}, (manager_of("hpc1"),))
    said = claims(node, {"hpc1": offers_of("hpc1", "debug")})
    assert is_withdrawn(said[manager_of("hpc1")])


def test_what_a_deleted_cluster_said_is_withdrawn() -> None:
    node = real_node("n", BOTH, (manager_of("hpc1"), manager_of("hpc2")))
    said = claims(node, {"hpc1": offers_of("hpc1", "debug")})
    assert is_withdrawn(said[manager_of("hpc2")])
    assert not is_withdrawn(said[manager_of("hpc1")])


def test_what_a_silent_cluster_said_stays() -> None:
    node = real_node("n", HPC1, (manager_of("hpc1"), OLD_KEYS))
    assert claims(node, {"hpc1": None}, old_keys=True) == {}


def test_what_a_cluster_said_stays_while_slurm_lists_no_partition_at_all() -> None:
    node = real_node("n", HPC1, (manager_of("hpc1"), OLD_KEYS))
    hidden = offers_now({"hpc1": followed()}, (), Overrides())
    assert claims(node, hidden, old_keys=True) == {}


def test_what_a_cluster_said_is_withdrawn_where_its_filter_lets_nothing_through() -> None:
    node = real_node("n", HPC1, (manager_of("hpc1"),))
    cluster = followed(partition("debug"), partitions={"include": ["none-such"]})
    assert is_withdrawn(claims(node, offers_now({"hpc1": cluster}, (), Overrides()))[manager_of("hpc1")])


def test_old_keys_speak_of_the_default_partition_of_the_first_cluster() -> None:
    first = (
        offer_of("hpc1", partition("a"), AS_SLURM_SAYS),
        offer_of("hpc1", partition("b", is_default=True), AS_SLURM_SAYS),
    )
    said = claims(real_node("n", BOTH), {"hpc2": offers_of("hpc2", "debug"), "hpc1": first}, old_keys=True)
    assert said[OLD_KEYS][0].body["metadata"]["labels"]["wlm.sylabs.io/partition"] == "b"


def test_old_keys_are_withdrawn_where_they_are_no_longer_wanted() -> None:
    node = real_node("n", HPC1, (OLD_KEYS,))
    assert is_withdrawn(claims(node, {"hpc1": offers_of("hpc1", "debug")})[OLD_KEYS])
