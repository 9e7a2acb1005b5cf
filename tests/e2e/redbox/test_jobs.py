"""A job's whole life through red-box's HTTP, as alice and bob, on the real Slurm."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from redbox_api.client import RedboxClient
from redbox_api.errors import Conflict, NoSuchJob, NotAccepted
from redbox_api.models import JobRequest, Phase
from redbox_bed.bed import Bed
from tests.e2e.harness.accounting import SINCE
from tests.e2e.harness.redbox_jobs import Reader, ended, log_of, new_key, script, started, submit, until
from tests.e2e.harness.redbox_server import RedboxServer, running

ENDS = {
    "success": (["exit 0"], Phase.SUCCEEDED, "COMPLETED", 0, None, None),
    "a code": (["exit 3"], Phase.FAILED, "FAILED", 3, None, "It exited with code 3."),
    "a high code": (["exit 200"], Phase.FAILED, "FAILED", 200, None, "code 200"),
    "a signal": (["kill -9 $$"], Phase.FAILED, "FAILED", None, 9, "It was ended by SIGKILL (9)."),
    "no such program": (["frobnicate"], Phase.FAILED, "FAILED", 127, None, "found"),
    "too much memory": (
        ["#SBATCH --mem=64", "exec python3 -c 'bytearray(400 * 1024 * 1024)'"],
        Phase.FAILED,
        "OUT_OF_MEMORY",
        None,
        None,
        "memory",
    ),
}


@pytest.fixture(scope="module")
def server(bed: Bed) -> Iterator[RedboxServer]:
    with running(bed) as server:
        yield server


@pytest.fixture(scope="module", autouse=True)
def overdue(server: RedboxServer) -> str:
    """The key of a job that runs into its limit: begun before all else, waited for by the last test."""

    async def begin() -> str:
        async with server.client_of("alice") as client:
            return await submit(client, "#SBATCH --time=1", "exec sleep 600")

    return asyncio.run(begin())


@pytest.fixture(scope="module")
def ends(server: RedboxServer) -> dict[str, str]:
    """The keys of one job for each way to end; they run side by side."""

    async def begin() -> dict[str, str]:
        async with server.client_of("alice") as client:
            return {name: await submit(client, *lines) for name, (lines, *_) in ENDS.items()}

    return asyncio.run(begin())


def text_of(server: RedboxServer, path: str | None) -> str:
    return server.login.read(str(path)).decode()


# ---------------------------------------------------------------------------------------- how jobs end
@pytest.mark.parametrize("name", ENDS)
async def test_each_end_arrives_as_slurm_has_it_and_in_words(
    alice: RedboxClient, ends: dict[str, str], name: str
) -> None:
    _, phase, state, code, signal, words = ENDS[name]
    job = await ended(alice, ends[name])
    assert (job.phase, job.state, job.exit_code, job.signal) == (phase, state, code, signal)
    assert (words is None) == (job.message is None)
    assert (words or "") in (job.message or "")
    assert job.submitted_at
    assert job.started_at
    assert job.ended_at
    assert job.nodes
    assert (job.user, job.partition, job.account) == ("alice", "debug", "physics")


async def test_a_working_directory_that_cannot_be_entered_is_said_in_words(
    server: RedboxServer, bob: RedboxClient
) -> None:
    key = await submit(bob, "true", hold=True)
    directory = (await bob.get_job(key)).working_directory
    server.login.run("chmod", "000", str(directory))
    await bob.act_on_job(key, "release")
    job = await ended(bob, key)
    assert (job.phase, job.exit_code, job.signal) == (Phase.FAILED, None, 53)
    assert "bob cannot enter the working directory" in (job.message or "")


async def test_a_running_job_is_cancelled(alice: RedboxClient) -> None:
    key = await submit(alice, "exec sleep 600")
    await started(alice, key)
    (cancelled,) = await alice.cancel_job(key)
    assert cancelled.cancel_requested
    job = await ended(alice, key)
    assert (job.phase, job.state, job.signal) == (Phase.CANCELLED, "CANCELLED", 15)
    assert "cancelled" in (job.message or "")


async def test_a_job_is_held_released_and_signalled(alice: RedboxClient) -> None:
    key = await submit(
        alice, "trap 'echo caught; exit 7' USR1", "echo ready", "while :; do sleep 0.1; done", hold=True
    )
    held = await until(alice, key, lambda job: job.reason is not None)
    assert (held.phase, held.reason) == (Phase.PENDING, "JobHeldUser")
    await alice.act_on_job(key, "release")
    await started(alice, key)
    async with alice.stream("GET", f"/v1/jobs/{key}/logs/stdout", {"follow": "true"}) as log:
        assert await log.content.readline() == b"ready\n"
    await alice.act_on_job(key, "signal", signal="USR1")
    assert (await ended(alice, key)).exit_code == 7
    assert await log_of(alice, key) == "ready\ncaught\n"


async def test_a_job_that_waits_is_held_and_released(alice: RedboxClient) -> None:
    key = await submit(alice, "true", begin="now+1hour")
    await until(alice, key, lambda job: job.reason == "BeginTime")
    await alice.act_on_job(key, "hold")
    await until(alice, key, lambda job: job.reason == "JobHeldUser")
    await alice.act_on_job(key, "release")
    await until(alice, key, lambda job: job.reason == "BeginTime")
    await alice.cancel_job(key)


async def test_a_job_that_has_ended_cannot_be_held(alice: RedboxClient) -> None:
    key = await submit(alice, "true")
    await ended(alice, key)
    with pytest.raises(NotAccepted, match="had already ended"):
        await alice.act_on_job(key, "hold")


@pytest.mark.parametrize(
    ("options", "in_file"), [([], b"run 1\n"), (["--open-mode=append"], b"run \nrun 1\n")]
)
async def test_a_requeued_job_is_the_same_job_and_its_reader_gets_each_run_once(
    server: RedboxServer, alice: RedboxClient, options: list[str], in_file: bytes
) -> None:
    lines = ('echo "run $SLURM_RESTART_COUNT"', '[ "$SLURM_RESTART_COUNT" ] || exec sleep 600')
    key = await submit(alice, *lines, options=options)
    reader = Reader(alice, key)
    reading = asyncio.create_task(reader.whole())
    first = await started(alice, key)
    await reader.until(b"run \n")
    await alice.act_on_job(key, "requeue")
    waiting = await until(alice, key, lambda job: job.reason == "BeginTime")
    # Slurm would let it wait for two minutes.
    server.login.run("scontrol", "update", f"JobId={waiting.job_id}", "StartTime=now", user="alice")
    job = await ended(alice, key)
    assert (job.phase, job.run, job.job_id) == (Phase.SUCCEEDED, 2, first.job_id)
    assert await asyncio.wait_for(reading, 60) == in_file
    assert bytes(reader.copied) == b"run \nrun 1\n"


# ---------------------------------------------------------------------------------------- what a job gets
async def test_env_is_exact_the_directory_is_made_and_the_outputs_are_apart(
    server: RedboxServer, alice: RedboxClient
) -> None:
    value = "a,b\nc'\"$(id)`id`\\ü☃\t =1 "
    directory = f"/home/alice/made/{new_key()}"
    key = await submit(
        alice,
        'printf %s "$VALUE"',
        '{ pwd; cd /; cd "$SLURM_SUBMIT_DIR"; pwd; } >&2',
        "{ id -un; env | grep -c -e ^SBATCH_ -e ^REDBOX; } >&2",
        env={"VALUE": value, "EMPTY": ""},
        workingDirectory=directory,
    )
    job = await ended(alice, key)
    assert await log_of(alice, key) == value
    assert await log_of(alice, key, "stderr") == f"{directory}\n{directory}\nalice\n0\n"
    assert text_of(server, job.logs.stdout) == value
    assert job.logs.stdout == f"{directory}/slurm-{job.job_id}.out"


async def test_resources_name_and_output_are_what_was_asked_for(alice: RedboxClient) -> None:
    key = await submit(
        alice,
        "scontrol show job $SLURM_JOB_ID -o | tr ' ' '\\n' >shown",
        "grep -E '^(NumNodes|NumTasks|TimeLimit|Account)=' shown",
        name="named",
        account="biology",
        partition="long",
        qos="high",
        resources={"nodes": 2, "tasks": 4, "time": "7"},
        options=["--exclude=n3"],
        output="%x-%j.txt",
    )
    job = await ended(alice, key)
    lines = set((await log_of(alice, key)).split())
    assert job.phase is Phase.SUCCEEDED, (job, await log_of(alice, key, "stderr"))
    assert lines == {"NumNodes=2", "NumTasks=4", "TimeLimit=00:07:00", "Account=biology"}
    assert (job.name, job.partition, job.account, job.qos) == ("named", "long", "biology", "high")
    assert sorted(job.nodes) == ["n1", "n2"]
    assert (job.logs.stdout or "").endswith(f"/named-{job.job_id}.txt")


async def test_an_array_is_counted_told_by_task_and_read_by_task(alice: RedboxClient) -> None:
    key = await submit(
        alice, "echo task $SLURM_ARRAY_TASK_ID", "exit $((SLURM_ARRAY_TASK_ID % 2))", array="0-4"
    )
    job = await ended(alice, key)
    assert job.phase is Phase.FAILED
    assert job.array
    assert (job.array.total, job.array.succeeded, job.array.failed, job.array.pending) == (5, 3, 2, 0)
    assert [(task.index, task.exit_code) for task in job.tasks or []] == [
        (index, index % 2) for index in range(5)
    ]
    logs = [await log_of(alice, key, task=index) for index in range(5)]
    assert logs == [f"task {index}\n" for index in range(5)]
    with pytest.raises(NotAccepted, match="task"):
        await log_of(alice, key)


async def test_dependencies_are_named_by_key_and_kept_by_slurm(alice: RedboxClient) -> None:
    directory = f"/home/alice/chain-{new_key()}"
    first = await submit(alice, "sleep 1", "echo first >>order", hold=True, workingDirectory=directory)
    second = await submit(
        alice, "echo second >>order", "exit 1", workingDirectory=directory, dependencies=[{"key": first}]
    )
    third = await submit(
        alice,
        "echo third >>order",
        "cat order",
        workingDirectory=directory,
        dependencies=[{"key": second, "type": "afternotok"}],
    )
    waiting = await until(alice, second, lambda job: job.reason == "Dependency")
    assert waiting.phase is Phase.PENDING
    await alice.act_on_job(first, "release")
    assert (await ended(alice, third)).phase is Phase.SUCCEEDED
    assert await log_of(alice, third) == "first\nsecond\nthird\n"
    with pytest.raises(NotAccepted, match="no-such-key"):
        await submit(alice, "true", dependencies=[{"key": "no-such-key"}])


async def test_a_container_gets_its_command_args_and_env_and_its_exit_code_is_the_jobs(
    server: RedboxServer, alice: RedboxClient
) -> None:
    image = build_image(server)
    run = JobRequest.model_validate(
        {"container": {"image": image, "args": ["two words", "it's"]}, "env": {"VALUE": "a,b\n'c'"}}
    )
    execute = JobRequest.model_validate(
        {"container": {"image": image, "command": ["/bin/sh", "-c", "echo $0; exit 42"], "args": ["$HOME"]}}
    )
    ran, executed = new_key(), new_key()
    await alice.put_job(ran, run)
    await alice.put_job(executed, execute)
    assert (await ended(alice, ran)).exit_code == 0
    assert await log_of(alice, ran) == "[two words][it's]a,b\n'c'"
    assert (await ended(alice, executed)).exit_code == 42
    assert await log_of(alice, executed) == "$HOME\n"


def build_image(server: RedboxServer) -> str:
    definition = (
        "Bootstrap: scratch\n"
        "%setup\n  mkdir -p ${APPTAINER_ROOTFS}/bin\n  cp /bin/busybox ${APPTAINER_ROOTFS}/bin/busybox\n"
        "  ln -s busybox ${APPTAINER_ROOTFS}/bin/sh\n"
        '%runscript\n  /bin/busybox printf "[%s]" "$@"; exec /bin/busybox printf %s "$VALUE"\n'
    )
    build = ("sh", "-c", "cat >e2e.def && apptainer build --force e2e.sif e2e.def")
    server.login.run(*build, user="alice", stdin=definition)
    return "/home/alice/e2e.sif"


# ---------------------------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"partition": "nowhere"}, "invalid partition"),
        ({"account": "chemistry"}, "Invalid account"),
        ({"qos": "platinum"}, "Invalid qos"),
        ({"options": ["--nodelist=n99"]}, "node"),
        ({"options": ["--bogus"]}, "--bogus"),
        ({"workingDirectory": "/proc/mine"}, "/proc/mine"),
    ],
)
async def test_what_slurm_refuses_is_refused_in_its_words_and_leaves_no_job(
    alice: RedboxClient, fields: dict[str, object], words: str
) -> None:
    key = new_key()
    with pytest.raises(NotAccepted) as refused:
        await alice.put_job(key, script("true", **fields))
    assert words in refused.value.problem.detail
    assert not refused.value.retry
    with pytest.raises(NoSuchJob):
        await alice.get_job(key)


async def test_who_has_no_slurm_account_hears_slurms_refusal(server: RedboxServer) -> None:
    async with server.client_of("carol") as carol:
        with pytest.raises(NotAccepted, match="Invalid account"):
            await submit(carol, "true")
        assert (await carol.whoami()).slurm_accounts == []


async def test_a_check_says_whether_and_when_and_submits_nothing(alice: RedboxClient) -> None:
    good = await alice.check(script("true", resources={"nodes": 2}))
    assert good.valid
    assert good.would_start_at
    bad = await alice.check(script("true", partition="nowhere"))
    assert (bad.valid, "invalid partition" in bad.detail) == (False, True)


# ---------------------------------------------------------------------------------------- once and only once
async def test_the_same_put_is_the_same_job_and_another_body_is_a_conflict(
    server: RedboxServer, alice: RedboxClient
) -> None:
    key, name = new_key(), f"once-{new_key()}"
    answers = await asyncio.gather(*(alice.put_job(key, script("true", name=name)) for _ in range(8)))
    assert len({job.job_id for job in answers}) == 1
    with pytest.raises(Conflict, match="another request"):
        await alice.put_job(key, script("false", name=name))
    await ended(alice, key)
    again = await alice.put_job(key, script("true", name=name))
    assert again.job_id == answers[0].job_id
    assert await rows_of(server, name) == [str(again.job_id)]
    other = await alice.put_job(key, script("false", name=name), attempt=2)
    assert other.job_id != again.job_id


async def rows_of(server: RedboxServer, name: str) -> list[str]:
    """The ids of all jobs of this name that Slurm knows or knew."""
    live = server.login.run("squeue", "-h", "-t", "all", f"--name={name}", "-o", "%A").stdout.split()
    past = server.login.run(
        "sacct", SINCE, "-a", "-X", "-D", "-n", "-P", "-o", "JobIDRaw", f"--name={name}"
    ).stdout
    return sorted({*live, *past.split()})


async def test_a_key_that_was_deleted_first_is_never_submitted(
    server: RedboxServer, alice: RedboxClient
) -> None:
    key, name = new_key(), f"never-{new_key()}"
    with pytest.raises(NoSuchJob):
        await alice.cancel_job(key, all_attempts=True)
    for attempt in (1, 2):
        with pytest.raises(Conflict, match="deleted before"):
            await alice.put_job(key, script("true", name=name), attempt=attempt)
    assert await rows_of(server, name) == []


async def test_a_watch_tells_each_change_and_misses_none(alice: RedboxClient) -> None:
    since = (await anext(alice.list_jobs())).revision
    key = await submit(alice, "true")
    phases: list[Phase] = []
    async with asyncio.timeout(60):
        async for event in alice.watch_jobs(since):
            if event.job and event.job.key == key:
                phases.append(event.job.phase)
                if event.job.phase is Phase.SUCCEEDED:
                    break
    assert phases == sorted(
        phases, key=[Phase.SUBMITTING, Phase.PENDING, Phase.RUNNING, Phase.SUCCEEDED].index
    )
    async for event in alice.watch_jobs(since):
        if event.job and event.job.key == key:
            assert event.job.phase is Phase.SUCCEEDED  # from the past one learns what is, once
            break


# ---------------------------------------------------------------------------------------- what takes minutes
async def test_a_het_job_is_one_job(alice: RedboxClient) -> None:
    """Slurm starts these by its backfill alone, every 30 s, and holds up what comes later until then."""
    key = await submit(
        alice, "#SBATCH -n1", "#SBATCH hetjob", "#SBATCH -n2", "srun --het-group=0,1 -l id -un"
    )
    job = await ended(alice, key)
    assert (job.phase, job.exit_code) == (Phase.SUCCEEDED, 0)
    assert sorted((await log_of(alice, key)).split()) == ["0:", "1:", "2:", "alice", "alice", "alice"]


@pytest.mark.timeout(180)
async def test_a_job_that_runs_out_of_time_says_so(alice: RedboxClient, overdue: str) -> None:
    job = await ended(alice, overdue, within_s=150)
    assert (job.phase, job.state) == (Phase.FAILED, "TIMEOUT")
    assert "time" in (job.message or "")
