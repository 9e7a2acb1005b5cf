"""sbatch: from a submission to a call, and from sbatch's output to an outcome. Pure.

sbatch's own environment is empty: SBATCH_* in it would be options, and any variable would win over
--export-file, which passes the job's environment exact to the byte. The script is sbatch's stdin; where
arguments follow, by its path, behind which sbatch reads no options. Options that red-box sets come last, and
so win; the comment, which no request can give, comes first.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from redbox.core.workload_manager import Submission, SubmitAccepted, SubmitOutcome, SubmitUnknown
from redbox.slurm.errors import RequestRefused
from redbox.slurm.text.batch_script import (
    DEFAULT_ARRAY_OUTPUT,
    DEFAULT_OUTPUT,
    check_directives,
    encode_script,
    with_default_outputs,
)
from redbox.slurm.text.error_messages import classify, lines_of, with_remedy, words_of
from redbox.slurm.text.sbatch_options import read_options
from redbox.slurm.text.values import TIME_FORMAT
from redbox_api.models import Check, JobRequest
from redbox_shared.sbatch_options import first_component, read_directives

CHECK_ENVIRONMENT = TIME_FORMAT
MOST_WARNINGS = 8  # as many as a record keeps; each is a new record in between
JOB_ID = re.compile(r"^([0-9]{1,10})(?:;(\S+))?$", re.MULTILINE)
# From 25.05 on Slurm says "at TIME a using", and names a cluster in between where it asked several.
WOULD_START = re.compile(r"Job [0-9]+ to start at ([0-9]+)(?: on cluster \S+)?(?: a)? using (.*)")
FIELDS = ("qos", "array", "begin", "output", "error")
RESOURCES = {
    "nodes": "nodes",
    "tasks": "ntasks",
    "tasks_per_node": "ntasks-per-node",
    "cpus_per_task": "cpus-per-task",
    "mem_per_node": "mem",
    "mem_per_cpu": "mem-per-cpu",
    "gpus_per_node": "gpus-per-node",
    "gres": "gres",
    "time": "time",
}


@dataclass(frozen=True, slots=True)
class SbatchCall:
    """All of one call; in argv `placeholder` stands for the descriptor from which sbatch reads `export`."""

    argv: tuple[str, ...]
    script: bytes
    export: bytes
    placeholder: str
    stdout: str  # file name patterns, as Slurm resolves them
    stderr: str
    is_array: bool


def build_call(
    submission: Submission, script: str, account_env: Mapping[str, str], placeholder: str
) -> SbatchCall:
    """The call that submits; RequestRefused where the request cannot become a job."""
    request = submission.request
    data = encode_script(script)
    directives = read_directives(script)
    check_directives(directives)
    in_script = {directive.name: directive.value for directive in directives}
    array = request.array is not None or "array" in in_script
    named = {"output", "error"} & in_script.keys() or request.output is not None or request.error is not None
    if not named:
        data = with_default_outputs(data, array=array)
    stem = DEFAULT_ARRAY_OUTPUT if array else DEFAULT_OUTPUT
    outputs = _named_outputs(request, script, f"{stem}.out") if named else (f"{stem}.out", f"{stem}.err")
    limits = submission.limits
    argv = [
        "sbatch",
        "--parsable",
        f"--comment={submission.mark}",  # here a narrow column of sacct's submit lines shows it
        *read_options(request.options),
        *_options({option: getattr(request.resources, field) for field, option in RESOURCES.items()}),
        *_options({option: getattr(request, option) for option in FIELDS}),
        *_limited("partition", request.partition, in_script, limits.partitions),
        *_limited("account", request.account, in_script, limits.accounts),
        *_enforced_options(submission, in_script, placeholder),
        *(["/dev/stdin", *request.arguments] if request.arguments else []),
    ]
    of_job = {
        # 22.05 makes (null) of %x in an output's name where the job's environment does not have it.
        "SLURM_JOB_NAME": submission.job_name,
        # sbatch would set its own working directory, which is the agent's: /.
        "SLURM_SUBMIT_DIR": submission.working_directory,
    }
    env = {**account_env, **of_job, **request.env}
    return SbatchCall(tuple(argv), data, encode_environment(env), placeholder, *outputs, is_array=array)


def build_check_call(call: SbatchCall) -> SbatchCall:
    """The same call with --test-only, and without the job's environment.

    With --export-file sbatch drops its own environment, and with it the format of times.
    """
    program, *argv = (word for word in call.argv if not word.startswith("--export-file=/proc/self/fd/"))
    return replace(call, argv=(program, "--test-only", *argv), export=b"")


def encode_environment(env: Mapping[str, str]) -> bytes:
    """NUL-separated, as --export-file takes it: values are passed unchanged."""
    try:
        return b"".join(f"{name}={value}".encode() + b"\0" for name, value in env.items())
    except UnicodeEncodeError as error:
        raise RequestRefused("env: a value contains a character that cannot be encoded as UTF-8.") from error


def _named_outputs(request: JobRequest, script: str, default: str) -> tuple[str, str]:
    """The patterns of stdout and stderr, of a het job's first component."""
    first = {d.name: d.value for d in read_directives(first_component(script))}
    stdout = request.output or first.get("output") or default
    return stdout, request.error or first.get("error") or stdout


def _options(values: Mapping[str, object]) -> list[str]:
    return [f"--{option}={value}" for option, value in values.items() if value is not None]


def _limited(
    name: str, field: str | None, in_script: Mapping[str, str | None], allowed: frozenset[str] | None
) -> list[str]:
    """The option with the field's value; with limits, else the script's, else the only allowed one."""
    if allowed is None:
        return _options({name: field})
    wanted, listed = field or in_script.get(name), ", ".join(sorted(allowed))
    if wanted is None and len(allowed) == 1:
        return _options({name: listed})
    if wanted is None:
        raise RequestRefused(f"{name}: name one of those that you may use here: {listed}.")
    forbidden = [word for word in wanted.split(",") if word not in allowed]
    if forbidden:
        words = ", ".join(forbidden)
        raise RequestRefused(f"{name}: {words} may not be used here; allowed: {listed or 'none'}.")
    return _options({name: wanted})


def _enforced_options(
    submission: Submission, in_script: Mapping[str, str | None], placeholder: str
) -> list[str]:
    """The last options, so that neither request nor script overrides them."""
    request = submission.request
    options = [
        f"--job-name={submission.job_name}",
        f"--chdir={submission.working_directory}",
        f"--export-file=/proc/self/fd/{placeholder}",  # by path: a het job's components each read it
    ]
    if submission.dependencies:
        options.append(f"--dependency={','.join(submission.dependencies)}")
    # Without it 26.05 drops what --export-file has; a script's --export=NONE would drop the request's env.
    if request.env or "export" not in in_script:
        options.append("--export=ALL")
    if request.hold or submission.held:
        options.append("--hold")
    if request.pod is not None:  # its emptyDirs cannot follow, and restartPolicy Never means never
        options.append("--no-requeue")
    return options


def read_submit(code: int, stdout: bytes, stderr: bytes) -> SubmitOutcome:
    """An id means that Slurm has accepted the job, whatever the exit code and stderr."""
    found = JOB_ID.findall(stdout.decode("utf-8", "replace"))
    if found:
        return SubmitAccepted(job_id=found[-1][0], warnings=tuple(lines_of(stderr)[-MOST_WARNINGS:]))
    if code != 0:
        return classify(code, stderr)
    return SubmitUnknown(f"sbatch ended with exit code 0 but printed no job id. {words_of(stderr)}".strip())


def read_check(code: int, stderr: bytes) -> Check:
    """The output of --test-only, which is on stderr."""
    words = words_of(stderr).replace("allocation failure: ", "")
    found = WOULD_START.search(words)
    if code != 0 or found is None:
        no_words = f"sbatch ended with exit code {code} and printed nothing."
        return Check(valid=False, detail=with_remedy(words) or no_words)
    return Check(
        valid=True,
        would_start_at=datetime.fromtimestamp(int(found[1]), UTC),
        detail=f"It would use {found[2]}.",
    )
