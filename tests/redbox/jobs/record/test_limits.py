"""A job that Slurm made another than its rule allows is cancelled, once red-box has seen it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from redbox.core.domain import Limits
from redbox.jobs.record.codec import from_text, to_text
from redbox.jobs.record.limits import LimitViolation, violation_of
from redbox_api.models import Job, Phase
from tests.redbox.jobs.factories import RECORD, after, seen
from tests.redbox.jobs.harness import World, caller, request

KEY = "3f2b7c1e-0000-4000-8000-000000000001"
LIMITS = Limits(accounts=frozenset({"Physics"}), partitions=frozenset({"debug", "long"}))
LIMITED = caller(limits=LIMITS)


@pytest.mark.parametrize(
    ("account", "partition", "found"),
    [
        ("physics", "debug", None),
        ("PHYSICS", "debug,long", None),  # Slurm keeps accounts in small letters, and partitions as they are
        ("", "", None),
        ("biology", "debug", ("account", "biology", "Physics")),
        ("physics,Biology", "debug", ("account", "physics,Biology", "Physics")),
        ("physics", "gpu", ("partition", "gpu", "debug, long")),
        ("physics", "Debug", ("partition", "Debug", "debug, long")),
        ("physics", "debug,gpu", ("partition", "debug,gpu", "debug, long")),
    ],
)
def test_all_accounts_and_partitions_must_be_of_the_rule_as_slurm_names_them(
    account: str, partition: str, found: tuple[str, str, str] | None
) -> None:
    assert violation_of(LIMITS, account=account, partition=partition) == (found and LimitViolation(*found))


def test_without_limits_every_job_is_within_them() -> None:
    assert violation_of(Limits(), account="any", partition="any") is None


def test_a_rule_that_allows_nothing_is_not_a_rule_without_limits() -> None:
    nothing = Limits(accounts=frozenset(), partitions=frozenset())
    assert violation_of(nothing, account="", partition="debug") == LimitViolation(
        "partition", "debug", "none"
    )
    assert violation_of(nothing, account="physics", partition="") == LimitViolation(
        "account", "physics", "none"
    )


def test_limits_and_what_is_beyond_them_outlive_a_restart() -> None:
    record = replace(RECORD, limits=LIMITS, limits_exceeded="outside")
    for kept in (record, replace(record, limits=Limits(accounts=frozenset())), RECORD):
        assert from_text(kept.key, 3, to_text(kept)) == replace(kept, revision=3)


def test_only_the_first_look_compares_and_what_its_user_changes_later_is_not_red_boxs() -> None:
    limited = replace(RECORD, limits=LIMITS)
    inside, gpu = seen("PENDING", partition="debug"), seen("PENDING", partition="gpu")
    assert not after(inside, gpu, record=limited).cancel_requested
    assert after(gpu, inside, record=limited).cancel_requested


def put(world: World, partition: str) -> None:
    """sbatch is told debug, and a plugin of slurmctld has another mind."""
    kept = world.slurm.put
    with pytest.MonkeyPatch.context() as plugin:
        plugin.setattr(world.slurm, "put", lambda job: kept(replace(job, partition=partition)))
        world.run(world.jobs.put(LIMITED, KEY, 1, request(account="Physics", partition="debug")))


def current(world: World) -> Job:
    return world.run(world.jobs.get(LIMITED, KEY))


def test_a_job_in_another_partition_is_cancelled_and_told_why(world: World) -> None:
    put(world, "gpu")
    world.advance(5)
    job = current(world)
    assert (job.phase, world.slurm.jobs["1"].state) == (Phase.CANCELLED, "CANCELLED")
    assert "partition gpu, which the mapping does not allow (allowed: debug, long)" in (job.message or "")
    assert job.message in job.warnings


def test_the_audit_says_that_it_was_red_box_and_why(world: World) -> None:
    put(world, "gpu")
    world.advance(5)
    (told,) = [deed for deed in world.deeds if deed.act == "cancel"]
    assert (told.caller, told.user, told.outcome, told.job_id) == ("red-box", "alice", "done", "1")
    assert told.detail == current(world).message


def test_it_is_cancelled_also_by_the_next_red_box(world: World) -> None:
    world.slurm.refuse_acts = "not now"
    put(world, "gpu")
    world.advance(5)
    assert current(world).phase is Phase.PENDING
    world.slurm.refuse_acts = ""
    world.restart()
    world.advance(30)
    assert current(world).phase is Phase.CANCELLED


def test_a_job_that_had_ended_before_keeps_its_end_and_a_warning(world: World) -> None:
    world.slurm.refuse_acts = "too late"
    put(world, "gpu")
    world.slurm.end("1", "COMPLETED")
    world.advance(5)
    job = current(world)
    assert (job.phase, job.message) == (Phase.SUCCEEDED, None)
    assert any("partition gpu" in warning for warning in job.warnings)


def test_a_job_within_its_rule_is_let_run(world: World) -> None:
    put(world, "long")
    world.slurm.start("1")
    world.advance(5)
    job = current(world)
    assert (job.phase, job.warnings) == (Phase.RUNNING, [])
