from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from redbox.core.domain import Caller, Limits, Owner, Role, UnixUser
from redbox.core.workload_manager import JobAction
from redbox.jobs.errors import (
    Forbidden,
    JobConflict,
    JobNotFound,
    JobsBusy,
    JobsError,
    JournalFull,
    NotAcceptable,
    RateLimited,
    RefusedBySlurm,
    Tombstoned,
)
from redbox_api.models import Dependency, Phase
from tests.redbox.jobs.harness import ALICE, BOB, World, caller, operator, request
from tests.redbox.jobs.submit_manners import HANGS, NEVER_ARRIVES

KEY = "3f2b7c1e-0000-4000-8000-000000000001"
HERS = Owner("kube", "physics", "default")


def put(world: World, key: str = KEY, who: Caller | None = None, **facts: Any) -> object:
    job, _ = world.run(world.jobs.put(who or caller(), key, 1, request(**facts)))
    world.advance(2)
    return job


READER = Caller(
    "system:serviceaccount:redbox:resourced",
    Owner("kube", "redbox", "resourced", "r"),
    frozenset({Role.READER}),
)
STRANGERS = {
    "another namespace": caller(BOB, "chemistry"),
    "another namespace of the same user": caller(ALICE, "chemistry"),
    "a namespace made anew": caller(uid="uid-2"),
    "the same account mapped to another user": caller(BOB),
    "another cluster's operator": operator("elsewhere"),
}


@pytest.mark.parametrize("who", STRANGERS.values(), ids=STRANGERS.keys())
def test_nobody_reads_or_deletes_or_touches_anothers_job_nor_learns_that_it_is_there(
    world: World, who: Caller
) -> None:
    put(world)
    owner = HERS if who.may(Role.OPERATOR) else None
    for ask in (
        lambda: world.jobs.get(who, KEY, 1, owner),
        lambda: world.jobs.delete(who, KEY, 1, owner),
        lambda: world.jobs.get(who, KEY, 1, HERS),
    ):
        with pytest.raises(JobNotFound):
            world.run(ask())
    for refused in (lambda: world.jobs.act(who, KEY, 1, JobAction.HOLD), lambda: world.jobs.locate(who, KEY)):
        with pytest.raises((JobNotFound, Forbidden)):
            world.run(refused())
    assert world.run(world.jobs.list(who)).items == []
    world.advance(5)
    assert world.slurm.acts == []


def test_an_operator_sees_and_cancels_the_jobs_of_its_cluster_by_naming_the_owner(world: World) -> None:
    put(world)
    assert world.run(world.jobs.get(operator(), KEY, 1, HERS)).job_id == "1"
    (job,) = world.run(world.jobs.delete(operator(), KEY, 1, HERS))
    assert job.cancel_requested
    world.advance(3)
    assert world.slurm.jobs["1"].state == "CANCELLED"


def test_an_operator_holds_and_releases_by_naming_the_owner_and_does_nothing_else(world: World) -> None:
    put(world)
    world.run(world.jobs.act(operator(), KEY, 1, JobAction.HOLD, owner=HERS))
    assert world.slurm.jobs["1"].reason == "JobHeldUser"
    world.run(world.jobs.act(operator(), KEY, 1, JobAction.RELEASE, owner=HERS))
    assert world.slurm.jobs["1"].reason != "JobHeldUser"
    for act in (JobAction.REQUEUE, JobAction.SIGNAL):
        with pytest.raises(Forbidden):
            world.run(world.jobs.act(operator(), KEY, 1, act, owner=HERS))


def test_an_operator_requeues_only_with_the_role_for_it(world: World) -> None:
    put(world)
    with pytest.raises(Forbidden, match="lacks the role requeue"):
        world.run(world.jobs.act(operator(), KEY, 1, JobAction.REQUEUE, owner=HERS))
    assert world.slurm.acts == []
    requeuer = replace(operator(), roles=operator().roles | {Role.REQUEUE})
    world.run(world.jobs.act(requeuer, KEY, 1, JobAction.REQUEUE, run=1, owner=HERS))
    assert world.slurm.acts == [(JobAction.REQUEUE, "1")]


@pytest.mark.parametrize("who", [*STRANGERS.values(), READER], ids=[*STRANGERS, "a reader"])
def test_nobody_else_holds_anothers_job_by_naming_its_owner(world: World, who: Caller) -> None:
    put(world)
    with pytest.raises(JobNotFound):
        world.run(world.jobs.act(who, KEY, 1, JobAction.HOLD, owner=HERS))
    assert world.slurm.acts == []


def test_an_operators_tombstone_holds_whatever_uid_the_account_has(world: World) -> None:
    with pytest.raises(JobNotFound):
        world.run(world.jobs.delete(operator(), KEY, None, HERS))
    with pytest.raises(Tombstoned):
        put(world)


@pytest.mark.parametrize("who", [operator(), READER])
def test_who_may_not_submit_is_told_so(world: World, who: Caller) -> None:
    with pytest.raises(Forbidden):
        put(world, who=who)
    for refused in (lambda: world.jobs.act(who, KEY, 1, JobAction.HOLD), lambda: world.jobs.locate(who, KEY)):
        with pytest.raises(Forbidden):
            world.run(refused())


def test_an_operator_that_names_nobody_and_a_reader_have_no_jobs(world: World) -> None:
    with pytest.raises(Forbidden):
        world.run(world.jobs.get(operator(), KEY))
    lacking = "lacks the role submit, or operator for Red Box's operator"
    with pytest.raises(Forbidden, match=lacking):
        world.run(world.jobs.list(READER))
    with pytest.raises(Forbidden, match=lacking):
        world.jobs.watch(READER)


def test_a_put_after_the_mapping_changed_is_a_conflict_not_another_job(world: World) -> None:
    put(world)
    with pytest.raises(JobConflict, match="another Unix user"):
        put(world, who=caller(BOB))
    assert len(world.slurm.ever) == 1


def test_limits_of_the_rule_are_refused_by_name(world: World) -> None:
    limited = caller(limits=Limits(accounts=frozenset({"physics"}), partitions=frozenset({"debug", "long"})))
    with pytest.raises(Forbidden, match=r"account biology is not among.*physics"):
        put(world, who=limited, account="biology")
    with pytest.raises(Forbidden, match=r"partition debug,gpu is not among.*debug, long"):
        put(world, who=limited, partition="debug,gpu")
    put(world, who=limited, account="Physics", partition="debug")
    assert world.slurm.processes[-1].submission.limits == limited.limits


def test_who_submits_too_fast_is_asked_to_slow_down_and_others_are_not(world: World) -> None:
    refused = []
    for number in range(250):
        task = world.begin(world.jobs.put(caller(), f"k{number}", 1, request()))
        world.settle()
        refused.append(isinstance(task.exception(), RateLimited))
    assert refused == [False] * 200 + [True] * 50
    assert put(world, who=caller(BOB, "chemistry"))


def test_tombstones_are_limited_per_owner(tmp_path_factory: pytest.TempPathFactory) -> None:
    world = World(tmp_path_factory.mktemp("few"), tombstones_per_owner=3)
    outcomes = []
    for who in (caller(), caller(BOB, "chemistry")):
        for number in range(4):
            task = world.begin(world.jobs.delete(who, f"k{number}"))
            world.settle()
            outcomes.append(type(task.exception()))
    assert outcomes == [JobNotFound, JobNotFound, JobNotFound, RateLimited] * 2
    world.crash()


def few_tombstones(folders: pytest.TempPathFactory) -> World:
    """A red-box that lets each owner have three."""
    return World(folders.mktemp("few"), tombstones_per_owner=3)


@pytest.mark.parametrize("who", [operator(), caller()], ids=["an operator", "the owner"])
def test_jobs_that_there_are_can_be_cancelled_with_all_their_attempts_however_many(
    tmp_path_factory: pytest.TempPathFactory, who: Caller
) -> None:
    world = few_tombstones(tmp_path_factory)
    for number in range(5):
        put(world, f"k{number}")
    world.restart()
    for number in range(5):
        world.run(world.jobs.delete(who, f"k{number}", None, HERS if who.user is None else None))
    world.advance(10)
    assert {job.state for job in world.slurm.jobs.values()} == {"CANCELLED"}
    world.restart()
    for number in range(5):
        with pytest.raises(Tombstoned):
            world.run(world.jobs.put(caller(), f"k{number}", 2, request()))
    world.crash()


def test_an_operator_is_never_refused_and_the_oldest_key_that_never_was_gives_way(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    world = few_tombstones(tmp_path_factory)
    hers = (HERS, replace(HERS, account="made-up"))
    put(world, "known")
    world.run(world.jobs.delete(operator(), "known", None, HERS))
    with pytest.raises(JobNotFound):
        world.run(world.jobs.delete(caller(BOB, "chemistry"), "his"))
    for number in range(5):
        with pytest.raises(JobNotFound):
            world.run(world.jobs.delete(operator(), f"k{number}", None, hers[number % 2]))
        world.advance(1)
        world.restart()
    made_up = replace(caller(), owner=replace(hers[1], account_uid="uid-3"))
    for key, who in (("k2", caller()), ("k3", made_up), ("k4", caller()), ("his", caller(BOB, "chemistry"))):
        with pytest.raises(Tombstoned):
            put(world, key, who)
    with pytest.raises(Tombstoned):
        world.run(world.jobs.put(caller(), "known", 2, request()))
    put(world, "k0")
    put(world, "k1", made_up)
    world.crash()


def test_attempts_of_one_job_that_never_were_are_limited_too(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    world = few_tombstones(tmp_path_factory)
    put(world)
    for attempt in (2, 3, 4):
        with pytest.raises(JobNotFound):
            world.run(world.jobs.delete(caller(), KEY, attempt))
    world.restart()
    with pytest.raises(RateLimited):
        world.run(world.jobs.delete(caller(), KEY, 5))
    assert world.run(world.jobs.delete(caller(), KEY, None))[0].cancel_requested
    world.crash()


def test_acts_are_slurms_and_what_it_says_against_them_is_handed_on(world: World) -> None:
    put(world)
    world.run(world.jobs.act(caller(), KEY, 1, JobAction.HOLD))
    world.advance(3)
    assert "held by its user" in (world.run(world.jobs.get(caller(), KEY)).message or "")
    world.run(world.jobs.act(caller(), KEY, 1, JobAction.RELEASE))
    world.slurm.refuse_acts = "Job is pending execution"
    with pytest.raises(RefusedBySlurm, match="pending execution"):
        world.run(world.jobs.act(caller(), KEY, 1, JobAction.SIGNAL, signal="USR1"))
    world.slurm.down = True
    with pytest.raises(JobsBusy):
        world.run(world.jobs.act(caller(), KEY, 1, JobAction.HOLD))


def test_an_act_on_a_job_whose_id_is_anothers_touches_nothing(world: World) -> None:
    put(world)
    world.slurm.forget("1")
    stranger = world.slurm.add_foreign(2001, job_id="1")
    with pytest.raises(JobConflict, match="nothing was touched"):
        world.run(world.jobs.act(caller(), KEY, 1, JobAction.HOLD))
    assert world.slurm.jobs["1"] == stranger


def test_there_is_nothing_to_act_on_while_a_job_is_being_submitted(world: World) -> None:
    world.slurm.manners.append(HANGS)
    world.begin(world.jobs.put(caller(), KEY, 1, request()))
    world.slurm.down = True
    world.settle()
    assert world.run(world.jobs.get(caller(), KEY)).phase is Phase.SUBMITTING
    with pytest.raises(JobConflict, match="still being submitted"):
        world.run(world.jobs.act(caller(), KEY, 1, JobAction.HOLD))


def test_dependencies_by_key_are_jobs_of_the_same_owner(world: World) -> None:
    put(world, "first")
    put(world, "his", caller(BOB, "chemistry"))
    put(world, "second", dependencies=[Dependency(key="first"), Dependency(type="singleton")])
    assert world.slurm.processes[-1].submission.dependencies == ("afterok:1", "singleton")
    with pytest.raises(NotAcceptable, match="depends on his, and you have no job of this key"):
        put(world, "third", dependencies=[Dependency(key="his")])


@pytest.mark.parametrize(
    ("state", "kind", "outcome"),
    [
        ("COMPLETED", "afterok", ()),
        ("COMPLETED", "afterany", ()),
        ("COMPLETED", "afternotok", NotAcceptable),
        ("FAILED", "afterok", NotAcceptable),
        ("FAILED", "afternotok", ()),
        ("FAILED", "after", ()),
    ],
)
def test_a_dependency_on_what_slurm_has_forgotten_is_decided_here(
    world: World, state: str, kind: Any, outcome: object
) -> None:
    put(world, "first")
    world.slurm.end("1", state)
    world.advance(2)
    put(world, "soon", dependencies=[Dependency(type=kind, key="first")])
    assert world.slurm.processes[-1].submission.dependencies == (f"{kind}:1",)
    world.advance(400)
    dependencies = [Dependency(type=kind, key="first")]
    if outcome is NotAcceptable:
        with pytest.raises(NotAcceptable, match="can never start"):
            put(world, "later", dependencies=dependencies)
    else:
        put(world, "later", dependencies=dependencies)
        assert world.slurm.processes[-1].submission.dependencies == outcome


def test_every_deed_and_every_refusal_is_told_to_the_audit(world: World) -> None:
    put(world)
    put(world)
    with pytest.raises(JobsError):
        put(world, script="#!/bin/sh\nother\n")
    world.run(world.jobs.act(caller(), KEY, 1, JobAction.HOLD))
    world.run(world.jobs.delete(caller(), KEY))
    with pytest.raises(JobNotFound):
        world.run(world.jobs.delete(caller(), "none"))
    told = [(deed.act, deed.outcome, deed.job_id) for deed in world.deeds]
    assert told == [
        ("submit", "done", "1"),
        ("submit", "same", "1"),
        ("submit", "Conflict", None),
        ("hold", "done", "1"),
        ("cancel", "done", "1"),
        ("cancel", "tombstone", None),
    ]
    assert {deed.user for deed in world.deeds} == {"alice"}
    assert [deed.name for deed in world.deeds] == ["redbox"] * 5 + [""]


def test_what_is_asked_about_the_cluster_is_asked_of_slurm_once_in_a_while(world: World) -> None:
    first = world.run(world.jobs.partitions(caller()))
    world.slurm.down = True
    assert world.run(world.jobs.partitions(caller())) == first
    world.advance(20)
    assert world.run(world.jobs.partitions(caller())).stale_since is not None
    with pytest.raises(JobsBusy):
        world.run(world.jobs.cluster())
    world.slurm.down = False
    world.advance(2)  # a fault, too, is remembered for a moment: a hanging Slurm is not asked by each asker
    assert world.run(world.jobs.cluster()).name == "hpc1"
    assert world.run(world.jobs.whoami(caller())).slurm_accounts == ["physics"]


def test_many_who_ask_for_their_accounts_together_start_one_query(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    queried: list[str] = []

    async def associations(user: UnixUser) -> dict[str, tuple[str, ...]]:
        queried.append(user.name)
        await asyncio.sleep(0)
        return {"physics": ("normal",)}

    async def ask() -> None:
        await asyncio.gather(*(world.jobs.whoami(caller(user)) for user in (ALICE, BOB) for _ in range(10)))

    monkeypatch.setattr(world.slurm, "associations", associations)
    world.run(ask())
    assert sorted(queried) == ["alice", "bob"]
    world.advance(20)
    world.run(ask())
    assert sorted(queried) == ["alice", "alice", "bob", "bob"]


def test_the_log_of_a_job_in_doubt_is_to_be_asked_for_again_and_has_not_ended(world: World) -> None:
    world.slurm.manners.append(NEVER_ARRIVES)
    with pytest.raises(JobsBusy):
        put(world)
    assert world.run(world.jobs.locate(caller(), KEY)).key.key == KEY
    world.advance(80)
    with pytest.raises(JobsBusy, match="a PUT of it settles that"):
        world.run(world.jobs.locate(caller(), KEY))
    with pytest.raises(JobNotFound):
        world.run(world.jobs.locate(caller(BOB), KEY))


def test_a_check_submits_nothing(world: World) -> None:
    assert world.run(world.jobs.check(caller(), request())).valid
    assert world.slurm.ever == []


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (JobConflict("x"), "Conflict"),
        (Tombstoned("x"), "Tombstoned"),
        (JobsBusy("x"), "Busy"),
        (RateLimited("x"), "TooMany"),
        (RefusedBySlurm("x"), "RefusedBySlurm"),
        (JournalFull("x"), "JournalFull"),
    ],
)
def test_the_audit_log_keeps_its_names_of_refusals(error: JobsError, outcome: str) -> None:
    assert error.outcome == outcome
