"""The unit cases of Slinky's operator about cordons, drains, reasons and names, as this one decides them.

A row in which it decides otherwise says so. Those of updates are in `test_worker_plans`, those of a worker on
each node in `test_placement` and `test_daemons_plan`, those of the order of removal in `test_scaling`.
"""

from __future__ import annotations

from typing import Any

import pytest

from redbox_hosting.api import names
from redbox_hosting.nodeset.drains import LONGEST_REASON, our_reason
from redbox_hosting.nodeset.gate import gate
from redbox_hosting.nodeset.observed import WorkerMachine
from redbox_hosting.nodeset.wanted import NodeVerb, next_act
from redbox_hosting.slurm.answers import RestNode
from tests.hosting.nodeset.rows import NOW, node, pod, snapshot

DRAIN, RESUME = NodeVerb.DRAIN, NodeVerb.RESUME
CORDONED: dict[str, Any] = {"machine": WorkerMachine.CORDONED}
FAULTY: dict[str, Any] = {"machine": WorkerMachine.FAULTY}
OURS = node("IDLE+DRAIN", reason="red-box: cordoned: x")


@pytest.mark.parametrize(
    ("case", "row", "record", "verb", "reason"),
    [
        ("the Kubernetes node is cordoned", CORDONED, node(), DRAIN, "red-box: Kubernetes node cordoned"),
        (
            "with a reason",
            {**CORDONED, "machine_reason": "new kernel"},
            node(),
            DRAIN,
            "red-box: Kubernetes node cordoned: new kernel",
        ),
        ("only the pod is cordoned", {"cordon": "fan"}, node(), DRAIN, "red-box: cordoned: fan"),
        (
            "both: the pod's own reason",
            {**CORDONED, "machine_reason": "new kernel", "cordon": "fan"},
            node(),
            DRAIN,
            "red-box: cordoned: fan",
        ),
        ("neither: what the operator drained is resumed", {}, OURS, RESUME, ""),
        ("neither, in service", {}, node(), None, ""),
        ("cordoned and drained", {"cordon": "x"}, OURS, None, ""),
        (
            "an administrator's reason is left, cordoned",
            {"cordon": "x"},
            node("IDLE+DRAIN", reason="bad disk"),
            None,
            "",
        ),
        (
            "an administrator's reason is left, not cordoned",
            {},
            node("IDLE+DRAIN", reason="bad disk"),
            None,
            "drained by an administrator: bad disk",
        ),
        (
            "an administrator's reason is left, condemned: it is confirmed as it is",
            {"condemned": "scale-in"},
            node("IDLE+DRAIN", reason="bad disk"),
            DRAIN,
            "bad disk",
        ),
        (
            "a node that does not respond is left",
            {},
            node("DOWN+NOT_RESPONDING", reason="Not responding"),
            None,
            "slurmd does not respond",
        ),
        (
            "drained by a preStop whose pod goes on",
            {},
            node("IDLE+DRAIN", reason="red-box: the pod ends"),
            RESUME,
            "",
        ),
        (
            "a condition of the Kubernetes node",
            {**FAULTY, "machine_reason": "KernelDeadlock (DockerHung: task docker:7 blocked)"},
            node(),
            DRAIN,
            "red-box: Kubernetes node has KernelDeadlock (DockerHung: task docker:7 blocked)",
        ),
        (
            "the condition is over",
            {},
            node("IDLE+DRAIN", reason="red-box: Kubernetes node has KernelDeadlock (x: y)"),
            RESUME,
            "",
        ),
        (
            "a condition on a drained node",
            {**FAULTY, "machine_reason": "x"},
            node("IDLE+DRAIN", reason="bad disk"),
            None,
            "",
        ),
        (
            "terminating",
            {"condemned": "x", "is_ending": True},
            node(),
            None,
            "the pod ends; its preStop drains",
        ),
        # Slinky lets a job on such a node be requeued.
        (
            "a job waits for the node",
            CORDONED,
            node("ALLOCATED+POWERING_UP"),
            None,
            "a job waits for the node to power up: DRAIN would end it",
        ),
    ],
)
def test_cordons(
    case: str, row: dict[str, Any], record: RestNode, verb: NodeVerb | None, reason: str
) -> None:
    act = next_act(pod(**row), snapshot(record))
    assert (act.verb, act.reason) == (verb, reason), case


@pytest.mark.parametrize(
    ("state", "is_drained"),
    [
        ("IDLE", False),
        ("MIXED", False),
        ("DOWN", False),  # Slinky: drained; here preStop's word is needed as well, or a DRAIN
        ("IDLE+DRAIN", True),
        ("MIXED+DRAIN", False),
        ("ALLOCATED+DRAIN", False),
        ("DOWN+DRAIN", True),
        ("IDLE+COMPLETING", False),
        ("IDLE+DRAIN+COMPLETING", False),
        ("IDLE+DRAIN+UNDRAIN", False),
        ("ERROR+DRAIN", False),
        ("UNKNOWN+DRAIN", False),
        ("IDLE+DRAIN+NOT_RESPONDING", False),  # Slinky: drained
    ],
)
def test_drained_states(state: str, is_drained: bool) -> None:  # noqa: FBT001
    worker = pod(condemned="scale-in", drain_confirmed=NOW - 1)
    assert gate(worker, snapshot(node(state))).is_open is is_drained


@pytest.mark.parametrize("seen_in_slurm", [snapshot(), snapshot(node("IDLE+DRAIN", 1))])
def test_a_node_that_slurm_does_not_name_is_not_drained(seen_in_slurm: Any) -> None:
    """Slinky: it is."""
    assert not gate(pod(condemned="scale-in", drain_confirmed=NOW - 1), seen_in_slurm).is_open


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("", "red-box: "),
        ("bad disk", "red-box: bad disk"),
        ("  bad disk\t ", "red-box: bad disk"),
        ("bad\ndisk", "red-box: bad disk"),
        ("bad\r\tdisk", "red-box: bad disk"),
        ("x\r\n[2026-01-01] error: forged", "red-box: x [2026-01-01] error: forged"),
        ("a\x00b\x07c", "red-box: a?b?c"),
        ("\x1b[31mred\x1b[0m", "red-box: ?[31mred?[0m"),
        ("a\u202eb", "red-box: a?b"),
        ("Lüfter 故障", "red-box: Lüfter 故障"),
        ("x" * 1000, f"red-box: {'x' * (LONGEST_REASON - len('red-box: '))}"),
        ("故" * 1000, f"red-box: {'故' * (LONGEST_REASON - len('red-box: '))}"),
    ],
)
def test_reasons_are_one_printable_line(words: str, reason: str) -> None:
    assert our_reason(words) == reason


@pytest.mark.parametrize(
    ("kubernetes_node", "worker"),
    [
        ("node-1", "node-1"),
        ("a", "a"),
        ("node1.us-west-2.compute.internal", "node1"),
        ("node-2.my-project.us-central1-a.c.gcp-project.internal", "node-2"),
    ],
)
def test_a_worker_of_a_kubernetes_node_has_its_short_name(kubernetes_node: str, worker: str) -> None:
    assert names.short_name(kubernetes_node) == worker


@pytest.mark.parametrize(
    ("prefix", "ordinal", "padding", "name"),
    [
        ("foo", 0, 0, "foo-0"),
        ("bar", 1, 0, "bar-1"),
        ("foo-", 7, 0, "foo-7"),
        ("foo", 7, 3, "foo-007"),
        ("foo", 1234, 3, "foo-1234"),
    ],
)
def test_names_by_ordinals(prefix: str, ordinal: int, padding: int, name: str) -> None:
    assert names.node_name(prefix, ordinal, padding) == name
