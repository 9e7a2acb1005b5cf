"""What scontrol says of a node: a record, no such node, or no answer."""

import pytest

from redbox_slurmpod.node import record
from redbox_slurmpod.node.record import SlurmUnavailable, parse_node, read_node
from tests.slurmpod.node.fake_slurm import RECORD, FakeSlurm


@pytest.mark.parametrize(
    ("state", "drained", "busy", "changes_power"),
    [
        ("IDLE", False, False, False),
        ("IDLE*", False, False, False),
        ("ALLOCATED", False, True, False),
        ("MIXED+DRAIN", True, True, False),
        ("IDLE+COMPLETING+DRAIN*", True, True, False),
        ("DOWN+DRAIN+NOT_RESPONDING", True, False, False),
        ("ALLOCATED+CLOUD+POWERING_UP", False, True, True),
        ("IDLE+CLOUD+POWERED_DOWN", False, False, True),
    ],
)
def test_states_are_read_from_their_flags(
    *, state: str, drained: bool, busy: bool, changes_power: bool
) -> None:
    node = parse_node(RECORD.format(state=state, address="10.0.0.1", instance=""))
    assert node is not None
    assert (node.drained, node.busy, node.changes_power) == (drained, busy, changes_power)


def test_a_node_has_its_address_and_instance_id() -> None:
    node = parse_node(RECORD.format(state="IDLE", address="10.0.0.7", instance=" InstanceId=uid-1"))
    assert node is not None
    assert (node.address, node.instance_id) == ("10.0.0.7", "uid-1")
    empty = parse_node(RECORD.format(state="IDLE", address="w-0", instance=" InstanceId=(null)"))
    assert empty is not None
    assert empty.instance_id == ""


def test_a_node_that_slurm_does_not_have_is_none(slurm: FakeSlurm) -> None:
    assert read_node("w-0") is None
    assert slurm.calls("--oneliner") == ["--oneliner show node w-0"]


def test_a_slurmctld_that_does_not_answer_is_not_a_missing_node(slurm: FakeSlurm) -> None:
    slurm.set("away")
    with pytest.raises(SlurmUnavailable, match="Unable to contact"):
        read_node("w-0")


def test_an_empty_answer_is_no_answer(slurm: FakeSlurm) -> None:
    (slurm.folder / "record").write_text("No nodes in the system\n")
    with pytest.raises(SlurmUnavailable):
        read_node("w-0")


def test_a_scontrol_that_hangs_is_ended(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    (slurm.folder / "bin" / "scontrol").write_text("#!/bin/sh\nexec sleep 600\n")
    monkeypatch.setattr(record, "_WITHIN_S", 0.1)
    with pytest.raises(SlurmUnavailable, match="timed out"):
        read_node("w-0")


def test_an_image_without_scontrol_is_no_answer(slurm: FakeSlurm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(slurm.folder))
    with pytest.raises(SlurmUnavailable):
        read_node("w-0")
