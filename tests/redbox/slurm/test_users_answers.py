"""Answers of users' own agents, which may say anything: what none of them may cost the others."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from redbox.agents.protocol.answers import CommandResult
from redbox.core.domain import UnixUser
from redbox.core.workload_manager import (
    JobHandle,
    SubmitAccepted,
    SubmitUnknown,
    WorkloadManagerError,
    shows_all_jobs_of,
)
from redbox.slurm import per_user_queries
from redbox.slurm.command_runner import USER_LIMIT
from redbox.slurm.commands.sbatch import read_submit
from redbox.slurm.per_user_queries import PerUserQueries
from redbox.slurm.text.error_messages import classify, is_unavailable, words_of
from tests.redbox.slurm.factories import job
from tests.redbox.slurm.fakes import (
    ALICE,
    BOB,
    NOW,
    ScriptedAgents,
    SkippingClock,
    accounted,
    argv_option,
    done,
    queue,
)
from tests.redbox.slurm.test_job_queries import PRIVATE, ROW, bobs, manager

MANY = [{"ArrayTaskID": "0-4000000"}, {"ArrayTaskID": ",".join(["0-1"] * 1_000_001)}]


@pytest.mark.parametrize("fields", MANY)
async def test_where_jobs_are_private_a_short_row_of_countless_tasks_is_as_no_answer(
    fields: dict[str, str],
) -> None:
    """Each task that ended before it was split off is an object: 8 seconds, and 800 MB, of one such row."""
    hers = queue(job("7", State="CANCELLED", **fields))
    agents = ScriptedAgents({"scontrol show config": PRIVATE, "squeue": [hers, queue(bobs("8"))] * 2})
    asked = manager(agents)
    for look in (await asked.poll(users=[ALICE, BOB]), await asked.find_live(["7", "8"], users=[ALICE, BOB])):
        assert [observed.job_id for observed in look.jobs] == ["8"]
        assert not shows_all_jobs_of(ALICE.uid, look)


async def test_a_users_history_of_countless_tasks_is_as_no_answer() -> None:
    rows = [ROW | {"JobID": f"{n}_[0-400000]", "JobIDRaw": str(n), "State": "CANCELLED"} for n in range(3)]
    asked = manager(ScriptedAgents({"sacct --noheader": accounted(*rows)}))
    with pytest.raises(WorkloadManagerError, match="tasks"):
        await asked.history_of(ALICE, since=NOW)
    few = manager(
        ScriptedAgents(
            {
                "sacct --noheader": accounted(
                    ROW | {"JobID": "7_[0-99%4]", "State": "CANCELLED", "ExitCode": "0:0"}
                )
            }
        )
    )
    assert [len(observed.tasks) for observed in (await few.history_of(ALICE, since=NOW)).jobs] == [100]


async def test_a_users_json_may_be_shorter_than_a_users_list() -> None:
    """Parsed it takes 27 times as much memory, and seconds: 32 MiB of `[],` are 860 MiB."""
    agents = ScriptedAgents({"sacct --noheader": accounted(ROW), "sacct --json": done("{}")})
    await manager(agents).history_of(ALICE, since=NOW)
    limits = [
        limit for (_, argv, _, _), limit in zip(agents.calls, agents.limits, strict=True) if "--json" in argv
    ]
    assert limits == [USER_LIMIT]


async def test_exit_codes_that_are_too_long_for_one_call_are_read_in_several() -> None:
    rows = [ROW | {"JobID": f"7_{n}", "JobIDRaw": str(107 - n)} for n in range(100)]

    def codes_of(argv: list[str]) -> CommandResult:
        asked = argv_option(argv, "--jobs").split(",")
        code = {"return_code": {"set": True, "number": 255}}
        jobs = [
            {"job_id": 107 - int(name.partition("_")[2]), "time": {"end": 1795254180}, "exit_code": code}
            for name in asked
        ]
        return replace(done(json.dumps({"jobs": jobs})), truncated=len(jobs) > 30)

    agents = ScriptedAgents({"sacct --noheader": accounted(*rows), "sacct --json": codes_of})
    (array,) = (await manager(agents).history_of(ALICE, since=NOW)).jobs
    assert {task.exit_code for task in array.tasks} == {255}
    assert len(array.tasks) == 100
    assert len(agents.called("sacct --json")) == 7


async def test_while_exit_codes_cannot_be_read_the_cut_ones_are_not_taken_for_whole() -> None:
    down = done("", "sacct: error: Problem talking to the database: Connection refused\n", 1)
    agents = ScriptedAgents({"sacct --noheader": accounted(ROW), "sacct --json": down})
    with pytest.raises(WorkloadManagerError, match="Connection refused"):
        await manager(agents).history_of(ALICE, since=NOW)
    agents.answers["sacct --json"] = done("", "sacct: unrecognized option '--json'\n", 1)
    assert [seen.exit_code for seen in (await manager(agents).history_of(ALICE, since=NOW)).jobs] == [127]


@pytest.mark.parametrize(
    "field", ["UserID", "JobID", "RestartCnt", "SubmitTime", "HetJobOffset", "exit_code"]
)
async def test_where_jobs_are_private_nobodys_agent_ends_the_poll_of_the_others_by_a_number(
    field: str,
) -> None:
    """Python refuses to convert one of so many digits."""
    digits = "9" * 5000
    hers = queue(job("7", **{field: f"{digits}:0" if field == "exit_code" else digits}))
    agents = ScriptedAgents({"scontrol show config": PRIVATE, "squeue": [hers, queue(bobs("8"))]})
    poll = await manager(agents).poll(users=[ALICE, BOB])
    assert "8" in {observed.job_id for observed in poll.jobs}
    assert shows_all_jobs_of(BOB.uid, poll)


@pytest.mark.parametrize("field", ["Name", "Reason", "Partition", "NodeList", "WorkDir", "STDOUT"])
async def test_where_jobs_are_private_a_row_with_endless_text_is_as_no_answer(field: str) -> None:
    """It would be in the journal, and in the lists of operators, who read 64 MiB."""
    hers = queue(job("7", **{field: "x" * 1_000_000}))
    agents = ScriptedAgents({"scontrol show config": PRIVATE, "squeue": [hers, queue(bobs("8"))]})
    poll = await manager(agents).poll(users=[ALICE, BOB])
    assert [observed.job_id for observed in poll.jobs] == ["8"]
    assert not shows_all_jobs_of(ALICE.uid, poll)
    assert shows_all_jobs_of(BOB.uid, poll)


@pytest.mark.parametrize("odd", ["0", "4000000000", "99999999999999999999", "9" * 200_000])
async def test_an_id_that_no_job_can_have_keeps_no_answer_about_the_jobs_of_others_away(odd: str) -> None:
    """Squeue and sacct refuse the whole list: squeue 24.11 says `Invalid job id: 4000000000`, with code 1."""
    agents = ScriptedAgents(
        {"squeue": queue(job("7")), "sacct --noheader": accounted(ROW), "sacct --json": done("{}")}
    )
    asked = manager(agents)
    assert [shown.job_id for shown in (await asked.find_live([odd, "7"])).jobs] == ["7"]
    assert [shown.job_id for shown in (await asked.history([odd, "7"])).jobs] == ["7"]
    assert agents.called("squeue")[-1][-1] == "--jobs=7"
    assert agents.called("sacct --noheader")[-1][-1] == "--jobs=7"
    assert (await asked.find_live([odd])).jobs == ()
    assert (await asked.history([odd])).jobs == ()


async def test_an_answer_that_cannot_be_read_is_as_none_of_its_user_alone() -> None:
    async def query(user: UnixUser, deadline: float | None) -> str:
        del deadline
        if user == ALICE:
            raise RecursionError("JSON in JSON")
        return user.name

    queries = PerUserQueries(SkippingClock().monotonic)
    assert await queries.run([ALICE, BOB], query) == {BOB: "bob"}
    with pytest.raises(WorkloadManagerError, match="JSON in JSON"):
        await queries.run([ALICE], query)


async def test_a_user_whose_answers_never_end_keeps_those_of_the_others_away_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A history of countless failed jobs takes a command for each two hundred of them."""
    monkeypatch.setattr(per_user_queries, "IN_ALL_S", 0.05)

    async def query(user: UnixUser, deadline: float | None) -> str:
        del deadline
        if user == ALICE:
            await asyncio.Event().wait()
        return user.name

    queries = PerUserQueries(SkippingClock().monotonic)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await queries.run([ALICE, BOB], query)
    async with asyncio.timeout(30):
        assert await queries.run([ALICE, BOB], query) == {BOB: "bob"}


@pytest.mark.parametrize("said", [b"slurm_bufs_sendto(" * 58_000, b"slurm_bufs_sendto(" + b")" * 1_000_000])
def test_the_words_of_an_agent_are_read_at_their_beginning_and_end(said: bytes) -> None:
    """A mebibyte of them kept red-box from all others for minutes: time grew with the square."""
    words = words_of(said + b"\nsbatch: error: Socket timed out on send/recv operation\n")
    assert len(words) < 32 * 1024
    assert isinstance(classify(1, words.encode()), SubmitUnknown)
    assert not is_unavailable(words_of(said))


def test_of_countless_warnings_those_are_read_that_a_record_keeps() -> None:
    said = "".join(f"sbatch: warning: {number}\n" for number in range(1000))
    accepted = read_submit(0, b"7\n", said.encode())
    assert isinstance(accepted, SubmitAccepted)
    assert [warning[-3:] for warning in accepted.warnings] == [str(number) for number in range(992, 1000)]


async def test_what_a_caller_may_ask_for_at_any_time_is_short() -> None:
    """Each line of an answer takes microseconds, in which all callers wait."""
    agents = ScriptedAgents({"sstat": done(), "sacctmgr --noheader --parsable2": done()})
    asked = manager(agents)
    await asked.usage(ALICE, [JobHandle("7", "rb1.mark", "name", ALICE)])
    await asked.associations(ALICE)
    limits = {argv[0]: limit for (_, argv, _, _), limit in zip(agents.calls, agents.limits, strict=True)}
    assert limits["sstat"] <= 1024 * 1024
    assert limits["sacctmgr"] <= 1024 * 1024
