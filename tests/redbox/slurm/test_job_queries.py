"""Reading the queue and the accounting: what is complete, and who asks."""

from __future__ import annotations

import json

import pytest

from redbox.agents.errors import AgentUnavailable
from redbox.agents.protocol.answers import CommandResult
from redbox.core.workload_manager import FoundJobs, WorkloadManagerError, shows_all_jobs_of
from redbox.slurm.settings import SlurmSettings
from redbox.slurm.slurm_manager import SlurmManager
from tests.redbox.slurm.captured import output
from tests.redbox.slurm.factories import job
from tests.redbox.slurm.fakes import (
    ALICE,
    BOB,
    NOW,
    REDBOX,
    Answer,
    ScriptedAgents,
    SkippingClock,
    accounted,
    argv_option,
    done,
    late,
    queue,
)

PRIVATE = done(
    output("24.11", "config.txt").replace("PrivateData             = none", "PrivateData             = jobs")
)
NO_ACCOUNTING = done(
    output("24.11", "config.txt").replace("accounting_storage/slurmdbd", "accounting_storage/none")
)


def manager(agents: ScriptedAgents, **settings: object) -> SlurmManager:
    return SlurmManager(agents, REDBOX, SlurmSettings(**settings), clock=SkippingClock())


def askers(agents: ScriptedAgents, begin: str) -> list[str]:
    return [user for user, argv, _, _ in agents.calls if argv[0] == begin]


async def test_a_poll_is_one_squeue_of_red_boxs_own_account() -> None:
    agents = ScriptedAgents({"squeue": queue(job("7"), job("8"))})
    poll = await manager(agents).poll(users=[BOB, ALICE])
    assert [observed.job_id for observed in poll.jobs] == ["7", "8"]
    assert (poll.complete, poll.at) == (True, NOW)
    assert agents.called("squeue")[0][-1] == "--user=2001,2002"
    assert askers(agents, "squeue") == ["redbox"]
    environment = agents.calls[-1][3]
    assert environment.pop("SQUEUE_FORMAT2").startswith("JobID:~")
    assert environment == {"SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}


async def test_where_slurm_appends_to_output_files_is_known_from_the_first_poll_on() -> None:
    config = output("24.11", "config.txt").replace(
        "JobFileAppend           = 0", "JobFileAppend           = 1"
    )
    slurm = manager(ScriptedAgents({"scontrol show config": done(config), "squeue": queue()}))
    assert not slurm.appends()
    await slurm.poll()
    assert slurm.appends()


async def test_an_empty_queue_is_a_complete_answer() -> None:
    poll = await manager(ScriptedAgents({"squeue": queue()})).poll()
    assert (poll.jobs, poll.complete) == ((), True)


async def test_many_users_are_asked_for_as_all() -> None:
    agents = ScriptedAgents({"squeue": queue()})
    await manager(agents, users_at_most=1).poll(users=[ALICE, BOB])
    assert not [word for word in agents.called("squeue")[0] if word.startswith("--user")]


async def test_a_user_whom_squeue_does_not_know_does_not_hide_the_others() -> None:
    unknown = done("", "squeue: error: Invalid user: 54321\n")
    agents = ScriptedAgents({"squeue": [unknown, queue(job("7"))]})
    poll = await manager(agents).poll(users=[ALICE])
    assert [observed.job_id for observed in poll.jobs] == ["7"]


async def test_a_record_that_cannot_be_read_makes_the_answer_incomplete() -> None:
    poll = await manager(ScriptedAgents({"squeue": queue(job("7"), job("x"))})).poll()
    assert (poll.complete, poll.dropped, len(poll.jobs)) == (False, 1, 1)


async def test_an_answer_without_its_end_is_incomplete() -> None:
    poll = await manager(ScriptedAgents({"squeue": done("7~something")})).poll()
    assert not poll.complete


async def test_two_records_for_one_id_are_ambiguous() -> None:
    poll = await manager(ScriptedAgents({"squeue": queue(job("7"), job("7", UserID="2002"))})).poll()
    assert poll.jobs == ()
    assert poll.ambiguous == {"7"}


async def test_where_slurm_hides_jobs_each_users_own_agent_looks() -> None:
    agents = ScriptedAgents({"scontrol show config": PRIVATE, "squeue": [queue(job("7")), queue()]})
    poll = await manager(agents).poll(users=[BOB, ALICE])
    assert askers(agents, "squeue") == ["alice", "bob"]
    assert (poll.complete, len(poll.jobs)) == (True, 1)


async def test_where_slurm_hides_jobs_a_look_of_nobodys_own_means_nothing() -> None:
    agents = ScriptedAgents({"scontrol show config": PRIVATE, "squeue": queue()})
    assert not (await manager(agents).poll()).complete


@pytest.mark.parametrize(
    "answer", [late(), AgentUnavailable("busy"), done("", "Unable to contact slurm controller", 1)]
)
async def test_no_answer_is_a_fault_and_no_empty_queue(answer: object) -> None:
    with pytest.raises(WorkloadManagerError):
        await manager(ScriptedAgents({"squeue": answer})).poll()  # type: ignore[dict-item]


async def test_single_jobs_that_slurm_does_not_know_are_absent_and_a_fault_is_a_fault() -> None:
    gone = done("", "slurm_load_jobs error: Invalid job id specified\n", 1)
    assert await manager(ScriptedAgents({"squeue": gone})).find_live(["7"]) == FoundJobs((), complete=True)
    with pytest.raises(WorkloadManagerError):
        await manager(ScriptedAgents({"squeue": done("", "something else", 1)})).find_live(["7"])


async def test_without_accounting_there_is_no_history_and_nobody_asks() -> None:
    agents = ScriptedAgents({"scontrol show config": NO_ACCOUNTING})
    history = await manager(agents).history(["7"])
    assert (history.available, history.jobs) == (False, ())
    assert agents.called("sacct") == []


async def test_history_is_asked_for_a_thousand_ids_at_a_time() -> None:
    agents = ScriptedAgents({"sacct --noheader": done()})
    await manager(agents).history([str(job_id) for job_id in range(1, 2501)])
    asked = [argv[-1].removeprefix("--jobs=").split(",") for argv in agents.called("sacct --noheader")]
    assert [len(ids) for ids in asked] == [1000, 1000, 500]
    assert len(agents.called("sacct --helpformat")) == 1


async def test_a_users_history_is_asked_by_the_user() -> None:
    agents = ScriptedAgents({"sacct --noheader": done()})
    await manager(agents).history_of(ALICE, since=NOW)
    assert askers(agents, "sacct") == ["redbox", "alice"]  # the first asks for the names of the fields


async def test_where_slurmdbd_hides_jobs_the_users_of_the_last_look_are_asked() -> None:
    hidden = done("\nSlurmDBD configuration:\nPrivateData            = jobs\n")
    agents = ScriptedAgents({"sacctmgr": hidden, "squeue": queue(), "sacct --noheader": done()})
    manages = manager(agents)
    await manages.poll(users=[ALICE, BOB])
    await manages.history(["7"])
    assert askers(agents, "sacct")[1:] == ["alice", "bob"]


ROW = {
    "JobID": "7", "JobIDRaw": "7", "UID": "2001", "State": "FAILED", "ExitCode": "127:0", "Restarts": "0",
    "Submit": "1795254165", "Start": "1795254170", "End": "1795254180", "NodeList": "n1", "User": "alice",
    "JobName": "name", "Comment": "rb1.mark",
}  # fmt: skip
HIDDEN = done("\nSlurmDBD configuration:\nPrivateData            = jobs\n")


def whole_exit(code: int) -> CommandResult:
    exit_code = {"return_code": {"set": True, "number": code}}
    return done(json.dumps({"jobs": [{"job_id": 7, "time": {"end": 1795254180}, "exit_code": exit_code}]}))


async def test_where_slurmdbd_hides_jobs_one_silent_agent_leaves_the_others_their_history() -> None:
    agents = ScriptedAgents({"sacctmgr": HIDDEN, "sacct --noheader": [late(), accounted()]})
    history = await manager(agents).history(["7"], users=[ALICE, BOB])
    assert (shows_all_jobs_of(ALICE.uid, history), shows_all_jobs_of(BOB.uid, history)) == (False, True)
    silent = ScriptedAgents({"sacctmgr": HIDDEN, "sacct --noheader": [late(), late()]})
    with pytest.raises(WorkloadManagerError):
        await manager(silent).history(["7"], users=[ALICE, BOB])


async def test_where_slurmdbd_hides_jobs_nobodys_agent_is_believed_about_others() -> None:
    forged = accounted(ROW | {"State": "COMPLETED", "ExitCode": "0:0"}, ROW | {"JobID": "9", "JobIDRaw": "9"})
    agents = ScriptedAgents(
        {
            "sacctmgr": HIDDEN,
            "sacct --noheader": [accounted(ROW), accounted(ROW), forged, forged],
            "sacct --json": [whole_exit(127), whole_exit(0)],
        }
    )
    asked = manager(agents)
    history = await asked.history(["7"], users=[ALICE, BOB])
    assert [(observed.job_id, observed.uid, observed.exit_code) for observed in history.jobs] == [
        ("7", 2001, 127)
    ]
    assert (await asked.history_of(BOB, since=NOW)).jobs == ()


async def test_an_exit_code_that_sacct_cuts_is_whole_also_where_slurmdbd_hides_jobs() -> None:
    agents = ScriptedAgents(
        {"sacctmgr": HIDDEN, "sacct --noheader": accounted(ROW), "sacct --json": whole_exit(255)}
    )
    history = await manager(agents).history(["7"], users=[ALICE])
    assert [observed.exit_code for observed in history.jobs] == [255]
    assert askers(agents, "sacct") == ["redbox", *["alice"] * 3]  # the first asks for the fields' names


async def test_a_slurmdbd_that_is_down_is_a_fault_and_not_an_empty_history() -> None:
    down = done("", "sacct: error: Problem talking to the database: Connection refused\n", 1)
    with pytest.raises(WorkloadManagerError, match="Connection refused"):
        await manager(ScriptedAgents({"sacct --noheader": down})).history(["7"])


async def test_calls_are_told_with_their_duration_and_whether_they_were_answered() -> None:
    reported: list[tuple[str, bool]] = []
    agents = ScriptedAgents({"squeue": [late()]})
    manages = SlurmManager(
        agents, REDBOX, on_call=lambda command, _, answered: reported.append((command, answered))
    )
    with pytest.raises(WorkloadManagerError) as caught:
        await manages.poll()
    assert caught.value.timed_out
    assert reported[-1] == ("squeue", False)


async def test_what_slurm_conf_says_is_asked_twice_a_minute() -> None:
    agents, clock = ScriptedAgents({"squeue": queue()}), SkippingClock()
    manages = SlurmManager(agents, REDBOX, clock=clock)
    for moment in (0.0, 298.0, 301.0):
        clock.ahead = moment
        await manages.poll()
    assert len(agents.called("scontrol show config")) == 2


NO_NODES = done(output("24.11", "config.txt").replace("= none", "= nodes"))
DENIED = done("", "slurm_load_node: Access/permission denied\n", code=1)


async def test_where_nodes_are_hidden_the_cluster_is_known_all_the_same_and_says_so() -> None:
    agents = ScriptedAgents({"scontrol show config": NO_NODES, "sinfo": DENIED})
    cluster = await manager(agents).cluster()
    assert (cluster.name, cluster.nodes) == ("hpc1", {})
    assert any("AdminLevel=Operator" in warning for warning in cluster.warnings)
    with pytest.raises(WorkloadManagerError, match="AdminLevel=Operator"):
        await manager(agents).partitions()


@pytest.mark.parametrize(
    ("config", "sinfo"), [(NO_NODES, late()), (PRIVATE, DENIED)], ids=["silent", "not hidden"]
)
async def test_any_other_fault_over_nodes_is_a_fault(config: CommandResult, sinfo: CommandResult) -> None:
    agents = ScriptedAgents({"scontrol show config": config, "sinfo": sinfo})
    with pytest.raises(WorkloadManagerError, match="sinfo"):
        await manager(agents).cluster()


async def test_where_sinfo_has_no_flags_it_is_asked_for_its_one_word() -> None:
    """Before 21.08 it prints nothing for a field that it does not know: a node that is down looked usable."""

    def sinfo(argv: list[str]) -> CommandResult:
        known = {"NodeList": "n1", "CPUsState": "0/0/4/4", "Memory": "4000", "StateLong": "down*"}
        fields = [word.partition(":") for word in argv_option(argv, "--Format").split(",")]
        return done("".join(known.get(name, "") + end for name, _, end in fields))

    agents = ScriptedAgents({"sinfo": sinfo})
    manages = manager(agents)
    for calls in (2, 3):
        assert (await manages.cluster()).nodes == {"down": 1}
        assert len(agents.called("sinfo")) == calls


async def test_where_jobs_are_private_one_users_silent_agent_hides_nobody_elses() -> None:
    agents = ScriptedAgents({"scontrol show config": PRIVATE, "squeue": [late(), queue(bobs("8"))]})
    poll = await manager(agents).poll(users=[ALICE, BOB])
    assert ([observed.job_id for observed in poll.jobs], poll.complete) == (["8"], False)
    silent = ScriptedAgents({"scontrol show config": PRIVATE, "squeue": [late(), late()]})
    with pytest.raises(WorkloadManagerError):
        await manager(silent).poll(users=[ALICE, BOB])


async def test_where_jobs_are_private_the_look_at_the_others_jobs_is_whole_without_a_silent_agent() -> None:
    agents = ScriptedAgents({"scontrol show config": PRIVATE, "squeue": [late(), queue()]})
    poll = await manager(agents).poll(users=[ALICE, BOB])
    assert (shows_all_jobs_of(ALICE.uid, poll), shows_all_jobs_of(BOB.uid, poll)) == (False, True)
    agents = ScriptedAgents({"scontrol show config": PRIVATE, "squeue": [late(), queue(bobs("8"))]})
    found = await manager(agents).find_live(["8"], users=[ALICE, BOB])
    assert [observed.job_id for observed in found.jobs] == ["8"]
    assert (shows_all_jobs_of(ALICE.uid, found), shows_all_jobs_of(BOB.uid, found)) == (False, True)


def bobs(job_id: str, **fields: str) -> dict[str, str]:
    return job(job_id, UserID="2002", UserName="bob", **fields)


async def test_where_jobs_are_private_nobodys_agent_is_believed_about_others() -> None:
    hers, forged = queue(job("7")), queue(job("7", State="FAILED"), job("99", Comment="rb1.other"))
    for look in ("poll", "find"):
        agents = ScriptedAgents({"scontrol show config": PRIVATE, "squeue": [hers, forged]})
        asked = manager(agents)
        shown = await (
            asked.poll(users=[ALICE, BOB]) if look == "poll" else asked.find_live(["7"], users=[ALICE, BOB])
        )
        assert [(observed.job_id, observed.uid, observed.state) for observed in shown.jobs] == [
            ("7", 2001, "PENDING")
        ]
        assert shown.complete


async def test_where_jobs_are_private_nobodys_agent_makes_anothers_job_ambiguous() -> None:
    twice = queue(bobs("7"), bobs("7", State="FAILED"), bobs("12", ArrayJobID="8", ArrayTaskID="3"))
    agents = ScriptedAgents({"scontrol show config": PRIVATE, "squeue": [queue(job("7"), job("8")), twice]})
    poll = await manager(agents).poll(users=[ALICE, BOB])
    assert [observed.job_id for observed in poll.jobs if observed.uid == ALICE.uid] == ["7", "8"]
    assert poll.ambiguous == frozenset()
    assert (shows_all_jobs_of(ALICE.uid, poll), shows_all_jobs_of(BOB.uid, poll)) == (True, False)


def deadlines_of_looks(agents: ScriptedAgents) -> list[float]:
    """Of each squeue, in turn."""
    calls = zip(agents.calls, agents.deadlines, strict=True)
    return [deadline for (_, argv, _, _), deadline in calls if argv[0] == "squeue"]


async def test_nobody_waits_long_for_an_agent_that_was_silent_the_last_time() -> None:
    observed = queue(job("8"))
    answers: list[Answer] = [late(), observed, late(), observed, queue(), observed, queue(), queue()]
    agents = ScriptedAgents({"scontrol show config": PRIVATE, "squeue": answers})
    manages = manager(agents)
    for _ in range(4):
        await manages.poll(users=[ALICE, BOB])
    looks = deadlines_of_looks(agents)
    patience, normal = min(looks), max(looks)
    assert patience < normal
    assert looks == [normal, normal, patience, normal, patience, normal, normal, normal]


async def test_where_nobody_answers_each_has_as_long_as_ever() -> None:
    agents = ScriptedAgents({"scontrol show config": PRIVATE, "squeue": late()})
    manages = manager(agents)
    for _ in range(3):
        with pytest.raises(WorkloadManagerError):
            await manages.poll(users=[ALICE, BOB])
    looks = deadlines_of_looks(agents)
    assert len(looks) == 6
    assert len(set(looks)) == 1


async def probes(*answers: CommandResult) -> list[int | None]:
    """One probe after the other at jobs 7 and 9."""
    manages = manager(ScriptedAgents({"squeue --only-job-state": list(answers)}))
    return [await manages.probe(["7", "9"]) for _ in answers]


async def test_a_glance_changes_with_the_states_of_the_jobs_that_it_is_for_and_of_no_others() -> None:
    before, ordered, stranger, ended, task = await probes(
        done("7 7 RUNNING\n9 9 PENDING\n8 8 RUNNING\n"),
        done("9 9 PENDING\n8 8 RUNNING\n7 7 RUNNING\n"),
        done("7 7 RUNNING\n9 9 PENDING\n8 8 FAILED\n"),
        done("7 7 COMPLETED\n9 9 PENDING\n8 8 RUNNING\n"),
        done("7 7 RUNNING\n9 9 PENDING\n8 8 RUNNING\n9 10 RUNNING\n"),
    )
    assert before == ordered == stranger
    assert len({before, ended, task}) == 3


async def test_an_squeue_that_cannot_glance_is_asked_once() -> None:
    words = "squeue: unrecognized option '--only-job-state'\nTry \"squeue --help\" for more information\n"
    agents = ScriptedAgents({"squeue --only-job-state": [done("", words, 1)]})
    manages = manager(agents)
    assert [await manages.probe(["7"]) for _ in range(2)] == [None, None]


async def test_where_jobs_are_private_no_glance_is_cast() -> None:
    assert await manager(ScriptedAgents({"scontrol show config": PRIVATE})).probe(["7"]) is None


async def test_a_glance_that_fails_is_a_fault() -> None:
    down = done("", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n", 1)
    with pytest.raises(WorkloadManagerError, match="Unable to contact"):
        await probes(down)
