"""Facts and texts of the accounting are two queries: what one of them lacks or contradicts is unknown."""

from __future__ import annotations

import json
from dataclasses import replace

from redbox.agents.protocol.answers import CommandResult
from redbox.core.domain import JobShape
from redbox.slurm.commands import sacct
from tests.redbox.slurm.fakes import Answer, ScriptedAgents, accounted, argv_option, done
from tests.redbox.slurm.test_job_queries import ROW, manager

ENDED = ROW | {"ExitCode": "0:0", "State": "COMPLETED"}


def accounting(*rows: dict[str, str]) -> ScriptedAgents:
    """One that has these rows; of those with one job id all are shown for that id."""

    def answer(argv: list[str]) -> CommandResult:
        asked = set(argv_option(argv, "--jobs").split(","))
        return accounted(*(row for row in rows if {row["JobID"], row["JobIDRaw"]} & asked))(argv)

    return ScriptedAgents({"sacct --noheader": answer})


def text_queries(agents: ScriptedAgents) -> list[tuple[str, str]]:
    """The width of the last column, and the ids."""
    calls = [argv for argv in agents.called("sacct --noheader") if "--parsable2" not in argv]
    return [(argv_option(argv, "--format").rpartition("-")[2], argv_option(argv, "--jobs")) for argv in calls]


async def test_a_job_has_what_no_user_writes_from_one_query_and_texts_from_another() -> None:
    agents = accounting(ENDED | {"Account": "physics", "WorkDir": "/home/alice", "StdOut": "/home/alice/o"})
    history = await manager(agents).history(["7"])
    (job,) = history.jobs
    assert (job.state, job.mark, job.name, job.account) == ("COMPLETED", "rb1.mark", "name", "physics")
    assert (job.working_directory, job.stdout, job.shape) == ("/home/alice", "/home/alice/o", JobShape.PLAIN)
    assert history.complete
    arguments = [word for argv in agents.called("sacct --noheader") for word in argv]
    assert not [word for word in arguments if word.startswith("--delimiter")]
    assert text_queries(agents) == [("256", "7")]


async def test_texts_that_are_longer_than_their_columns_are_queried_again_for_their_jobs_alone() -> None:
    long = ENDED | {"JobID": "8", "JobIDRaw": "8", "WorkDir": "/" + "x" * 4000}
    agents = accounting(ENDED, long)
    jobs = (await manager(agents).history(["7", "8"])).jobs
    assert {job.job_id: len(job.working_directory) for job in jobs} == {"7": 0, "8": 4001}
    assert text_queries(agents) == [("256", "7,8"), ("4096", "8")]


async def test_a_job_of_too_many_runs_with_long_texts_has_short_ones_and_hides_no_others() -> None:
    """9,346 runs of one user took more than all output may, and the history of everybody failed."""
    long = {"WorkDir": "/" + "x" * 300, "JobName": "long"}
    times = [f"2026-11-20T00:00:{second:02}" for second in range(3)]
    runs = [ENDED | long | {"JobID": "8", "JobIDRaw": "8", "Submit": time} for time in times]
    others = [ENDED | long | {"JobID": job_id, "JobIDRaw": job_id} for job_id in ("7", "9")]
    agents = accounting(*runs, *others)
    whole = agents.answers["sacct --noheader"]
    assert callable(whole)

    def limited(argv: list[str]) -> CommandResult:
        answer = whole(argv)
        return replace(answer, truncated=len(answer.stdout) > 60_000)  # two runs

    agents.answers["sacct --noheader"] = limited
    history = await manager(agents).history(["7", "8", "9"])
    assert history.complete
    assert {job.job_id: len(job.working_directory) for job in history.jobs} == {"7": 301, "8": 0, "9": 301}
    assert {job.name for job in history.jobs} == {"long"}
    assert {job.mark for job in history.jobs} == {"rb1.mark"}


async def test_a_mark_far_behind_in_a_submit_line_is_found_where_comments_are_not_stored() -> None:
    line = f"sbatch --parsable --constraint={'x' * 300} --comment=rb1.old --export=ALL"
    agents = accounting(ENDED | {"Comment": "", "SubmitLine": line})
    (job,) = (await manager(agents).history(["7"])).jobs
    assert job.mark == "rb1.old"


async def test_texts_are_queried_for_one_task_of_an_array() -> None:
    waiting = ENDED | {"JobID": "7_[5-9]", "JobIDRaw": "7", "State": "PENDING"}
    tasks = [ENDED | {"JobID": f"7_{index}", "JobIDRaw": str(10 + index)} for index in range(3)]
    agents = ScriptedAgents({"sacct --noheader": accounted(waiting, *tasks)})
    (job,) = (await manager(agents).history(["7"])).jobs
    assert (job.mark, job.array_size, len(job.tasks)) == ("rb1.mark", 8, 3)
    assert text_queries(agents) == [("256", "7_2")]


async def test_a_job_whose_texts_the_accounting_does_not_show_makes_the_answer_incomplete() -> None:
    gone: list[Answer] = [accounted(ENDED), done(), done()]
    history = await manager(ScriptedAgents({"sacct --noheader": gone})).history(["7"])
    assert not history.complete
    assert [job.mark for job in history.jobs] == [""]


async def test_two_rows_for_one_run_are_none_and_make_the_answer_incomplete() -> None:
    failed = ENDED | {"State": "FAILED", "ExitCode": "7:0"}
    other = ENDED | {"JobID": "8", "JobIDRaw": "8"}
    history = await manager(accounting(ENDED, failed, other)).history(["7", "8"])
    assert [job.job_id for job in history.jobs] == ["8"]
    assert not history.complete


async def test_a_text_with_lines_of_others_is_only_a_text() -> None:
    columns = sacct.text_columns(sacct.TEXTS, 256)
    victim = ENDED | {"JobID": "8", "JobIDRaw": "8", "JobName": "bobs", "UID": "2002"}
    facts = "\n" + "|".join((victim | {"State": "FAILED"}).get(name, "") for name in sacct.FIELDS) + "\n"
    forged = victim | {"JobName": "forged"}
    record = accounted(forged)(sacct.texts_argv(columns, ["8"])).stdout.decode()
    for text in (facts, record, "x" * 20 + record, facts * 40):
        mine = ENDED | dict.fromkeys(("Account", "JobName", "WorkDir", "StdOut", "SubmitLine"), text)
        jobs = (await manager(accounting(mine, victim)).history(["7", "8"])).jobs
        assert [(job.job_id, job.state) for job in jobs] == [("7", "COMPLETED"), ("8", "COMPLETED")]
        assert jobs[1].name == "bobs"


def test_bytes_that_are_no_utf8_hide_no_exit_code() -> None:
    exit_code = {"return_code": {"set": True, "number": 200}}
    jobs = {"jobs": [{"job_id": 7, "time": {"end": 5}, "exit_code": exit_code, "name": "NAME"}]}
    output = json.dumps(jobs).encode().replace(b"NAME", b"\xff\xc3")
    assert sacct.read_exit_codes(output) == {("7", 5): 200}
