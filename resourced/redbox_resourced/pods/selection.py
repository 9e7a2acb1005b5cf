"""Which pods on a virtual node run there, and which of their tolerations would end them. Pure.

A pod runs if its author names the virtual nodes: our taint in a toleration, or one of our labels, or the node
itself, in its node selector or node affinity. A toleration of every taint names none: pods of monitoring and
storage have it, to run on each machine. Pods of DaemonSets, and mirror pods, never run.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from redbox_clusters.names import GROUP, TAINT_SLURM
from redbox_clusters.node_labels import key_part
from redbox_kube.api.objects import Object

HOSTNAME = "kubernetes.io/hostname"
NODE_NAME = "metadata.name"
MIRROR = "kubernetes.io/config.mirror"
"""The annotation of the copy of a static pod, which a kubelet writes."""
NEVER = frozenset({"DaemonSet", "Node"})
"""Controllers of pods that belong to a machine."""
CHOOSES = frozenset({"In", "Exists", "Gt", "Lt"})
"""The other operators keep pods away."""
MOST_AT_ONCE = 16
LIFTED = frozenset({"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"})
"""The taints of a Node whose Lease has lapsed: the API server gives each pod 300 s of both."""


class TimedToleration(NamedTuple):
    """A toleration that ends some time after the taint began, and its place in the pod's list."""

    position: int
    key: str
    seconds: int


def names_virtual_node(pod: Object) -> bool:
    """Whether the pod's author wants it to run on a virtual node; its node must be one."""
    spec, node = pod["spec"], pod["spec"].get("nodeName", "")
    return not _belongs_to_machine(pod["metadata"]) and (
        any(toleration.get("key") == TAINT_SLURM for toleration in spec.get("tolerations") or ())
        or any(_is_ours(key, [value], node) for key, value in (spec.get("nodeSelector") or {}).items())
        or any(_chooses(expression, node) for expression in _expressions(spec))
    )


def timed_tolerations(spec: Object) -> tuple[TimedToleration, ...]:
    """Those that would have the pod evicted because resourced is away.

    One without a key, and those of other taints, are left alone: they are about more than that. Of very many
    the first ones: the others follow when these are lifted.
    """
    timed = (
        TimedToleration(position, sys.intern(toleration["key"]), toleration["tolerationSeconds"])
        for position, toleration in enumerate(spec.get("tolerations") or ())
        if toleration.get("key") in LIFTED and toleration.get("tolerationSeconds") is not None
    )
    return tuple(islice(timed, MOST_AT_ONCE))


def _belongs_to_machine(metadata: Object) -> bool:
    owners = metadata.get("ownerReferences") or ()
    return MIRROR in (metadata.get("annotations") or {}) or any(
        owner.get("controller") and owner.get("kind") in NEVER for owner in owners
    )


def _expressions(spec: Object) -> Iterator[Object]:
    """Of the node affinity: required or preferred."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
    terms = [*(required.get("nodeSelectorTerms") or ()), *(item.get("preference", {}) for item in preferred)]
    for term in terms:
        yield from term.get("matchExpressions") or ()
        yield from term.get("matchFields") or ()


def _chooses(expression: Object, node: str) -> bool:
    is_ours = _is_ours(expression.get("key", ""), expression.get("values") or [], node)
    return expression.get("operator") in CHOOSES and is_ours


def _is_ours(key: str, values: list[str], node: str) -> bool:
    """Of our labels, `<partition>.<cluster>.redbox.dev/…` among them; or the name of this very node."""
    domain, slash, _ = key.partition("/")
    if slash and (domain == GROUP or domain.endswith(f".{GROUP}")):
        return True
    return (key == HOSTNAME and key_part(node) in values) or (key == NODE_NAME and node in values)
