"""The preStop hook: it drains for itself only, and no step dies by it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from redbox_slurmpod.node.pre_stop import PollPauses, PreStop
from tests.slurmpod.harness import wait_for
from tests.slurmpod.node.fake_slurm import FakeSlurm

OURS, OTHER = "uid-1", "uid-2"
FOR_EVER_S = 1e9
DRAIN = "update nodename=w-0 state=drain reason=red-box: the pod ends"


class Hook:
    """One run of the hook, in a thread of its own, on a pod with these steps."""

    def __init__(self, *steps: int, unconfirmed_s: float = FOR_EVER_S) -> None:
        self.steps = list(steps)
        self.pauses = PollPauses(steps_s=0.01, record_s=0.01, drain_s=0.05, unconfirmed_s=unconfirmed_s)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        PreStop("w-0", OURS, has_steps=lambda: self.steps, pauses=self.pauses).run()

    @contextmanager
    def running(self) -> Iterator["Hook"]:
        self._thread.start()
        try:
            yield self
        finally:
            self.steps.clear()
            self._thread.join(10)

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()


def ends(*steps: int) -> None:
    with Hook(*steps).running() as hook:
        wait_for(lambda: hook.ended)


def test_an_idle_node_is_drained_and_its_pod_may_go(slurm: FakeSlurm) -> None:
    slurm.node("IDLE", instance_id=OURS)
    ends()
    assert slurm.calls("update") == [DRAIN]


def test_a_pod_with_a_step_waits_for_its_end(slurm: FakeSlurm) -> None:
    slurm.node("MIXED", instance_id=OURS)
    with Hook(4711).running() as hook:
        wait_for(lambda: "DRAIN" in slurm.record)
        slurm.node("IDLE+DRAIN", instance_id=OURS)
        assert not hook.ended
        hook.steps.clear()
        wait_for(lambda: hook.ended)
    assert slurm.calls("update") == [DRAIN]


def test_an_allocation_without_a_step_keeps_the_pod(slurm: FakeSlurm) -> None:
    slurm.node("ALLOCATED", instance_id=OURS)
    with Hook().running() as hook:
        wait_for(lambda: len(slurm.calls("--oneliner")) > 3)
        assert not hook.ended
        slurm.node("IDLE+DRAIN", instance_id=OURS)
        wait_for(lambda: hook.ended)


def test_a_node_that_another_pod_has_now_is_left_alone(slurm: FakeSlurm) -> None:
    slurm.node("MIXED", instance_id=OTHER)
    ends()
    assert slurm.calls("update") == []


def test_an_empty_instance_id_keeps_nobody_from_draining(slurm: FakeSlurm) -> None:
    slurm.node("IDLE")
    ends()
    assert slurm.calls("update") == [DRAIN]


def test_a_node_that_is_powered_up_gets_no_drain_which_would_requeue_its_job(slurm: FakeSlurm) -> None:
    slurm.node("ALLOCATED+CLOUD+POWERING_UP", instance_id=OURS)
    ends()
    assert slurm.calls("update") == []


def test_a_pod_that_never_registered_may_go(slurm: FakeSlurm) -> None:
    ends()
    assert slurm.calls("update") == []


def test_a_drain_of_somebody_else_is_not_repeated(slurm: FakeSlurm) -> None:
    slurm.node("IDLE+DRAIN", instance_id=OURS)
    ends()
    assert slurm.calls("update") == []


def test_without_slurmctld_steps_are_waited_for_and_the_drain_follows_when_it_is_back(
    slurm: FakeSlurm,
) -> None:
    slurm.node("MIXED", instance_id=OURS)
    slurm.set("away")
    with Hook(4711).running() as hook:
        wait_for(lambda: len(slurm.calls("--oneliner")) > 2)
        assert not hook.ended
        assert slurm.calls("update") == []
        slurm.set("away", on=False)
        wait_for(lambda: "DRAIN" in slurm.record)
        slurm.node("IDLE+DRAIN", instance_id=OURS)
        hook.steps.clear()
        wait_for(lambda: hook.ended)
    assert slurm.calls("update") == [DRAIN]


def test_without_slurmctld_and_without_a_step_slurm_is_asked_until_it_answers(slurm: FakeSlurm) -> None:
    slurm.node("IDLE", instance_id=OURS)
    slurm.set("away")
    with Hook().running() as hook:
        wait_for(lambda: len(slurm.calls("--oneliner")) > 3)
        assert not hook.ended
        slurm.set("away", on=False)
        wait_for(lambda: hook.ended)
    assert slurm.calls("update") == [DRAIN]


def test_a_slurmctld_that_never_answers_keeps_a_pod_without_a_step_for_a_bounded_time(
    slurm: FakeSlurm,
) -> None:
    slurm.set("away")
    with Hook(unconfirmed_s=0).running() as hook:
        wait_for(lambda: hook.ended)


def test_a_busy_node_stays_busy_while_slurmctld_does_not_answer(slurm: FakeSlurm) -> None:
    slurm.node("ALLOCATED", instance_id=OURS)
    with Hook(unconfirmed_s=0).running() as hook:
        wait_for(lambda: "DRAIN" in slurm.record)
        wait_for(lambda: len(slurm.calls("--oneliner")) > 3)
        slurm.set("away")
        asked = len(slurm.calls("--oneliner"))
        wait_for(lambda: len(slurm.calls("--oneliner")) > asked + 3)
        assert not hook.ended
        slurm.node("IDLE+DRAIN", instance_id=OURS)
        slurm.set("away", on=False)
        wait_for(lambda: hook.ended)


@pytest.mark.parametrize("steps", [(4711,), ()])
def test_a_node_that_somebody_resumes_is_drained_again(slurm: FakeSlurm, steps: tuple[int, ...]) -> None:
    slurm.node("MIXED", instance_id=OURS)
    with Hook(*steps).running() as hook:
        wait_for(lambda: "DRAIN" in slurm.record)
        slurm.node("MIXED", instance_id=OURS)
        wait_for(lambda: "DRAIN" in slurm.record)
        slurm.node("IDLE+DRAIN", instance_id=OURS)
        hook.steps.clear()
        wait_for(lambda: hook.ended)
    assert slurm.calls("update") == [DRAIN, DRAIN]


def test_a_refused_drain_is_tried_again_while_a_step_runs(slurm: FakeSlurm) -> None:
    slurm.node("MIXED", instance_id=OURS)
    slurm.set("refuses")
    with Hook(4711).running() as hook:
        wait_for(lambda: len(slurm.calls("update")) > 1)
        assert not hook.ended
        slurm.set("refuses", on=False)
        wait_for(lambda: "DRAIN" in slurm.record)
        slurm.node("IDLE+DRAIN", instance_id=OURS)


def test_a_record_that_is_no_utf8_is_read(slurm: FakeSlurm) -> None:
    slurm.node("IDLE", instance_id=OURS)
    record = slurm.folder / "record"
    record.write_bytes(record.read_bytes().replace(b"Reason=none", b"Reason=\xff"))
    ends()
    assert slurm.calls("update") == [DRAIN]
