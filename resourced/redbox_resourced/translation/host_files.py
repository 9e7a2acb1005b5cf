"""The pod's name, hosts and resolver on the node."""

from __future__ import annotations

from redbox_kube.api.objects import Object
from redbox_resourced.translation.errors import Unsupported

LONGEST_HOST = 63
ELSEWHERE = "None"


def hostname(pod: Object, *, is_nodes_own: bool) -> str:
    """Empty: the node's own."""
    spec = pod["spec"]
    if spec.get("hostNetwork") or is_nodes_own:
        return ""
    given = spec.get("hostnameOverride") or spec.get("hostname") or pod["metadata"]["name"]
    return str(given)[:LONGEST_HOST].rstrip("-.")


def hosts_file(pod: Object) -> str:
    """Lines of hostAliases, as kubelets write them."""
    return "".join(
        "\t".join((alias["ip"], *(alias.get("hostnames") or ()))) + "\n"
        for alias in pod["spec"].get("hostAliases") or ()
    )


def resolv_conf(pod: Object) -> str:
    """Empty: the node's own."""
    spec = pod["spec"]
    config, is_own = spec.get("dnsConfig") or {}, spec.get("dnsPolicy") == ELSEWHERE
    if config and not is_own:
        raise Unsupported(
            "spec.dnsConfig: the Slurm node's resolver cannot be added to: set dnsPolicy to None, "
            "or leave it out"
        )
    lines = [f"nameserver {server}" for server in config.get("nameservers") or ()]
    lines += [f"search {' '.join(config['searches'])}"] if config.get("searches") else []
    options = [
        f"{option['name']}:{option['value']}" if option.get("value") else option["name"]
        for option in config.get("options") or ()
    ]
    lines += [f"options {' '.join(options)}"] if options else []
    return "".join(f"{line}\n" for line in lines)
