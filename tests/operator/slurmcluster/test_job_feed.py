"""What is known of a red-box's jobs, over TLS from a red-box that is told what its jobs are."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from redbox_api.errors import Busy, NoSuchJob
from redbox_api.feed import RowKey
from redbox_api.limits.answer_limits import AnswerLimits
from redbox_api.models import ArrayTask, Job, OwnerRef, Phase, Problem
from redbox_operator.slurmcluster import link_limits
from redbox_operator.slurmcluster.cluster_status import describe
from redbox_operator.slurmcluster.job_feed import RedboxUnavailable
from redbox_shared.job_end import CONTRADICTION
from tests.bench.scripted_redbox import ScriptedRedbox
from tests.operator.factories import slurm_endpoint
from tests.operator.slurmcluster.following import Following, following, job, row_key
from tests.ports import free_port


@pytest.fixture
def redbox() -> ScriptedRedbox:
    return ScriptedRedbox()


async def test_rows_come_with_the_list_and_change_with_the_watch(
    redbox: ScriptedRedbox, tmp_path: Path
) -> None:
    redbox.put(job("one", Phase.PENDING))
    async with redbox.serving(tmp_path), following(redbox) as seen:
        assert seen.link.rows[row_key("one")].phase is Phase.PENDING
        redbox.put(job("one", Phase.RUNNING))
        await seen.until(lambda: seen.link.rows[row_key("one")].phase is Phase.RUNNING)
        assert seen.changed == ["one", "one"]


async def test_a_flood_of_changes_of_a_slurmendpoint_has_its_slurmjob_reconciled_a_few_times(
    redbox: ScriptedRedbox, tmp_path: Path
) -> None:
    at_once, every_s = link_limits.OF_ENDPOINTS.changes_of_a_job or (0, 0.0)
    loop = asyncio.get_running_loop()
    redbox.put(job("one", Phase.PENDING))
    began = loop.time()
    async with redbox.serving(tmp_path), following(redbox, slurm_endpoint()) as seen:
        for number in range(200):
            redbox.put(job("one", Phase.RUNNING, reason=str(number)))
            redbox.put(job("one", Phase.PENDING, reason=str(number)))
        redbox.put(job("one", Phase.RUNNING, reason="last"))
        await seen.until(lambda: (row := seen.link.row(row_key("one"))) and row.reason == "last")
        passed_on = len(seen.changed)
        assert passed_on <= at_once + (loop.time() - began) / every_s + 1
        await seen.until(lambda: len(seen.changed) > passed_on)  # the last change is not lost


async def test_a_slow_slurm_makes_no_red_box_unreachable(redbox: ScriptedRedbox, tmp_path: Path) -> None:
    """Its answers about the cluster, and to a hold, wait for Slurm; the watch goes on all the while."""
    redbox.slurm_answers.clear()
    async with redbox.serving(tmp_path), following(redbox, answer_s=2) as seen:
        turns = len(seen.turns)
        with pytest.raises(RedboxUnavailable) as away:
            await seen.link.describe()
        assert not away.value.until_return
        assert seen.link.reachable
        redbox.slurm_answers.set()
        assert (await seen.link.describe()).name == "scripted"
        assert len(seen.turns) == turns


async def test_a_call_that_is_one_too_many_is_sent_again_after_red_boxs_pause(
    redbox: ScriptedRedbox, tmp_path: Path
) -> None:
    """So ten thousand deletions are delayed and not lost; red-box is there all the while."""

    async def too_many(*_: object, **__: object) -> list[Job]:
        problem = Problem(type="t", title="Too many requests", status=429, detail="later", retry=True)
        raise Busy(problem, retry_after=45.0)

    async with redbox.serving(tmp_path), following(redbox) as seen:
        seen.link.client.cancel_job = too_many  # type: ignore[method-assign]
        with pytest.raises(RedboxUnavailable, match="Too many requests: later") as away:
            await seen.link.cancel(row_key("one"), all_attempts=True)
        assert (away.value.until_return, away.value.after_s) == (False, 45.0)
        assert seen.link.reachable


async def test_calls_of_one_namespace_that_last_leave_room_for_those_of_others(
    redbox: ScriptedRedbox, tmp_path: Path
) -> None:
    """Its users can stop the commands of theirs that a hold waits for."""
    never, cancelled = asyncio.Event(), job("two", Phase.CANCELLED)

    async def stopped(*_: object, **__: object) -> Job:
        await never.wait()
        return cancelled

    async def cancels(*_: object, **__: object) -> list[Job]:
        return [cancelled]

    async with redbox.serving(tmp_path), following(redbox) as seen, asyncio.TaskGroup() as group:
        seen.link.client.act_on_job = stopped  # type: ignore[method-assign]
        seen.link.client.cancel_job = cancels  # type: ignore[method-assign]
        held = [group.create_task(seen.link.act(row_key("one"), "hold")) for _ in range(2)]
        await asyncio.sleep(0)
        for _ in range(10):
            with pytest.raises(RedboxUnavailable, match="of its namespace are in progress") as refused:
                await seen.link.act(row_key("one"), "hold")
            assert not refused.value.until_return
        others = RowKey("two", 1, "barn", "default")
        assert await seen.link.cancel(others, all_attempts=True) == [cancelled]
        assert (await seen.link.describe()).name == "scripted"
        never.set()
        assert await asyncio.gather(*held) == [cancelled] * 2
        assert await seen.link.act(row_key("one"), "hold") == cancelled


async def test_the_operators_roles_are_part_of_a_description(redbox: ScriptedRedbox, tmp_path: Path) -> None:
    async with redbox.serving(tmp_path), following(redbox) as seen:
        cluster, roles = await describe(seen.link)
        assert cluster is not None
        assert (cluster.name, roles) == ("scripted", ["operator", "reader"])


async def test_a_red_box_that_does_not_name_the_roles_still_describes_itself(
    redbox: ScriptedRedbox, tmp_path: Path
) -> None:
    redbox.roles = None
    async with redbox.serving(tmp_path), following(redbox) as seen:
        cluster, roles = await describe(seen.link)
        assert cluster is not None
        assert (cluster.name, roles) == ("scripted", None)
        assert seen.link.reachable


async def test_an_end_that_was_missed_is_asked_for_and_known(redbox: ScriptedRedbox, tmp_path: Path) -> None:
    redbox.put(job("ended", Phase.SUCCEEDED))
    async with redbox.serving(tmp_path), following(redbox) as seen:
        assert seen.link.row(row_key("ended")) is None
        found = await seen.link.find(row_key("ended"))
        assert found is not None
        assert found.phase is Phase.SUCCEEDED
        assert await seen.link.find(row_key("nobody's")) is None
        assert seen.link.lag.rows() == {row_key("ended")}


async def test_an_end_that_contradicts_slurms_state_is_none(redbox: ScriptedRedbox, tmp_path: Path) -> None:
    redbox.put(job("one", Phase.RUNNING, state="RUNNING"))
    redbox.put(job("two", Phase.SUCCEEDED, state="RUNNING"))
    async with redbox.serving(tmp_path), following(redbox) as seen:
        redbox.put(job("one", Phase.CANCELLED, state="PENDING"))
        await seen.until(lambda: (row := seen.link.row(row_key("one"))) and row.state == "PENDING")
        watched, asked = seen.link.row(row_key("one")), await seen.link.find(row_key("two"))
        assert watched is not None
        assert asked is not None
        assert (watched.phase, asked.phase) == (Phase.PENDING, Phase.RUNNING)
        assert {watched.reason, asked.reason} == {CONTRADICTION}
        assert "its phase is Succeeded, but its state in Slurm is RUNNING" in (asked.message or "")


async def test_the_missed_end_of_a_large_array_is_read_without_its_tasks(
    redbox: ScriptedRedbox, tmp_path: Path
) -> None:
    """With them it is longer than the red-box of a SlurmEndpoint may answer, and would count as away."""
    tasks = [
        ArrayTask(index=n, job_id=f"7_{n}", phase=Phase.SUCCEEDED, state="COMPLETED") for n in range(2000)
    ]
    redbox.put(job("one", Phase.SUCCEEDED, tasks=tasks))
    async with redbox.serving(tmp_path), following(redbox, slurm_endpoint()) as seen:
        seen.link.client.limits = AnswerLimits(longest=64 * 1024)
        found = await seen.link.find(row_key("one"))
        assert found is not None
        assert found.phase is Phase.SUCCEEDED
        assert seen.link.reachable


async def test_what_is_known_to_be_missing_is_not_asked_for_again_until_a_watch_brings_it(
    redbox: ScriptedRedbox, tmp_path: Path
) -> None:
    async with redbox.serving(tmp_path), following(redbox) as seen:
        seen.link.presume_absent(row_key("new"))
        redbox.rows["new"] = job("new", Phase.PENDING)
        assert await seen.link.find(row_key("new")) is None
        redbox.put(job("new", Phase.RUNNING))
        await seen.until(lambda: seen.link.row(row_key("new")))


@pytest.mark.parametrize(
    "stranger",
    [
        (404, "<html>default backend - 404</html>"),
        (404, '{"type":"about:blank","title":"Not Found","status":404,"detail":"no route"}'),
        (200, "<html>Sign in</html>\n"),
    ],
)
async def test_what_answers_in_its_place_says_nothing_of_its_jobs(
    redbox: ScriptedRedbox, tmp_path: Path, stranger: tuple[int, str]
) -> None:
    redbox.put(job("one", Phase.RUNNING))
    async with redbox.serving(tmp_path), following(redbox) as seen:
        redbox.stranger = stranger
        with pytest.raises(RedboxUnavailable, match="did not come from red-box"):
            await seen.link.cancel(row_key("one"), all_attempts=True)
        assert seen.turns == [True, False]
        redbox.stranger = None
        await seen.until(lambda: seen.link.reachable)
        redbox.put(job("one", Phase.SUSPENDED))
        await seen.until(lambda: seen.link.rows[row_key("one")].phase is Phase.SUSPENDED)
        (cancelled,) = await seen.link.cancel(row_key("one"), all_attempts=True)
        assert cancelled.phase is Phase.CANCELLED


async def test_a_page_in_the_place_of_a_watch_ends_no_link(redbox: ScriptedRedbox, tmp_path: Path) -> None:
    async with redbox.serving(tmp_path):
        redbox.put(job("one", Phase.RUNNING))
        redbox.stranger = (200, "<html>Sign in</html>\n")
        made = Following(redbox)
        made.link._feed._revision = "e.0"  # it had listed before
        running = asyncio.create_task(made.link.run())
        await made.until(lambda: made.link.reachable is False)
        redbox.stranger = None
        await made.until(lambda: made.link.reachable or running.done())
        assert not running.done()
        running.cancel()
        await asyncio.wait({running})


async def test_its_going_and_its_return_are_told_once_each(redbox: ScriptedRedbox, tmp_path: Path) -> None:
    redbox.put(job("one", Phase.RUNNING))
    port = free_port()
    async with redbox.serving(tmp_path, port=port):
        made = Following(redbox)
        running = asyncio.create_task(made.link.run())
        await made.until(lambda: made.link.synced)
    await made.until(lambda: made.link.reachable is False)
    with pytest.raises(RedboxUnavailable) as away:
        await made.link.cancel(row_key("one"), all_attempts=True)
    assert away.value.until_return
    async with redbox.serving(tmp_path, port=port):
        await made.until(lambda: made.link.reachable)
        assert made.turns == [True, False, True]
        (cancelled,) = await made.link.cancel(row_key("one"), all_attempts=True)
        assert cancelled.phase is Phase.CANCELLED
        with pytest.raises(NoSuchJob):
            await made.link.cancel(row_key("nobody's"), all_attempts=True)
        running.cancel()
        await asyncio.wait({running})


async def test_nonsense_in_a_watch_is_told_and_ends_nothing(redbox: ScriptedRedbox, tmp_path: Path) -> None:
    """A proxy in between, half a line before its end, or a newer red-box."""
    redbox.put(job("one", Phase.RUNNING))
    async with redbox.serving(tmp_path), following(redbox) as seen:
        redbox.nonsense = b'{"type": "jo'
        redbox.put(job("one", Phase.RUNNING, reason="nonsense comes before this"))
        await seen.until(lambda: seen.link.reachable is False)
        assert "WatchEvent" in seen.link.trouble
        redbox.nonsense = b""
        await seen.until(lambda: seen.link.reachable)
        redbox.put(job("one", Phase.SUCCEEDED))
        await seen.until(lambda: seen.link.rows[row_key("one")].phase is Phase.SUCCEEDED)


async def test_a_slurmendpoints_red_box_reports_on_slurmjobs_of_its_namespace_only(
    redbox: ScriptedRedbox, tmp_path: Path
) -> None:
    """It may be anything that a user of that namespace runs, and may claim any owner and any key."""
    foreign = OwnerRef(cluster="kube", namespace="barn", account="default")
    redbox.put(job("one", Phase.RUNNING))
    redbox.put(job("other", Phase.RUNNING))  # a SlurmJob of another namespace
    redbox.put(job("nobody", Phase.RUNNING))
    redbox.put(job("two", Phase.RUNNING).model_copy(update={"owner": foreign}))
    redbox.put(job("three", Phase.RUNNING, message=noise(100_000)))
    async with redbox.serving(tmp_path), following(redbox, slurm_endpoint()) as seen:
        assert list(seen.link.rows) == [row_key("one")]
        assert seen.changed == ["one"]
        seen.link._limits = replace(seen.link._limits, rows=1)
        redbox.put(job("three", Phase.RUNNING))
        redbox.put(job("one", Phase.SUSPENDED))
        await seen.until(lambda: seen.link.rows[row_key("one")].phase is Phase.SUSPENDED)
        assert list(seen.link.rows) == [row_key("one")]


async def test_of_an_array_that_is_asked_for_no_tasks_are_kept(
    redbox: ScriptedRedbox, tmp_path: Path
) -> None:
    """Of an ended job, which is in no list."""
    tasks = [ArrayTask(index=1, job_id="7_1", phase=Phase.SUCCEEDED, state="COMPLETED")]
    redbox.put(job("one", Phase.SUCCEEDED).model_copy(update={"tasks": tasks}))
    async with redbox.serving(tmp_path), following(redbox, slurm_endpoint()) as seen:
        found = await seen.link.find(row_key("one"))
        assert found is not None
        assert found.tasks is None


async def test_a_row_that_packs_well_is_as_large_as_it_is(
    redbox: ScriptedRedbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packed, a mebibyte of one letter has a kibibyte; each look at the SlurmJob would unpack it."""
    monkeypatch.setattr(link_limits, "OF_ENDPOINTS", replace(link_limits.OF_ENDPOINTS, bytes=40_000))
    redbox.put(job("one", Phase.RUNNING, message="x" * 1_000_000))
    async with redbox.serving(tmp_path), following(redbox, slurm_endpoint()) as seen:
        with pytest.raises(RedboxUnavailable, match="larger than is kept"):
            await seen.link.find(row_key("one"))
        redbox.put(job("two", Phase.RUNNING, message="x" * 30_000))
        await seen.until(lambda: row_key("two") in seen.link.rows)
        for attempt in range(2, 99):  # of a SlurmJob of its namespace it may report attempts without end
            redbox.put(
                job("two", Phase.RUNNING, message="x" * 30_000).model_copy(update={"attempt": attempt})
            )
        redbox.put(job("three", Phase.RUNNING))
        await seen.until(lambda: row_key("three") in seen.link.rows)
        assert set(seen.link.rows) == {row_key("two"), row_key("three")}
        seen.link.forget(row_key("two"))
        redbox.put(job("one", Phase.RUNNING, message="x" * 30_000))
        await seen.until(lambda: row_key("one") in seen.link.rows)


async def test_a_list_without_an_end_is_no_list(
    redbox: ScriptedRedbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_limits, "OF_ENDPOINTS", replace(link_limits.OF_ENDPOINTS, listed=3))
    for number in range(4):
        redbox.put(job(f"strange-{number}", Phase.RUNNING))
    async with redbox.serving(tmp_path):
        seen = Following(redbox, slurm_endpoint())
        running = asyncio.create_task(seen.link.run())
        try:
            await seen.until(lambda: "more than 3 jobs" in seen.link.trouble)
            assert not seen.link.synced
        finally:
            running.cancel()
            await asyncio.wait({running})


async def test_of_what_a_bookmark_says_no_more_is_kept_than_a_time(
    redbox: ScriptedRedbox, tmp_path: Path
) -> None:
    said = {"type": "bookmark", "revision": "e.0", "message": "x" * 1_000_000}
    redbox.nonsense = json.dumps(said).encode() + b"\n"
    async with redbox.serving(tmp_path), following(redbox, slurm_endpoint()) as seen:
        await seen.until(lambda: seen.link.bookmark_message is not None)
        assert len(seen.link.bookmark_message or "") < 1000


def noise(length: int) -> str:
    return random.Random(1).randbytes(length).hex()  # does not compress
