"""The pod's uid in its node's record: set once the record is this pod's, and again where Slurm dropped it."""

import threading

from redbox_slurmpod.node.instance_id import AttemptPauses, OwnRecord, ensure_record
from tests.slurmpod.harness import wait_for
from tests.slurmpod.node.fake_slurm import FakeSlurm

ADDRESS, OTHER_ADDRESS = "10.0.0.1", "10.0.0.2"
SET = "update nodename=w-0 instanceid=uid-1"


def started(keys: str = "") -> threading.Thread:
    pauses = AttemptPauses(first_s=0.01, longest_s=0.05)
    thread = threading.Thread(target=ensure_record, args=(OwnRecord("w-0", "uid-1", ADDRESS, keys), pauses))
    thread.start()
    return thread


def ended(thread: threading.Thread) -> None:
    wait_for(lambda: not thread.is_alive())


def test_a_record_that_has_it_is_not_written(slurm: FakeSlurm) -> None:
    slurm.node("IDLE", instance_id="uid-1")
    ended(started())
    assert slurm.calls("update") == []


def test_it_is_set_and_read_back(slurm: FakeSlurm) -> None:
    slurm.node("IDLE")
    ended(started())
    assert slurm.calls("update") == [SET]
    assert "InstanceId=uid-1" in slurm.record


def test_the_record_of_the_pod_before_is_written_only_once_this_pod_has_registered(slurm: FakeSlurm) -> None:
    slurm.node("IDLE", instance_id="uid-0", address=OTHER_ADDRESS)
    thread = started()
    wait_for(lambda: len(slurm.calls("--oneliner")) > 3)
    assert slurm.calls("update") == []
    slurm.node("IDLE", instance_id="uid-0", address=ADDRESS)
    ended(thread)
    assert slurm.calls("update") == [SET]


def test_it_waits_for_slurmctld_and_for_the_record(slurm: FakeSlurm) -> None:
    slurm.set("away")
    thread = started()
    wait_for(lambda: len(slurm.calls("--oneliner")) > 2)
    slurm.set("away", on=False)
    wait_for(lambda: len(slurm.calls("--oneliner")) > 5)
    slurm.node("IDLE")
    ended(thread)
    assert slurm.calls("update") == [SET]


def test_what_slurm_drops_is_set_again(slurm: FakeSlurm) -> None:
    slurm.node("IDLE")
    slurm.set("drops")
    thread = started()
    wait_for(lambda: len(slurm.calls("update")) > 2)
    slurm.set("drops", on=False)
    ended(thread)
    assert "InstanceId=uid-1" in slurm.record


def test_the_keys_that_slurmd_has_read_are_in_the_comment(slurm: FakeSlurm) -> None:
    slurm.node("IDLE", instance_id="uid-1")
    ended(started("0123456789abcdef" * 4))
    assert slurm.calls("update") == [f"{SET} comment=redbox-keys:0123456789abcdef"]
    ended(started("0123456789abcdef" * 4))
    assert len(slurm.calls("update")) == 1
