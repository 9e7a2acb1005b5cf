"""Jobs at rest that looks show unchanged: nothing is decided about them again, and nothing is missed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from redbox.core.workload_manager import JobAction
from redbox.jobs.poll import poller
from redbox.jobs.poll.poller import after_poll
from redbox.jobs.record.record import JobRecord
from redbox_api.models import Job, Phase
from tests.redbox.jobs.harness import World, caller, request

KEY = "3f2b7c1e-0000-4000-8000-000000000001"


def current(world: World) -> Job:
    return world.run(world.jobs.get(caller(), KEY))


def settled(world: World) -> Job:
    """Several looks have shown the same of it."""
    world.run(world.jobs.put(caller(), KEY, 1, request()))
    world.advance(65)
    return current(world)


def test_of_jobs_that_are_shown_unchanged_nothing_is_decided_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(world)
    decided: list[str | None] = []

    def count(record: JobRecord, *rest: Any) -> JobRecord:
        decided.append(record.job_id)
        return after_poll(record, *rest)

    monkeypatch.setattr(poller, "after_poll", count)
    polls = len(world.slurm.polls)
    world.advance(60)
    assert len(world.slurm.polls) > polls
    assert decided == []
    world.slurm.start("1")
    world.advance(3)
    assert current(world).phase is Phase.RUNNING
    assert decided[0] == "1"


def test_a_second_job_with_the_mark_of_a_job_at_rest_is_noticed(world: World) -> None:
    settled(world)
    world.slurm.put(replace(world.slurm.jobs["1"], job_id="2"))
    world.advance(world.settings.longest_interval_s + 2)
    assert any("carries the same mark" in warning for warning in current(world).warnings)


def test_a_job_at_rest_that_the_queue_no_longer_shows_is_looked_for(world: World) -> None:
    settled(world)
    world.slurm.forget("1", rows_too=True)
    world.advance(700)
    assert current(world).phase is Phase.LOST


def test_a_cancel_of_a_job_at_rest_is_sent_again_where_it_had_no_effect(world: World) -> None:
    settled(world)
    unchanged = world.slurm.jobs["1"]
    world.run(world.jobs.delete(caller(), KEY))
    world.slurm.jobs["1"] = unchanged
    world.advance(60)
    assert len([act for act in world.slurm.acts if act[0] is JobAction.CANCEL]) > 1


def test_a_job_at_rest_that_a_restarted_controller_shows_unchanged_is_known_to_it(world: World) -> None:
    """Else its absence later would count as forgotten by that restart."""
    settled(world)
    world.slurm.restart()
    world.advance(90)
    (record,) = world.jobs._store.index.watched()
    assert record.boot_time == "boot 2"


def test_a_job_at_rest_whose_comment_is_changed_is_followed_with_a_warning(world: World) -> None:
    settled(world)
    world.slurm.jobs["1"] = replace(world.slurm.jobs["1"], mark="", comment="mine")
    world.advance(world.settings.longest_interval_s + 2)
    assert any("comment was changed" in warning for warning in current(world).warnings)
    world.slurm.end("1")
    world.advance(world.settings.longest_interval_s + 2)
    assert current(world).phase is Phase.SUCCEEDED


def test_a_job_at_rest_whose_id_a_stranger_was_given_is_not_taken_for_it(world: World) -> None:
    settled(world)
    world.slurm.forget("1", rows_too=True)
    world.slurm.add_foreign(3000, job_id="1")
    world.advance(700)
    assert current(world).phase is Phase.LOST
