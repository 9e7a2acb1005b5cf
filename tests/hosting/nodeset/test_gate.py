"""No pod passes the gate with a job on it; whatever is unknown keeps the pod, and says why."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redbox_hosting.nodeset.gate import GateState, gate
from redbox_hosting.nodeset.observed import PodPhase, WorkerMachine
from redbox_hosting.slurm.answers import RestNode
from redbox_hosting.slurm.snapshot import SlurmSnapshot
from tests.hosting.nodeset.rows import NOW, UNKNOWN, job, node, pod, snapshot

CONDEMNED: dict[str, Any] = {"condemned": "scale-in", "drain_confirmed": NOW - 1}
DRAINED = node("IDLE+DRAIN", reason="red-box: scale-in")
GONE = {"machine": WorkerMachine.GONE}
OPEN, WAITING, UNSURE = GateState.OPEN, GateState.WAITING, GateState.UNKNOWN


@pytest.mark.parametrize(
    ("case", "row", "seen_in_slurm", "state", "reason"),
    [
        ("drained and idle", {}, snapshot(DRAINED), OPEN, "drained"),
        ("drained and down", {}, snapshot(node("DOWN+DRAIN")), OPEN, "drained"),
        ("drained in a maintenance", {}, snapshot(node("IDLE+DRAIN+MAINTENANCE")), OPEN, "drained"),
        ("dynamic", {}, snapshot(node("IDLE+DRAIN+DYNAMIC_NORM")), OPEN, "drained"),
        # L4: REST alone; a 200 that came before the DRAIN proves nothing.
        ("not drained", {}, snapshot(node()), WAITING, "the node is not drained"),
        ("down only", {}, snapshot(node("DOWN")), WAITING, "the node is not drained"),
        (
            "drained, not confirmed",
            {"drain_confirmed": None},
            snapshot(DRAINED),
            WAITING,
            "Slurm has not confirmed the drain",
        ),
        (
            "read before the confirmation",
            {"drain_confirmed": NOW},
            snapshot(DRAINED),
            WAITING,
            "Slurm was not read since it confirmed the drain",
        ),
        ("resumed by somebody", {}, snapshot(node("IDLE")), WAITING, "the node is not drained"),
        (
            "being resumed",
            {},
            snapshot(node("IDLE+DRAIN+UNDRAIN")),
            WAITING,
            "the node is UNDRAIN",
        ),
        ("allocated", {}, snapshot(node("ALLOCATED+DRAIN")), WAITING, "the node is ALLOCATED"),
        ("mixed", {}, snapshot(node("MIXED+DRAIN")), WAITING, "the node is MIXED"),
        ("completing", {}, snapshot(node("IDLE+COMPLETING+DRAIN")), WAITING, "the node is COMPLETING"),
        ("powering up", {}, snapshot(node("IDLE+POWERING_UP+DRAIN")), WAITING, "the node is POWERING_UP"),
        # L4: an allocation without a step has no stepd; REST knows of it.
        ("a job while idle", {}, snapshot(DRAINED, job()), WAITING, "jobs on the node: 7"),
        (
            "a completing job",
            {},
            snapshot(DRAINED, job(state="COMPLETED+COMPLETING")),
            WAITING,
            "jobs on the node: 7",
        ),
        ("a suspended job", {}, snapshot(DRAINED, job(state="SUSPENDED")), WAITING, "jobs on the node: 7"),
        (
            "a job of several nodes",
            {},
            snapshot(DRAINED, job(nodes="w-[0-9]")),
            WAITING,
            "jobs on the node: 7",
        ),
        (
            "a job in a state of a later release",
            {},
            snapshot(DRAINED, job(state="NEW")),
            WAITING,
            "jobs on the node: 7",
        ),
        (
            "many jobs",
            {},
            snapshot(DRAINED, *(job(number) for number in range(7))),
            WAITING,
            "jobs on the node: 0, 1, 2, 3, 4 and 2 more",
        ),
        ("an ended job", {}, snapshot(DRAINED, job(state="COMPLETED")), OPEN, "drained"),
        ("a requeued job", {}, snapshot(DRAINED, job(state="PENDING", nodes="")), OPEN, "drained"),
        ("a job elsewhere", {}, snapshot(DRAINED, job(nodes="w-1,w-00")), OPEN, "drained"),
        # Unknown is not drained.
        ("no answer", {}, UNKNOWN, UNSURE, "Slurm's state is unknown: GET nodes/: no answer within 5 s"),
        ("no record", {}, snapshot(), UNSURE, "Slurm has no record of the node"),
        (
            "another node's answer",
            {},
            snapshot(node("IDLE+DRAIN", 1)),
            UNSURE,
            "Slurm has no record of the node",
        ),
        ("unknown base", {}, snapshot(node("UNKNOWN+DRAIN")), UNSURE, "the node's state is DRAIN+UNKNOWN"),
        ("no base", {}, snapshot(node("DRAIN")), UNSURE, "the node's state is DRAIN"),
        ("two bases", {}, snapshot(node("IDLE+DOWN+DRAIN")), UNSURE, "the node's state is DOWN+DRAIN+IDLE"),
        (
            "a successor's record",
            {},
            snapshot(node("IDLE+DRAIN", instance_id="uid-of-another")),
            UNSURE,
            "the node's record belongs to another pod",
        ),
        # L16.3: 26.05 drops the instance id at a power-up.
        ("no instance id, own address", {}, snapshot(node("IDLE+DRAIN", instance_id="")), OPEN, "drained"),
        (
            "no instance id, its name as address",
            {},
            snapshot(node("IDLE+DRAIN", instance_id="", address="w-0")),
            UNSURE,
            "it is unknown which pod the node's record belongs to",
        ),
        # A worker that never registered: preStop's word is enough.
        ("never ready, no record", {"was_ready": False}, snapshot(), OPEN, "the worker never registered"),
        (
            "never ready, a predecessor's record",
            {"was_ready": False},
            snapshot(node("DOWN", instance_id="uid-before")),
            OPEN,
            "the worker never registered",
        ),
        (
            "never ready, a predecessor's record with a job",
            {"was_ready": False},
            snapshot(node("DOWN", instance_id="uid-before"), job()),
            UNSURE,
            "the node's record belongs to another pod",
        ),
        (
            "never ready, no record, a job",
            {"was_ready": False},
            snapshot(job()),
            UNSURE,
            "Slurm has no record of the node",
        ),
        (
            "never ready, no answer",
            {"was_ready": False},
            UNKNOWN,
            UNSURE,
            f"Slurm's state is unknown: {UNKNOWN.unknown}",
        ),
        # L9: a machine that does not answer, and L16.10: a phase that PodGC wrote.
        (
            "lost machine",
            {"machine": WorkerMachine.LOST},
            snapshot(node("DOWN+DRAIN")),
            UNSURE,
            "the Kubernetes node does not answer, so its containers may run on",
        ),
        (
            "cut off, and Kubernetes has not seen it yet",
            {},
            snapshot(node("DOWN+DRAIN+NOT_RESPONDING")),
            UNSURE,
            "slurmd does not respond, so jobs may run on unseen",
        ),
        *(
            (f"no container runs: {row}", row, snapshot(node("DOWN+DRAIN+NOT_RESPONDING")), OPEN, "drained")
            for row in ({"container_ended": True}, {"phase": PodPhase.PENDING})
        ),
        *(
            (f"Node deleted, {state}", GONE, snapshot(node(state)), OPEN, "the machine is off")
            for state in ("DOWN", "DOWN+NOT_RESPONDING", "DOWN+DRAIN")
        ),
        ("Node deleted, a job", GONE, snapshot(node("DOWN"), job()), WAITING, "jobs on the node: 7"),
        ("Node deleted, no record", GONE, snapshot(), UNSURE, "Slurm has no record of the node"),
        (
            "Node deleted before the worker registered",
            {**GONE, "was_ready": False},
            snapshot(),
            OPEN,
            "the worker never registered",
        ),
        *(
            (
                "Node deleted, but slurmd may run",
                GONE,
                seen,
                UNSURE,
                "the Kubernetes node is deleted, but Slurm does not show that slurmd is gone",
            )
            for seen in (
                snapshot(node("MIXED"), job()),
                snapshot(DRAINED),
                snapshot(node("ALLOCATED+NOT_RESPONDING"), job()),  # a moment's silence
                snapshot(node("IDLE+NOT_RESPONDING")),
            )
        ),
        ("Node deleted, no answer", GONE, UNKNOWN, UNSURE, f"Slurm's state is unknown: {UNKNOWN.unknown}"),
        ("machine proven off", {"machine": WorkerMachine.OFF}, UNKNOWN, OPEN, "the machine is off"),
        (
            "phase Failed",
            {"phase": PodPhase.FAILED},
            snapshot(DRAINED),
            UNSURE,
            "the pod's phase Failed does not say whether its containers run",
        ),
        (
            "phase Failed, its kubelet shows the end",
            {"phase": PodPhase.FAILED, "container_ended": True},
            snapshot(node("DOWN+DRAIN+NOT_RESPONDING")),
            OPEN,
            "drained",
        ),
        (
            "phase Failed, its kubelet shows the end, a job",
            {"phase": PodPhase.FAILED, "container_ended": True},
            snapshot(node("IDLE+DRAIN"), job()),
            WAITING,
            "jobs on the node: 7",
        ),
        (
            "not admitted by its kubelet",
            {"phase": PodPhase.FAILED, "was_ready": False},
            snapshot(),
            OPEN,
            "the worker never registered",
        ),
        ("Nodes unreadable", {"machine": WorkerMachine.UNREADABLE}, snapshot(DRAINED), OPEN, "drained"),
        # An administrator's word.
        ("forced", {"force_delete": "I know"}, snapshot(node("ALLOCATED"), job()), OPEN, "forced: I know"),
        ("forced, no answer", {"force_delete": "I know"}, UNKNOWN, OPEN, "forced: I know"),
    ],
)
def test_the_gate(
    case: str, row: dict[str, Any], seen_in_slurm: SlurmSnapshot, state: GateState, reason: str
) -> None:
    decision = gate(pod(**{**CONDEMNED, **row}), seen_in_slurm)
    assert (decision.state, decision.reason) == (state, reason), case
    assert decision.is_open is (state is OPEN)


def test_the_jobs_that_a_forced_deletion_ends_are_named() -> None:
    decision = gate(pod(force_delete="now"), snapshot(node("MIXED"), job(3), job(4), job(5, "COMPLETED")))
    assert decision.jobs == (3, 4)


ANY_FLAGS = st.sets(
    st.sampled_from(
        [
            *("IDLE", "DOWN", "ALLOCATED", "MIXED", "UNKNOWN", "ERROR", "FUTURE"),
            *(
                "DRAIN",
                "COMPLETING",
                "UNDRAIN",
                "NOT_RESPONDING",
                "POWERING_UP",
                "POWERED_DOWN",
                "MAINTENANCE",
            ),
        ]
    ),
    min_size=1,
)


@settings(max_examples=400, deadline=None)
@given(
    flags=ANY_FLAGS,
    uid=st.sampled_from(["uid-0", "uid-of-another", ""]),
    address=st.sampled_from(["10.0.0.0", "w-0"]),
    job_state=st.sampled_from(["RUNNING", "PENDING", "COMPLETED", "CANCELLED+COMPLETING"]),
    confirmed=st.sampled_from([None, NOW - 1, NOW, NOW + 1]),
    machine=st.sampled_from(
        [WorkerMachine.WELL, WorkerMachine.CORDONED, WorkerMachine.LOST, WorkerMachine.UNREADABLE]
    ),
)
def test_it_opens_only_for_a_node_that_is_drained_idle_and_free(
    flags: set[str],
    uid: str,
    address: str,
    job_state: str,
    confirmed: float | None,
    *,
    machine: WorkerMachine,
) -> None:
    record: RestNode = node("+".join(flags), instance_id=uid, address=address)
    given_pod = pod(condemned="scale-in", drain_confirmed=confirmed, machine=machine)
    if gate(given_pod, snapshot(record, job(state=job_state))).is_open:
        assert "DRAIN" in flags
        assert flags & {"IDLE", "DOWN"}
        assert not flags & {"ALLOCATED", "MIXED", "COMPLETING", "UNDRAIN"}
        assert job_state == "COMPLETED"
        assert confirmed == NOW - 1
        assert uid != "uid-of-another"
        assert machine is not WorkerMachine.LOST
