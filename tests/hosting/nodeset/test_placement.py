"""On which Kubernetes nodes a NodeSet in DaemonSet mode has a worker: by the rules of DaemonSets."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_hosting.build.pods.worker import WorkerPlan, worker_pod
from redbox_hosting.nodeset.placement import placement
from tests.hosting.factories import cell, node_set

GPU = {"kind": "gpu", "size": "9"}
START, STAY, NEITHER = (True, True), (False, True), (False, False)


def machine(name: str = "k1.example.org", *taints: dict[str, str], **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "spec": {"taints": list(taints)}}


def taint(key: str, effect: str, value: str = "") -> dict[str, str]:
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


def spec_of(template: dict[str, Any]) -> dict[str, Any]:
    """Of any worker, as the operator makes it."""
    own = node_set(scalingMode="DaemonSet", template={"spec": template})
    spec: dict[str, Any] = worker_pod(cell(), WorkerPlan(own, 0, ""))["spec"]
    return spec


def requires(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def term(*expressions: dict[str, Any]) -> dict[str, Any]:
    return {"matchExpressions": list(expressions)}


@pytest.mark.parametrize(
    ("case", "template", "node", "expected"),
    [
        ("any node", {}, machine(), START),
        ("the label", {"nodeSelector": {"kind": "gpu"}}, machine(**GPU), START),
        ("another value", {"nodeSelector": {"kind": "cpu"}}, machine(**GPU), NEITHER),
        ("no such label", {"nodeSelector": {"kind": "gpu"}}, machine(), NEITHER),
        ("one of two labels", {"nodeSelector": {"kind": "gpu", "x": "y"}}, machine(**GPU), NEITHER),
        ("In", requires(term(expression("kind", "In", "cpu", "gpu"))), machine(**GPU), START),
        ("In, another", requires(term(expression("kind", "In", "cpu"))), machine(**GPU), NEITHER),
        ("In, no label", requires(term(expression("kind", "In", "cpu"))), machine(), NEITHER),
        ("NotIn", requires(term(expression("kind", "NotIn", "cpu"))), machine(**GPU), START),
        ("NotIn, no label", requires(term(expression("kind", "NotIn", "cpu"))), machine(), START),
        ("NotIn, it is", requires(term(expression("kind", "NotIn", "gpu"))), machine(**GPU), NEITHER),
        ("Exists", requires(term(expression("kind", "Exists"))), machine(**GPU), START),
        ("Exists, no label", requires(term(expression("kind", "Exists"))), machine(), NEITHER),
        ("DoesNotExist", requires(term(expression("kind", "DoesNotExist"))), machine(), START),
        (
            "DoesNotExist, it does",
            requires(term(expression("kind", "DoesNotExist"))),
            machine(**GPU),
            NEITHER,
        ),
        ("Gt", requires(term(expression("size", "Gt", "8"))), machine(**GPU), START),
        ("Gt, the same", requires(term(expression("size", "Gt", "9"))), machine(**GPU), NEITHER),
        ("Lt", requires(term(expression("size", "Lt", "10"))), machine(**GPU), START),
        ("Lt, no number", requires(term(expression("kind", "Lt", "10"))), machine(**GPU), NEITHER),
        ("Lt, no label", requires(term(expression("size", "Lt", "10"))), machine(), NEITHER),
        (
            "all of a term",
            requires(term(expression("kind", "Exists"), expression("x", "Exists"))),
            machine(**GPU),
            NEITHER,
        ),
        (
            "one of two terms",
            requires(term(expression("x", "Exists")), term(expression("kind", "Exists"))),
            machine(**GPU),
            START,
        ),
        ("an empty term", requires({}), machine(**GPU), NEITHER),
        ("no term", requires(), machine(**GPU), NEITHER),
        (
            "by its name",
            requires({"matchFields": [expression("metadata.name", "In", "k1.example.org")]}),
            machine(),
            START,
        ),
        (
            "by another name",
            requires({"matchFields": [expression("metadata.name", "NotIn", "k1.example.org")]}),
            machine(),
            NEITHER,
        ),
        (
            "preferred only",
            {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}}},
            machine(),
            START,
        ),
        # Taints. What Kubernetes itself adds for a pause ends no worker.
        ("NoSchedule", {}, machine("k1", taint("x", "NoSchedule")), STAY),
        ("NoExecute", {}, machine("k1", taint("x", "NoExecute")), NEITHER),
        ("PreferNoSchedule", {}, machine("k1", taint("x", "PreferNoSchedule")), START),
        (
            "cordoned",
            {},
            machine("k1", taint("node.kubernetes.io/unschedulable", "NoSchedule")),
            START,
        ),
        (
            "out of memory",
            {},
            machine("k1", taint("node.kubernetes.io/memory-pressure", "NoSchedule")),
            START,
        ),
        (
            "silent",
            {},
            machine(
                "k1",
                taint("node.kubernetes.io/unreachable", "NoSchedule"),
                taint("node.kubernetes.io/unreachable", "NoExecute"),
            ),
            STAY,
        ),
        (
            "out of service",
            {},
            machine("k1", taint("node.kubernetes.io/out-of-service", "NoExecute", "nodeshutdown")),
            NEITHER,
        ),
        (
            "tolerated",
            {"tolerations": [{"key": "x", "operator": "Exists"}]},
            machine("k1", taint("x", "NoSchedule")),
            START,
        ),
        (
            "tolerated with its value",
            {"tolerations": [{"key": "x", "value": "y"}]},
            machine("k1", taint("x", "NoExecute", "y")),
            START,
        ),
        (
            "tolerated with another value",
            {"tolerations": [{"key": "x", "value": "z"}]},
            machine("k1", taint("x", "NoExecute", "y")),
            NEITHER,
        ),
        (
            "tolerated for another effect",
            {"tolerations": [{"key": "x", "operator": "Exists", "effect": "NoSchedule"}]},
            machine("k1", taint("x", "NoExecute")),
            NEITHER,
        ),
        (
            "everything tolerated",
            {"tolerations": [{"operator": "Exists"}]},
            machine("k1", taint("x", "NoExecute")),
            START,
        ),
    ],
)
def test_where_a_worker_starts_and_stays(
    case: str, template: dict[str, Any], node: dict[str, Any], expected: tuple[bool, bool]
) -> None:
    placed = placement(spec_of(template), [node])
    assert ("k1" in placed.start, "k1" in placed.stay) == expected, case
    if expected == START:
        assert placed.start["k1"] == node["metadata"]["name"], case


def test_of_nodes_with_one_short_name_the_first_has_a_worker() -> None:
    placed = placement(spec_of({}), [machine("k1.b"), machine("k1.a"), machine("k2.a")])
    assert placed.start == {"k1": "k1.a", "k2": "k2.a"}
    assert placed.clashes == ("k1.b",)


def test_a_worker_is_on_its_node_alone_and_keeps_the_users_other_terms() -> None:
    preferred = [{"weight": 1, "preference": term(expression("kind", "Exists"))}]
    template = requires(term(expression("kind", "Exists")))
    template["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = preferred
    own = node_set(scalingMode="DaemonSet", template={"spec": template})
    pod = worker_pod(cell(), WorkerPlan(own, 0, "", machine="k1.example.org"))
    affinity = pod["spec"]["affinity"]
    assert affinity["nodeAffinity"] == {
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
        **requires({"matchFields": [expression("metadata.name", "In", "k1.example.org")]})["affinity"][
            "nodeAffinity"
        ],
    }
    assert "podAntiAffinity" in affinity
    assert (pod["metadata"]["name"], pod["spec"]["hostname"]) == ("k1", "k1")
    assert "nodeName" not in pod["spec"]
