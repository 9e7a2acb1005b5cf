"""Hosts are neighbours on one switch, and pods are routed."""

from redbox_bed.core.plan import Options, Source, make_plan
from redbox_bed.hosts.network import hosts_file, switch_script


def test_every_host_is_known_by_name_on_every_host() -> None:
    lines = hosts_file(make_plan(Options())).splitlines()
    assert "10.77.0.10 login" in lines
    assert "10.77.0.42 k2" in lines


def test_the_switch_routes_each_pod_network_to_its_node_without_nat() -> None:
    script = switch_script(make_plan(Options()))
    assert "ip route replace 10.244.1.0/24 via 10.77.0.41 dev bed0" in script
    assert "ip route replace 10.244.2.0/24 via 10.77.0.42 dev bed0" in script
    assert "nat" not in script.lower()


def test_without_kubernetes_there_are_no_pods_to_route() -> None:
    assert "10.244" not in switch_script(make_plan(Options(kube=Source.NONE)))
