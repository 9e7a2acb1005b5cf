"""What each node should be, and the one write that is due."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_hosting.nodeset.drains import DrainOwner, drain_owner, our_reason, plain_reason
from redbox_hosting.nodeset.observed import WorkerMachine
from redbox_hosting.nodeset.wanted import NodeVerb, next_act, wanted_state
from redbox_hosting.slurm.answers import RestReservation
from redbox_hosting.slurm.snapshot import SlurmSnapshot
from tests.hosting.nodeset.rows import NOW, UNKNOWN, job, node, pod, snapshot

DRAIN, RESUME, DOWN = NodeVerb.DRAIN, NodeVerb.RESUME, NodeVerb.DOWN
REBOOTED = "Node unexpectedly rebooted"
RESERVED = RestReservation.model_validate({"name": "maintenance", "node_list": "w-0"})


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({}, ""),
        ({"condemned": "scale-in"}, "red-box: scale-in"),
        ({"cordon": "disk\nfull"}, "red-box: cordoned: disk full"),
        ({"machine": WorkerMachine.CORDONED}, "red-box: Kubernetes node cordoned"),
        (
            {"machine": WorkerMachine.CORDONED, "machine_reason": "new kernel"},
            "red-box: Kubernetes node cordoned: new kernel",
        ),
        ({"altered": "resources"}, ""),
        ({"condemned": "update", "cordon": "x"}, "red-box: update"),
        ({"machine": WorkerMachine.LOST}, ""),
        (
            {"machine": WorkerMachine.FAULTY, "machine_reason": "KernelDeadlock (x: y)"},
            "red-box: Kubernetes node has KernelDeadlock (x: y)",
        ),
        ({"machine": WorkerMachine.UNREADABLE}, ""),
    ],
)
def test_the_wanted_state(row: dict[str, Any], reason: str) -> None:
    assert wanted_state(pod(**row)).drained_for == reason


@pytest.mark.parametrize(
    ("state", "reason", "owner"),
    [
        ("IDLE", "", DrainOwner.NOBODY),
        ("IDLE", "red-box: scale-in", DrainOwner.NOBODY),
        ("IDLE", "disk broken", DrainOwner.NOBODY),
        ("IDLE+DRAIN", "red-box: scale-in", DrainOwner.OPERATOR),
        ("IDLE+DRAIN", "red-box: the pod ends", DrainOwner.OPERATOR),
        ("DOWN", REBOOTED, DrainOwner.SLURM),
        ("DOWN", "ResumeTimeout reached", DrainOwner.SLURM),
        ("DOWN+NOT_RESPONDING", "Not responding", DrainOwner.SLURM),
        ("DOWN", f"{REBOOTED} [slurm@2026-11-28T12:00:00]", DrainOwner.SLURM),
        ("DOWN", f"{REBOOTED} twice", DrainOwner.ADMINISTRATOR),
        ("IDLE+DRAIN", "Low RealMemory", DrainOwner.ADMINISTRATOR),
        ("IDLE+DRAIN", "disk broken", DrainOwner.ADMINISTRATOR),
        ("IDLE+DRAIN", "", DrainOwner.ADMINISTRATOR),
        ("IDLE+DRAIN", "not red-box: this", DrainOwner.ADMINISTRATOR),
        ("IDLE+FAIL", "x", DrainOwner.ADMINISTRATOR),
    ],
)
def test_who_owns_a_drain(state: str, reason: str, owner: DrainOwner) -> None:
    assert drain_owner(node(state, reason=reason)) is owner


def test_a_reason_of_ours_is_one_short_line() -> None:
    assert our_reason("a\n b") == "red-box: a b"
    assert len(our_reason("x" * 1000)) == 200
    assert plain_reason("disk [1] broken [root@2026-01-01T00:00:00]") == "disk [1] broken"


@pytest.mark.parametrize(
    ("case", "row", "seen_in_slurm", "verb", "reason"),
    [
        ("in service", {}, snapshot(node()), None, ""),
        ("busy", {}, snapshot(node("ALLOCATED"), job(start_time=2_000)), None, ""),
        # To be drained.
        ("condemned", {"condemned": "scale-in"}, snapshot(node()), DRAIN, "red-box: scale-in"),
        ("condemned, busy", {"condemned": "x"}, snapshot(node("ALLOCATED")), DRAIN, "red-box: x"),
        ("cordoned", {"cordon": "x"}, snapshot(node()), DRAIN, "red-box: cordoned: x"),
        (
            "cordoned, drained",
            {"cordon": "x"},
            snapshot(node("IDLE+DRAIN", reason="red-box: cordoned: x")),
            None,
            "",
        ),
        (
            "its machine is cordoned, drained, not confirmed",
            {"machine": WorkerMachine.CORDONED},
            snapshot(node("IDLE+DRAIN", reason="red-box: Kubernetes node cordoned")),
            DRAIN,
            "red-box: Kubernetes node cordoned",
        ),
        (
            "its machine is cordoned, drained, confirmed",
            {"machine": WorkerMachine.CORDONED, "drain_confirmed": NOW - 1},
            snapshot(node("IDLE+DRAIN", reason="red-box: Kubernetes node cordoned")),
            None,
            "",
        ),
        (
            "no more cordoned, and not protected yet",
            {"is_exposed": True},
            snapshot(node("IDLE+DRAIN", reason="red-box: Kubernetes node cordoned")),
            None,
            "the pod is not protected yet",
        ),
        (
            "condemned, drained, not confirmed",
            {"condemned": "x"},
            snapshot(node("IDLE+DRAIN", reason="red-box: the pod ends")),
            DRAIN,
            "red-box: x",
        ),
        (
            "condemned, drained, confirmed",
            {"condemned": "x", "drain_confirmed": NOW - 1},
            snapshot(node("IDLE+DRAIN", reason="red-box: x")),
            None,
            "",
        ),
        (
            "condemned, confirmed, resumed by somebody",
            {"condemned": "x", "drain_confirmed": NOW - 1},
            snapshot(node()),
            DRAIN,
            "red-box: x",
        ),
        # An administrator's reason is repeated, so that it stays.
        (
            "condemned, drained by an administrator",
            {"condemned": "x"},
            snapshot(node("IDLE+DRAIN", reason="disk broken [root@2026-11-28T12:00:00]")),
            DRAIN,
            "disk broken",
        ),
        (
            "condemned, down by an administrator",
            {"condemned": "x"},
            snapshot(node("DOWN", reason="disk broken")),
            DRAIN,
            "disk broken",
        ),
        (
            "condemned, not responding",
            {"condemned": "x"},
            snapshot(node("DOWN", reason="Not responding")),
            DRAIN,
            "red-box: x",
        ),
        # L16.4: DRAIN on a node that powers up under a job requeues the job.
        (
            "condemned, allocated and powering up",
            {"condemned": "x"},
            snapshot(node("ALLOCATED+POWERING_UP")),
            None,
            "a job waits for the node to power up: DRAIN would end it",
        ),
        (
            "condemned, allocated and powered down",
            {"condemned": "x"},
            snapshot(node("MIXED+POWERED_DOWN")),
            None,
            "a job waits for the node to power up: DRAIN would end it",
        ),
        (
            "condemned, powering up, idle",
            {"condemned": "x"},
            snapshot(node("IDLE+POWERING_UP")),
            DRAIN,
            "red-box: x",
        ),
        # To be resumed.
        ("our drain", {}, snapshot(node("IDLE+DRAIN", reason="red-box: the pod ends")), RESUME, ""),
        ("rebooted", {}, snapshot(node("DOWN", reason=REBOOTED)), RESUME, ""),
        ("late", {}, snapshot(node("DOWN", reason="ResumeTimeout reached")), RESUME, ""),
        (
            "late, powered down",
            {},
            snapshot(node("DOWN+POWERED_DOWN", reason="ResumeTimeout reached")),
            RESUME,
            "",
        ),
        (
            "our drain, powering down",
            {},
            snapshot(node("IDLE+DRAIN+POWERING_DOWN", reason="red-box: x")),
            None,
            "the node is POWERING_DOWN",
        ),
        (
            "our drain, powering up",
            {},
            snapshot(node("IDLE+DRAIN+POWERING_UP", reason="red-box: x")),
            None,
            "the node is POWERING_UP",
        ),
        (
            "not ready",
            {"is_ready": False},
            snapshot(node("DOWN", reason=REBOOTED)),
            None,
            "the pod is not ready",
        ),
        (
            "an old pod's record",
            {},
            snapshot(node("DOWN", reason=REBOOTED, instance_id="uid-before")),
            None,
            "the node's record belongs to another pod",
        ),
        (
            "no instance id, own address",
            {},
            snapshot(node("DOWN", reason=REBOOTED, instance_id="")),
            RESUME,
            "",
        ),
        (
            "no instance id, its name as address",
            {},
            snapshot(node("DOWN", reason=REBOOTED, instance_id="", address="w-0")),
            None,
            "it is unknown which pod the node's record belongs to",
        ),
        (
            "not responding",
            {},
            snapshot(node("DOWN", reason="Not responding")),
            None,
            "slurmd does not respond",
        ),
        (
            "altered",
            {"altered": "resources"},
            snapshot(node("DOWN", reason=REBOOTED)),
            None,
            "the pod was altered: resources",
        ),
        ("altered, in service", {"altered": "resources"}, snapshot(node()), None, ""),
        # Whatever else is an administrator's.
        (
            "an administrator's drain",
            {},
            snapshot(node("IDLE+DRAIN", reason="disk broken")),
            None,
            "drained by an administrator: disk broken",
        ),
        ("ours while cordoned", {"cordon": "x"}, snapshot(node("DOWN+DRAIN", reason=REBOOTED)), None, ""),
        # L5: Slurm does not look for lost jobs during a maintenance.
        (
            "a job older than the container",
            {"container_started": 5_000.0},
            snapshot(node("ALLOCATED+MAINTENANCE", boot_time=5_000), job(start_time=4_000)),
            DOWN,
            "red-box: job 7 began before this container and is lost",
        ),
        (
            "a job older than the container, in a reservation that is not named in the state",
            {"container_started": 5_000.0},
            snapshot(node("ALLOCATED", boot_time=5_000), job(start_time=4_000), reservations=(RESERVED,)),
            DOWN,
            "red-box: job 7 began before this container and is lost",
        ),
        (
            "an older job by a clock that was stepped: Slurm looks itself",
            {"container_started": 5_000.0},
            snapshot(node("ALLOCATED", boot_time=5_000), job(start_time=4_000)),
            None,
            "",
        ),
        (
            "a job a little older: boot_time moves",
            {"container_started": 5_000.0},
            snapshot(node("ALLOCATED+MAINTENANCE", boot_time=5_000), job(start_time=4_950)),
            None,
            "",
        ),
        (
            "an older job on a node that is down already",
            {"container_started": 5_000.0},
            snapshot(node("DOWN+MAINTENANCE", reason=REBOOTED, boot_time=5_000), job(start_time=4_000)),
            RESUME,
            "",
        ),
        (
            "an older job that is completing",
            {"container_started": 5_000.0},
            snapshot(
                node("MIXED+MAINTENANCE", boot_time=5_000), job(state="RUNNING+COMPLETING", start_time=4_000)
            ),
            None,
            "",
        ),
        (
            "a boot time that 24.11 shows for seconds after a reconfigure",
            {"container_started": 5_000.0},
            snapshot(node("ALLOCATED+MAINTENANCE", boot_time=0), job(start_time=4_000)),
            None,
            "",
        ),
        (
            "an older job by Slurm alone: a boot time in the future",
            {"container_started": 3_000.0},
            snapshot(node("ALLOCATED+MAINTENANCE", boot_time=5_000), job(start_time=4_000)),
            None,
            "",
        ),
        (
            "an older job by Kubernetes alone",
            {"container_started": 5_000.0},
            snapshot(node("ALLOCATED+MAINTENANCE", boot_time=3_000), job(start_time=4_000)),
            None,
            "",
        ),
        (
            "an older job, and no container runs",
            {},
            snapshot(node("ALLOCATED+MAINTENANCE", boot_time=5_000), job(start_time=4_000)),
            None,
            "",
        ),
        # Unknown asks for no act.
        ("no answer", {"condemned": "x"}, UNKNOWN, None, f"Slurm's state is unknown: {UNKNOWN.unknown}"),
        ("no record", {"condemned": "x"}, snapshot(), None, "Slurm has no record of the node"),
        (
            "a successor's record",
            {"condemned": "x"},
            snapshot(node(instance_id="uid-of-another")),
            None,
            "the node's record belongs to another pod",
        ),
        *(
            (
                "a host outside has the pod's name",
                row,
                snapshot(node("ALLOCATED", instance_id="", address="192.0.2.7"), job()),
                None,
                "the node's record belongs to another pod",
            )
            for row in ({"force_delete": "x"}, {"condemned": "x"}, {"cordon": "x", "address": ""})
        ),
        (
            "ending",
            {"is_ending": True},
            snapshot(node("IDLE+DRAIN", reason="red-box: x")),
            None,
            "the pod ends; its preStop drains",
        ),
    ],
)
def test_the_act_that_is_due(
    case: str, row: dict[str, Any], seen_in_slurm: SlurmSnapshot, verb: NodeVerb | None, reason: str
) -> None:
    act = next_act(pod(**row), seen_in_slurm)
    assert (act.verb, act.reason) == (verb, reason), case


@pytest.mark.parametrize(
    ("state", "verb"),
    [("IDLE", DRAIN), ("IDLE+POWERED_DOWN", DRAIN), ("ALLOCATED+POWERING_UP", None), ("IDLE+DRAIN", None)],
)
def test_an_administrators_drain_that_a_power_transition_erased_is_put_back(
    state: str, verb: NodeVerb | None
) -> None:
    act = next_act(pod(), snapshot(node(state, reason="disk broken")), lost_drain="disk broken")
    assert act.verb is verb
    if verb:
        assert act.reason == "disk broken"
