"""Local jobs, run for real."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import signal
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from redbox.agents.program.command_records import process_start
from redbox.core.domain import UnixUser
from redbox.core.observations import Observation
from redbox.core.workload_manager import (
    FoundJobs,
    JobAction,
    JobHandle,
    Submission,
    SubmitAccepted,
    SubmitRejected,
    SubmitUnavailable,
    WorkloadManager,
)
from redbox.local import job_store
from redbox.local.job_store import LocalJobStore
from redbox.local.local_manager import LocalManager
from redbox.local.settings import LocalSettings
from redbox.slurm.text.states import has_ended
from redbox_api.models import ExpectedStart, JobRequest

ME = UnixUser("me", os.geteuid())
OTHER = UnixUser("other", os.geteuid() + 1)
POD = {"name": "p", "namespace": "n", "uid": "u", "containers": [{"name": "c", "image": "docker://x"}]}
SLEEP = "#!/bin/sh\nexec sleep 600\n"


@pytest.fixture
def settings(tmp_path: Path) -> LocalSettings:
    return LocalSettings(directory=tmp_path / "state", slots=2)


@pytest.fixture
def manager(settings: LocalSettings) -> LocalManager:
    return LocalManager(settings)


def submission(tmp_path: Path, batch: str = "#!/bin/sh\n", **fields: object) -> Submission:
    kind = {} if "pod" in fields else {"batch": batch}
    request = JobRequest.model_validate({**kind, **fields})
    return Submission(request, f"rb1.{secrets.token_hex(4)}", "name", str(tmp_path / "work"))


async def submit(manager: LocalManager, asked: Submission) -> JobHandle:
    outcome = await manager.submit(ME, asked)
    assert isinstance(outcome, SubmitAccepted), outcome
    return JobHandle(outcome.job_id, asked.mark, "name", ME)


async def until(manager: LocalManager, handle: JobHandle, what: Callable[[Observation], bool]) -> Observation:
    async with asyncio.timeout(60):
        while True:
            poll = await manager.poll()
            found = next(job for job in poll.jobs if job.job_id == handle.job_id)
            if what(found):
                return found
            await asyncio.sleep(0.02)


async def ended(manager: LocalManager, handle: JobHandle) -> Observation:
    return await until(manager, handle, lambda job: has_ended(job.state))


async def running(manager: LocalManager, handle: JobHandle) -> Observation:
    return await until(manager, handle, lambda job: job.state == "RUNNING")


def test_it_is_a_workload_manager(manager: LocalManager) -> None:
    seam: WorkloadManager = manager
    assert seam.name == "local"


async def test_a_script_runs_with_its_env_in_its_directory_with_its_outputs_apart(
    manager: LocalManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = "a,b\nc'\"$(id)ü"
    script = '#!/bin/sh\nprintf %s "$VALUE"\npwd >&2\n[ -z "$SECRET" ] && exit 3\n'
    monkeypatch.setenv("SECRET", "of the server")
    handle = await submit(manager, submission(tmp_path, script, env={"VALUE": value}))
    end = await ended(manager, handle)
    assert (end.state, end.exit_code, end.signal) == ("FAILED", 3, None)
    assert (tmp_path / "work" / f"local-{handle.job_id}.out").read_text() == value
    assert (tmp_path / "work" / f"local-{handle.job_id}.err").read_text() == f"{tmp_path}/work\n"
    assert end.started_at is not None
    assert end.ended_at is not None


async def test_a_script_has_its_arguments_as_they_were_given(manager: LocalManager, tmp_path: Path) -> None:
    script = '#!/bin/sh\nprintf "%s|" "$@"\n'
    handle = await submit(manager, submission(tmp_path, script, arguments=["a b", "$HOME", "", "--x"]))
    await ended(manager, handle)
    assert (tmp_path / "work" / f"local-{handle.job_id}.out").read_text() == "a b|$HOME||--x|"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("exit 0", ("COMPLETED", 0, None)),
        ("exit 200", ("FAILED", 200, None)),
        ("kill -9 $$", ("FAILED", None, 9)),
    ],
)
async def test_each_end_is_told(
    manager: LocalManager, tmp_path: Path, script: str, expected: tuple[str, int | None, int | None]
) -> None:
    end = await ended(manager, await submit(manager, submission(tmp_path, f"#!/bin/sh\n{script}\n")))
    assert (end.state, end.exit_code, end.signal) == expected


async def test_a_missing_interpreter_is_a_failure_with_a_reason(
    manager: LocalManager, tmp_path: Path
) -> None:
    end = await ended(manager, await submit(manager, submission(tmp_path, "#!/no/such/shell\n")))
    assert end.state == "FAILED"
    assert "No such file" in end.reason


async def test_a_job_over_its_time_limit_ends_with_its_children(
    manager: LocalManager, tmp_path: Path
) -> None:
    script = "#!/bin/sh\nsleep 600 & echo $!\nwait\n"
    printed = ""
    while not printed:  # it may end before its script has begun
        handle = await submit(manager, submission(tmp_path, script, resources={"time": "0:01"}))
        end = await ended(manager, handle)
        assert (end.state, end.exit_code) == ("TIMEOUT", None)
        printed = (tmp_path / "work" / f"local-{handle.job_id}.out").read_text()
    async with asyncio.timeout(60):
        while process_start(int(printed)):  # noqa: ASYNC110 (a killed process sets no event)
            await asyncio.sleep(0.02)


async def test_a_running_job_is_cancelled_and_a_waiting_one_never_starts(
    manager: LocalManager, tmp_path: Path
) -> None:
    first, second, third = [await submit(manager, submission(tmp_path, SLEEP)) for _ in range(3)]
    await running(manager, first)
    await running(manager, second)
    waiting = await until(manager, third, lambda _: True)
    assert (waiting.state, waiting.reason) == ("PENDING", "Resources")
    assert (await manager.act(third, JobAction.CANCEL)).done
    cancelled = await ended(manager, third)
    assert (cancelled.state, cancelled.started_at) == ("CANCELLED", None)
    for handle in (first, second):
        assert (await manager.act(handle, JobAction.CANCEL)).done
        assert (await ended(manager, handle)).state == "CANCELLED"
    assert (await manager.act(first, JobAction.CANCEL)).done  # it had ended


async def test_a_held_job_waits_until_it_is_released(manager: LocalManager, tmp_path: Path) -> None:
    handle = await submit(manager, submission(tmp_path, hold=True))
    held = await until(manager, handle, lambda _: True)
    assert (held.state, held.reason) == ("PENDING", "JobHeldUser")
    assert await manager.expected_start(handle) == ExpectedStart(reason="JobHeldUser")
    assert (await manager.act(handle, JobAction.RELEASE)).done
    assert (await ended(manager, handle)).state == "COMPLETED"
    assert await manager.expected_start(handle) is None


async def test_a_signal_reaches_the_script(manager: LocalManager, tmp_path: Path) -> None:
    script = "#!/bin/sh\ntrap 'exit 7' USR1\necho ready\nwhile :; do sleep 0.05; done\n"
    handle = await submit(manager, submission(tmp_path, script))
    output = tmp_path / "work" / f"local-{handle.job_id}.out"
    await until(manager, handle, lambda job: job.state == "RUNNING" and output.read_text() == "ready\n")
    assert (await manager.act(handle, JobAction.SIGNAL, signal="SIGUSR1")).done
    assert (await ended(manager, handle)).exit_code == 7
    assert not (await manager.act(handle, JobAction.REQUEUE)).done


async def test_a_stranger_is_not_touched(manager: LocalManager, tmp_path: Path) -> None:
    handle = await submit(manager, submission(tmp_path, hold=True))
    for wrong in (
        JobHandle(handle.job_id, "rb1.other", "name", ME),
        JobHandle("99", handle.mark, "name", ME),
        JobHandle(handle.job_id, handle.mark, "name", OTHER),
        JobHandle("../1", handle.mark, "name", ME),
    ):
        outcome = await manager.act(wrong, JobAction.CANCEL)
        assert (outcome.done, outcome.gone) == (False, True)
        assert await manager.expected_start(wrong) is None


async def test_jobs_outlive_the_server(settings: LocalSettings, tmp_path: Path) -> None:
    asked = submission(tmp_path, "#!/bin/sh\nread -r _ <go\nexit 5\n")
    (tmp_path / "work").mkdir()
    os.mkfifo(tmp_path / "work" / "go")
    first = LocalManager(settings)
    handle = await submit(first, asked)
    await running(first, handle)
    second = LocalManager(settings)
    assert (await second.submit(ME, asked)) == await first.submit(ME, asked)
    (tmp_path / "work" / "go").write_text("go\n")
    assert (await ended(second, handle)).exit_code == 5


async def test_a_job_whose_supervisor_was_killed_is_not_said_to_run(
    manager: LocalManager, settings: LocalSettings, tmp_path: Path
) -> None:
    handle = await submit(manager, submission(tmp_path, SLEEP))
    await running(manager, handle)
    status = LocalJobStore(settings.directory).get(handle.job_id)
    assert status is not None
    assert status.supervisor_pid is not None
    assert status.script_pid is not None
    os.kill(status.supervisor_pid, signal.SIGKILL)
    end = await ended(manager, handle)
    assert (end.state, end.reason) == ("NODE_FAIL", "SupervisorDied")
    os.killpg(status.script_pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("lost", "left", "shown"),
    [
        ("job.json", b"", []),
        ("job.json", b'{"of": "another release"}', []),
        ("started.json", b"", ["NODE_FAIL"]),
        ("ended.json", b"", ["NODE_FAIL"]),
    ],
)
async def test_a_file_that_lost_its_content_with_the_hosts_power_hides_no_other_job(
    manager: LocalManager,
    settings: LocalSettings,
    tmp_path: Path,
    *,
    lost: str,
    left: bytes,
    shown: list[str],
) -> None:
    torn = await submit(manager, submission(tmp_path))
    await ended(manager, torn)
    folder = settings.directory / torn.job_id
    (folder / "ended.json").unlink()
    (folder / lost).write_bytes(left)
    os.utime(folder / "begun", (0, 0))
    manager = LocalManager(settings)
    other = await submit(manager, submission(tmp_path))
    await ended(manager, other)
    history = await manager.history([torn.job_id, other.job_id], since=datetime.now(UTC))
    assert [job.state for job in history.jobs] == [*shown, "COMPLETED"]


async def test_the_files_of_an_ended_job_are_read_once(
    manager: LocalManager, settings: LocalSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are kept for a month, and each poll, one in a second, shows all of them."""
    handle = await submit(manager, submission(tmp_path))
    await ended(manager, handle)
    monkeypatch.setattr(job_store, "_read", None)
    assert [job.state for job in (await manager.poll()).jobs] == ["COMPLETED"]
    assert len((await manager.history([handle.job_id], since=datetime.now(UTC))).jobs) == 1
    LocalJobStore(settings.directory).delete(handle.job_id)
    assert not (await manager.poll()).jobs


async def test_a_full_disk_is_no_refusal(
    manager: LocalManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rename(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "rename", rename)
    outcome = await manager.submit(ME, submission(tmp_path))
    assert isinstance(outcome, SubmitUnavailable)
    assert "No space left" in outcome.detail


async def test_what_the_queue_no_longer_shows_is_in_the_history(tmp_path: Path) -> None:
    settings = LocalSettings(directory=tmp_path / "state", slots=1)
    manager = LocalManager(settings)
    handle = await submit(manager, submission(tmp_path))
    end = await ended(manager, handle)
    later = LocalManager(LocalSettings(directory=tmp_path / "state", slots=1, shown_s=0))
    assert (await later.poll()).jobs == ()
    assert await later.find_live([handle.job_id]) == FoundJobs((), complete=True)
    history = await later.history([handle.job_id, "99"], since=datetime.now(UTC))
    assert [(job.job_id, job.state, job.mark, job.live) for job in history.jobs] == [
        (handle.job_id, "COMPLETED", handle.mark, False)
    ]
    since = datetime.now(UTC) - timedelta(hours=1)
    assert [job.ended_at for job in (await later.history_of(ME, since=since)).jobs] == [end.ended_at]
    assert (await later.history_of(OTHER, since=since)).jobs == ()
    forgetful = LocalManager(LocalSettings(directory=tmp_path / "state", slots=1, kept_s=0))
    await forgetful.poll()
    assert (await forgetful.history([handle.job_id], since=since)).jobs == ()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"array": "0-3"}, "does not support array"),
        ({"begin": "now+1hour"}, "begin"),
        ({"options": ["--exclusive"]}, "options"),
        ({"resources": {"nodes": 2}}, "one node"),
        ({"partition": "debug"}, "partition"),
        ({"batch": "echo\n"}, "interpreter"),
        ({"batch": "#!/bin/sh\r\n"}, "DOS"),
        ({"pod": POD}, "does not support pods: they need Slurm and Apptainer"),
    ],
)
async def test_what_it_does_not_do_is_refused_in_words(
    manager: LocalManager, tmp_path: Path, fields: dict[str, object], words: str
) -> None:
    asked = submission(tmp_path, **fields)  # type: ignore[arg-type]
    outcome = await manager.submit(ME, asked)
    assert isinstance(outcome, SubmitRejected)
    assert words in outcome.detail
    check = await manager.check(ME, asked)
    assert (check.valid, check.detail) == (False, outcome.detail)


async def test_jobs_of_others_are_refused(manager: LocalManager, tmp_path: Path) -> None:
    outcome = await manager.submit(OTHER, submission(tmp_path))
    assert isinstance(outcome, SubmitRejected)
    assert "only" in outcome.detail


async def test_its_one_partition_tells_what_is_free(manager: LocalManager, tmp_path: Path) -> None:
    handle = await submit(manager, submission(tmp_path, SLEEP))
    await running(manager, handle)
    partition = (await manager.partitions())[0]
    assert (partition.name, partition.total.cpus, partition.free.cpus) == ("local", 2, 1)
    assert (await manager.cluster()).workload_manager == "local"
    await manager.act(handle, JobAction.CANCEL)
    await ended(manager, handle)
