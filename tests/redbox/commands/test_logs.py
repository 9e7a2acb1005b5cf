"""Printing logs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.redbox.commands.conftest import Run
from tests.redbox.http.harness import Stand, until_streams_are

LINES = b"".join(b"line %d\n" % number for number in range(100))
POD = {
    "name": "p",
    "namespace": "physics",
    "uid": "u",
    "containers": [{"name": "main", "image": "docker://x"}],
}
AT = "2026-01-01T00:00:00Z"
RUNNING = {"running": {"startedAt": AT}}
ENDED = {"terminated": {"exitCode": 1, "reason": "Error", "finishedAt": AT}}
BACK_OFF = {"waiting": {"reason": "CrashLoopBackOff"}}


async def pod_with_logs(stand: Stand, restarts: int = 0, **container: Any) -> str:
    """A pod that runs, of one container, with a file for each of its starts."""
    job_id = await stand.submitted("k1", batch=None, pod=POD)
    stand.slurm.start(job_id)
    reported = {"name": "main", "state": RUNNING, "restartCount": restarts, **container}
    line = json.dumps({"at": AT, "containers": [reported]}).encode()
    stand.slurm.reports[stand.slurm.jobs[job_id].mark] = line
    await stand.until("k1", lambda job: job.get("pod"))
    for start in range(restarts + 1):
        (stand.home / f"main-{start}.log").write_bytes(b"start %d\n" % start)
    return job_id


async def test_a_log_is_printed_as_it_is(stand: Stand, redbox: Run) -> None:
    content = bytes(range(256)) * 1000
    await stand.writing("k1", content)
    ended = await redbox("logs", "k1")
    assert (ended.exit_code, ended.stdout_bytes) == (0, content)


async def test_stderr_is_apart(stand: Stand, redbox: Run) -> None:
    _, path = await stand.writing("k1", LINES)
    path.with_suffix(".err").write_bytes(b"oh\n")
    assert (await redbox("logs", "k1", "--stderr")).stdout_bytes == b"oh\n"


async def test_the_last_lines(stand: Stand, redbox: Run) -> None:
    await stand.writing("k1", LINES)
    assert (await redbox("logs", "k1", "-n", "2")).stdout == "line 98\nline 99\n"


async def test_following_ends_with_the_jobs_last_byte(stand: Stand, redbox: Run) -> None:
    job_id, path = await stand.writing("k1", LINES)
    following = asyncio.create_task(redbox("logs", "k1", "-f"))
    await until_streams_are(stand, 1)
    with path.open("ab") as log:
        log.write(b"the last\n")
    stand.slurm.end(job_id)
    async with asyncio.timeout(60):
        ended = await following
    assert (ended.exit_code, ended.stdout_bytes) == (0, LINES + b"the last\n")


async def test_a_log_of_nothing_is_a_sentence(redbox: Run) -> None:
    ended = await redbox("logs", "k1", "-f")
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr.startswith("redbox: There is no such job")


async def test_of_a_pod_the_log_of_a_containers_newest_start(stand: Stand, redbox: Run) -> None:
    await pod_with_logs(stand, 2, lastState=ENDED)
    assert (await redbox("logs", "k1", "--container", "main")).stdout == "start 2\n"


async def test_of_a_pod_any_start_by_its_number(stand: Stand, redbox: Run) -> None:
    await pod_with_logs(stand, 2, lastState=ENDED)
    assert (await redbox("logs", "k1", "-c", "main", "--restart", "0")).stdout == "start 0\n"


@pytest.mark.parametrize(
    ("container", "printed"),
    [
        ({"state": RUNNING, "lastState": ENDED}, "start 1\n"),
        ({"state": ENDED, "lastState": ENDED}, "start 1\n"),
        ({"state": BACK_OFF, "lastState": ENDED}, "start 2\n"),  # the next start has not begun
    ],
)
async def test_the_previous_start_is_the_one_that_kubectl_shows(
    stand: Stand, redbox: Run, container: dict[str, Any], printed: str
) -> None:
    await pod_with_logs(stand, 2, **container)
    assert (await redbox("logs", "k1", "-c", "main", "--previous")).stdout == printed


async def test_a_first_start_has_no_previous_one(stand: Stand, redbox: Run) -> None:
    await pod_with_logs(stand)
    ended = await redbox("logs", "k1", "-c", "main", "-p")
    assert (ended.exit_code, ended.stderr) == (1, "redbox: Container main has no earlier start.\n")


async def test_following_a_container_ends_with_its_pod(stand: Stand, redbox: Run) -> None:
    job_id = await pod_with_logs(stand)
    following = asyncio.create_task(redbox("logs", "k1", "-f", "-c", "main"))
    await until_streams_are(stand, 1)
    stand.slurm.end(job_id)
    async with asyncio.timeout(60):
        ended = await following
    assert (ended.exit_code, ended.stdout) == (0, "start 0\n")


@pytest.mark.parametrize("options", [(), ("--previous",), ("--restart", "0")])
async def test_a_container_that_is_not_there_is_refused_with_those_that_are(
    stand: Stand, redbox: Run, options: tuple[str, ...]
) -> None:
    await pod_with_logs(stand)
    ended = await redbox("logs", "k1", "-c", "other", *options)
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr == (
        "redbox: No container other of this pod has been reported. Its containers are main.\n"
    )


@pytest.mark.parametrize("options", [(), ("--previous",)])
async def test_a_job_that_is_not_a_pod_has_no_containers(
    stand: Stand, redbox: Run, options: tuple[str, ...]
) -> None:
    await stand.writing("k1", LINES)
    ended = await redbox("logs", "k1", "-c", "main", *options)
    assert (ended.exit_code, ended.stdout) == (1, "")
    assert ended.stderr.startswith("redbox: This job is not a pod")


@pytest.mark.parametrize(
    "options",
    [
        ("--previous",),
        ("--restart", "0"),
        ("-c", "main", "--previous", "--restart", "0"),
        ("-c", "main", "--stderr"),
        ("-c", "main", "--task", "1"),
    ],
)
async def test_options_that_mean_nothing_together_are_a_wrong_command_line(
    redbox: Run, options: tuple[str, ...]
) -> None:
    assert (await redbox("logs", "k1", *options)).exit_code == 2
