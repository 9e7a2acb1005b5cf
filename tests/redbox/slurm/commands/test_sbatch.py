"""From a submission to one call of sbatch."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbox.core.domain import Limits
from redbox.core.workload_manager import Submission
from redbox.slurm.commands.sbatch import (
    RESOURCES,
    SbatchCall,
    build_call,
    build_check_call,
    encode_environment,
    read_check,
)
from redbox.slurm.errors import RequestRefused
from redbox_api.job_parts import Resources
from redbox_api.models import MAX_SCRIPT_BYTES, JobRequest
from tests.redbox.slurm.captured import RELEASES, output

SCRIPT = "#!/bin/sh\nhostname\n"
ACCOUNT = {"HOME": "/home/alice", "PATH": "/usr/bin:/bin"}


def plan(
    script: str = SCRIPT,
    *,
    limits: Limits | None = None,
    held: bool = False,
    dependencies: tuple[str, ...] = (),
    **fields: object,
) -> SbatchCall:
    request = JobRequest.model_validate({"batch": script, **fields})
    submission = Submission(
        request=request,
        mark="rb1.mark",
        job_name="name",
        working_directory="/home/alice/work dir",
        limits=limits or Limits(),
        dependencies=dependencies,
        held=held,
    )
    return build_call(submission, script, ACCOUNT, "{export}")


def refusal(script: str = SCRIPT, **fields: object) -> str:
    with pytest.raises(RequestRefused) as caught:
        plan(script, **fields)  # type: ignore[arg-type]
    return caught.value.detail


def environment(call: SbatchCall) -> dict[str, str]:
    entries = call.export.decode().split("\0")[:-1]
    return dict(entry.split("=", 1) for entry in entries)


def test_no_resource_is_left_out() -> None:
    assert set(RESOURCES) == set(Resources.model_fields)


def test_every_field_becomes_an_option() -> None:
    call = plan(
        partition="debug",
        account="physics",
        qos="high",
        array="1-9%2",
        begin="now+1hour",
        output="o.%j",
        error="e.%j",
        resources={
            "nodes": 2,
            "tasks": 4,
            "tasksPerNode": 2,
            "cpusPerTask": 3,
            "memPerNode": "4G",
            "gpusPerNode": "a100:2",
            "gres": "shm:1",
            "time": "1-00:00:00",
        },
        options=["--exclusive"],
        dependencies=("afterok:1", "singleton"),
    )
    assert call.argv[:2] == ("sbatch", "--parsable")
    assert set(call.argv[2:]) == {
        "--exclusive",
        "--partition=debug",
        "--account=physics",
        "--qos=high",
        "--array=1-9%2",
        "--begin=now+1hour",
        "--output=o.%j",
        "--error=e.%j",
        "--nodes=2",
        "--ntasks=4",
        "--ntasks-per-node=2",
        "--cpus-per-task=3",
        "--mem=4G",
        "--gpus-per-node=a100:2",
        "--gres=shm:1",
        "--time=1-00:00:00",
        "--job-name=name",
        "--chdir=/home/alice/work dir",
        "--comment=rb1.mark",
        "--export-file=/proc/self/fd/{export}",
        "--export=ALL",
        "--dependency=afterok:1,singleton",
    }


def test_the_mark_comes_first_and_only_once() -> None:
    """A site that stores no comments has it in submit lines, of which sacct's column shows the beginning."""
    argv = plan(options=["--exclusive"], partition="debug").argv
    assert argv[2].startswith("--comment=rb1.")
    assert sum("--comment" in word for word in argv) == 1


def test_red_boxs_own_options_come_after_all_others() -> None:
    call = plan(options=["--exclusive"], partition="debug", env={"A": "1"}, hold=True)
    ours = [
        index for index, word in enumerate(call.argv) if word.startswith(("--job-name", "--chdir", "--hold"))
    ]
    theirs = [
        index for index, word in enumerate(call.argv) if word.startswith(("--exclusive", "--partition"))
    ]
    assert min(ours) > max(theirs)


def test_the_environment_travels_exactly_and_over_the_accounts_own() -> None:
    env = {"A": "a,b\nc'\"$(id)ü", "EMPTY": "", "PATH": "/mine", "SBATCH_COMMENT": "x"}
    call = plan(env=env)
    of_job = {"SLURM_JOB_NAME": "name", "SLURM_SUBMIT_DIR": "/home/alice/work dir"}
    assert environment(call) == {**ACCOUNT, **of_job, **env}
    assert not any("SBATCH_COMMENT" in word for word in call.argv)


def test_a_scripts_export_none_does_not_take_the_requests_env_away() -> None:
    script = "#!/bin/sh\n#SBATCH --export=NONE\n"
    assert "--export=ALL" in plan(script, env={"A": "1"}).argv
    assert "--export=ALL" not in plan(script).argv


def test_the_environment_is_exported_where_the_script_says_nothing_of_it() -> None:
    assert "--export=ALL" in plan().argv


@given(
    st.dictionaries(
        st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,9}", fullmatch=True),
        st.text().map(lambda t: t.replace("\0", "")),
    )
)
def test_any_value_survives_the_encoding(env: dict[str, str]) -> None:
    try:
        encoded = encode_environment(env)
    except RequestRefused:
        assert any(0xD800 <= ord(char) < 0xE000 for value in env.values() for char in value)
        return
    assert dict(entry.split("=", 1) for entry in encoded.decode().split("\0")[:-1]) == env


def test_without_a_named_output_stdout_and_stderr_are_apart_and_first() -> None:
    call = plan("#!/bin/sh\n#SBATCH -n1\nhostname\n")
    assert call.script == (
        b"#!/bin/sh\n#SBATCH --output=slurm-%j.out\n#SBATCH --error=slurm-%j.err\n#SBATCH -n1\nhostname\n"
    )


@pytest.mark.parametrize("fields", [{"array": "0-3"}, {}])
def test_arrays_have_one_output_a_task(fields: dict[str, object]) -> None:
    script = SCRIPT if fields else "#!/bin/sh\n#SBATCH -a 0-3\nhostname\n"
    assert b"--output=slurm-%A_%a.out\n#SBATCH --error=slurm-%A_%a.err" in plan(script, **fields).script  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("script", "fields"),
    [
        ("#!/bin/sh\n#SBATCH -o mine\n", {}),
        ("#!/bin/sh\n#SBATCH --error=mine\n", {}),
        ("#!/bin/sh\n#PBS -e mine\n", {}),
        (SCRIPT, {"output": "mine"}),
        (SCRIPT, {"error": "mine"}),
    ],
)
def test_a_named_output_is_left_alone(script: str, fields: dict[str, object]) -> None:
    assert plan(script, **fields).script == script.encode()  # type: ignore[arg-type]


def test_a_script_that_is_only_a_shebang_keeps_it_on_a_line_of_its_own() -> None:
    assert plan("#!/bin/true").script.startswith(b"#!/bin/true\n#SBATCH --output")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("", "is empty"),
        (" \n\t\n", "is empty"),
        ("echo hi\n", "must name its interpreter"),
        ("\n#!/bin/sh\n", "must name its interpreter"),
        ("#!/bin/sh\r\necho\r\n", "DOS line ends"),
        ("#!/bin/sh\n\0\x7fELF", "binary"),
        ("#!/bin/sh\n\ud800", "a character that cannot be encoded"),
        ("#!/bin/sh\n" + "#" * MAX_SCRIPT_BYTES, "more than"),
        ("#!/bin/sh\n#SBATCH --wait\n", "line 2 has --wait"),
        ("#!/bin/sh\n#SBATCH -M other\n", "does not watch"),
        ("#!/bin/sh\n#SBATCH --test-o\n", "nothing would be submitted"),
        ("#!/bin/sh\n#SBATCH --uid=0\n", "only root"),
    ],
)
def test_a_script_that_cannot_run_is_refused_in_words_before_slurm_is_asked(script: str, words: str) -> None:
    try:
        assert words in refusal(script)
    except ValueError:  # the contract itself refuses such a value
        assert "\ud800" in script


def test_a_held_retry_is_held_though_nobody_asked() -> None:
    assert "--hold" in plan(held=True).argv
    assert "--hold" not in plan().argv


ONLY_DEBUG = Limits(partitions=frozenset({"debug"}))
TWO = Limits(partitions=frozenset({"debug", "long"}), accounts=frozenset({"physics"}))


def test_the_only_allowed_partition_is_passed_explicitly() -> None:
    assert "--partition=debug" in plan(limits=ONLY_DEBUG).argv


def test_a_scripts_own_partition_is_passed_if_it_is_allowed() -> None:
    argv = plan("#!/bin/sh\n#SBATCH -p long\n", limits=TWO).argv
    assert {"--partition=long", "--account=physics"} <= set(argv)


def test_beyond_the_limits_nothing_is_submitted() -> None:
    assert "long may not be used here" in refusal(partition="debug,long", limits=ONLY_DEBUG)
    assert "may not be used here" in refusal(partition="debug,", limits=ONLY_DEBUG)
    assert "long may not be used here" in refusal("#!/bin/sh\n#SBATCH --partition long\n", limits=ONLY_DEBUG)
    assert "name one of those" in refusal(limits=TWO)


def test_a_check_is_the_same_call_without_the_jobs_environment() -> None:
    call = plan(env={"A": "1"}, partition="debug")
    check = build_check_call(call)
    assert check.argv[1] == "--test-only"
    assert set(call.argv) - set(check.argv) == {"--export-file=/proc/self/fd/{export}"}
    assert check.export == b""


def test_a_check_tells_when_the_job_would_start() -> None:
    stderr = b"sbatch: Job 40 to start at 1795258376 using 1 processors on nodes n1 in partition debug\n"
    check = read_check(0, stderr)
    assert check.valid
    assert check.would_start_at == datetime(2026, 11, 21, 10, 52, 56, tzinfo=UTC)
    assert check.detail == "It would use 1 processors on nodes n1 in partition debug."


@pytest.mark.parametrize("release", RELEASES)
def test_a_check_is_read_as_each_release_prints_it(release: str) -> None:
    check = read_check(0, output(release, "test-only.txt").encode())
    assert check.valid
    assert check.would_start_at is not None
    assert check.detail == "It would use 1 processors on nodes n1 in partition debug."


def test_a_check_that_names_the_cluster_is_read() -> None:
    stderr = b"sbatch: Job 7 to start at 1795380248 on cluster hpc1 a using 2 processors on nodes n1\n"
    assert read_check(0, stderr).would_start_at == datetime(2026, 11, 22, 20, 44, 8, tzinfo=UTC)


def test_a_check_tells_why_not() -> None:
    stderr = (
        b"sbatch: error: invalid partition specified: nope\n"
        b"allocation failure: Invalid partition name specified\n"
    )
    check = read_check(1, stderr)
    assert not check.valid
    assert check.detail == (
        "invalid partition specified: nope; Invalid partition name specified. "
        "`kubectl slurm info` lists the partitions."
    )


def test_the_script_is_not_in_argv() -> None:
    secret = base64.b64encode(b"secret").decode()
    assert not any(secret in word for word in plan(f"#!/bin/sh\n# {secret}\n").argv)


@pytest.mark.parametrize(
    ("script", "fields", "outputs"),
    [
        ("#!/bin/sh\ntrue\n", {}, ("slurm-%j.out", "slurm-%j.err")),
        ("#!/bin/sh\n#SBATCH --array=1-3\n", {}, ("slurm-%A_%a.out", "slurm-%A_%a.err")),
        ("#!/bin/sh\n#SBATCH -o mine\n", {}, ("mine", "mine")),
        ("#!/bin/sh\n#SBATCH --outp=mine -e other\n", {}, ("mine", "other")),
        ("#!/bin/sh\n#SBATCH -o mine\n", {"output": "/tmp/asked"}, ("/tmp/asked", "/tmp/asked")),
        ("#!/bin/sh\n#SBATCH -e mine\n", {}, ("slurm-%j.out", "mine")),
        ("#!/bin/sh\n#SBATCH -o first\n#SBATCH hetjob\n#SBATCH -o second\n", {}, ("first", "first")),
        ("#!/bin/sh\n#SBATCH hetjob\n#SBATCH -o second\n", {}, ("slurm-%j.out", "slurm-%j.out")),
    ],
)
def test_where_a_job_writes_is_known_before_slurm_shows_it(
    script: str, fields: dict[str, Any], outputs: tuple[str, str]
) -> None:
    call = plan(script, **fields)
    assert (call.stdout, call.stderr) == outputs


def test_arguments_follow_the_script_which_is_then_named_by_its_path() -> None:
    """sbatch reads no option behind a script's name."""
    call = plan(arguments=["--lr", "0.1", "--export-file=/etc/passwd"])
    assert call.argv[-4:] == ("/dev/stdin", "--lr", "0.1", "--export-file=/etc/passwd")
    assert "/dev/stdin" not in plan().argv
    check = build_check_call(call)
    assert check.argv[:2] == ("sbatch", "--test-only")
    assert check.argv[-4:] == call.argv[-4:]


@pytest.mark.parametrize("program", [{"container": {"image": "x"}}, {"pod": {"containers": []}}])
def test_only_a_script_has_arguments(program: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"arguments are those of a batch script|containers"):
        JobRequest.model_validate({**program, "arguments": ["x"]})
