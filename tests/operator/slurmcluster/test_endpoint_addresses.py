"""To which addresses the operator connects for users of a namespace."""

from __future__ import annotations

import pytest

from redbox_operator.slurmcluster.endpoint_addresses import EndpointAddresses

RULE = EndpointAddresses.of_installation("", {"KUBERNETES_SERVICE_HOST": "10.96.0.1"})


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1", "loopback"),
        ("127.8.8.8", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("64:ff9b::7f00:1", "loopback"),
        ("169.254.169.254", "link-local"),
        ("::ffff:169.254.169.254", "link-local"),
        ("2002:a9fe:a9fe::", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("fd00:ec2::254", "metadata"),
        ("168.63.129.16", "metadata"),
        ("10.96.0.1", "API server"),
        ("::ffff:10.96.0.1", "API server"),
        ("0.0.0.0", "unspecified"),
        ("::", "unspecified"),
        ("224.0.0.1", "multicast"),
        ("255.255.255.255", "multicast"),
        ("not-an-address", "not an address"),
    ],
)
def test_an_address_that_is_the_operators_own_is_refused_in_a_sentence(address: str, kind: str) -> None:
    refusal = RULE.refusal(address)
    assert refusal is not None
    assert kind in refusal


@pytest.mark.parametrize("address", ["10.96.0.2", "192.0.2.7", "10.244.1.9", "fd12::7", "2001:db8::1"])
def test_others_are_allowed_where_no_network_is_listed(address: str) -> None:
    assert RULE.refusal(address) is None


def test_where_networks_are_listed_only_these_are_allowed_and_never_the_api_server() -> None:
    rule = EndpointAddresses.of_installation(
        "10.96.0.0/12, fd12::/16", {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
    )
    assert rule.refusal("10.96.0.2") is None
    assert rule.refusal("fd12::2") is None
    assert "operator.slurmEndpoints.networks" in str(rule.refusal("192.0.2.7"))
    assert "API server" in str(rule.refusal("10.96.0.1"))


def test_a_network_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"10\.96\.0\.7/12"):
        EndpointAddresses.of_installation("10.96.0.7/12", {})
