"""sbatch: from a submission to one call of it, and from what it prints to an outcome. Pure.

Nothing of the request is in sbatch's own environment, where SBATCH_* would be options: the job's environment
comes through --export-file, exact to the byte, and sbatch's is empty, since it would win over the file. The
script is its stdin. Options that red-box sets come last, and so win.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from redbox.core.domain import Limits
from redbox.core.workload_manager import Submission, SubmitAccepted, SubmitOutcome, SubmitUnknown
from redbox.slurm.errors import RequestRefused
from redbox.slurm.text.batch_script import check_directives, encode_script, with_default_outputs
from redbox.slurm.text.error_messages import SPEAKER, classify, with_cure, words_of
from redbox.slurm.text.sbatch_options import Directive, read_directives, read_options
from redbox.slurm.text.values import TIME_FORMAT
from redbox_api.job_parts import Resources
from redbox_api.models import Check, JobRequest

ENVIRONMENT: dict[str, str] = {}
CHECK_ENVIRONMENT = TIME_FORMAT
JOB_ID = re.compile(r"^([0-9]+)(?:;(\S+))?$", re.MULTILINE)
WOULD_START = re.compile(r"Job [0-9]+ to start at ([0-9]+) using (.*)")
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
    """One call; `placeholder` stands in argv for the descriptor from which sbatch reads `export`."""

    argv: tuple[str, ...]
    script: bytes
    export: bytes
    placeholder: str


def build_call(
    submission: Submission, script: str, account_env: Mapping[str, str], placeholder: str
) -> SbatchCall:
    """The call that submits this; raises RequestRefused where the request cannot become a job."""
    request = submission.request
    data = encode_script(script)
    directives = list(read_directives(script))
    check_directives(directives)
    if not _names_output(request, directives):
        array = request.array is not None or any(d.name == "array" for d in directives)
        data = with_default_outputs(data, array=array)
    argv = [
        "sbatch",
        "--parsable",
        *read_options(request.options),
        *_resources(request.resources),
        *_fields(request),
        *_within_limits(request, directives, submission.limits),
        *_ours(submission, placeholder),
    ]
    # 22.05 makes (null) of %x in an output's name where the job's environment does not say it.
    env = {**account_env, "SLURM_JOB_NAME": submission.job_name, **request.env}
    return SbatchCall(tuple(argv), data, encode_environment(env), placeholder)


def build_check_call(call: SbatchCall) -> SbatchCall:
    """The same call, asking only whether it would be taken.

    Without the job's environment: with it sbatch forgets its own, and so how it should write times.
    """
    argv = [word for word in call.argv if not word.startswith("--export-file=")]
    return SbatchCall((*argv, "--test-only"), call.script, b"", call.placeholder)


def encode_environment(env: Mapping[str, str]) -> bytes:
    """NUL-separated, as --export-file takes it: any value arrives as it is."""
    try:
        return b"".join(f"{name}={value}".encode() + b"\0" for name, value in env.items())
    except UnicodeEncodeError as error:
        raise RequestRefused("env: a value holds a character that is none.") from error


def _names_output(request: JobRequest, directives: Iterable[Directive]) -> bool:
    in_script = any(directive.name in ("output", "error") for directive in directives)
    return in_script or request.output is not None or request.error is not None


def _resources(resources: Resources) -> list[str]:
    asked = {option: getattr(resources, field) for field, option in RESOURCES.items()}
    return [f"--{option}={value}" for option, value in asked.items() if value is not None]


def _fields(request: JobRequest) -> list[str]:
    asked = {
        "qos": request.qos,
        "array": request.array,
        "begin": request.begin,
        "output": request.output,
        "error": request.error,
    }
    return [f"--{option}={value}" for option, value in asked.items() if value is not None]


def _within_limits(request: JobRequest, directives: list[Directive], limits: Limits) -> list[str]:
    said = {directive.name: directive.value for directive in directives}
    partition = _limited("partition", request.partition, said.get("partition"), limits.partitions)
    account = _limited("account", request.account, said.get("account"), limits.accounts)
    chosen = {"partition": partition, "account": account}
    return [f"--{option}={value}" for option, value in chosen.items() if value is not None]


def _limited(
    what: str, field: str | None, in_script: str | None, allowed: frozenset[str] | None
) -> str | None:
    """The field's word, else the script's where there are limits, else the only one that is allowed."""
    if allowed is None:
        return field
    wanted = field or in_script
    if wanted is None and len(allowed) == 1:
        return next(iter(allowed))
    if wanted is None:
        raise RequestRefused(
            f"{what}: name one of those that you may use here: {', '.join(sorted(allowed))}."
        )
    strangers = [name for name in wanted.split(",") if name not in allowed]
    if strangers:
        raise RequestRefused(
            f"{what}: {', '.join(strangers)} may not be used here; "
            f"allowed: {', '.join(sorted(allowed)) or 'none'}."
        )
    return wanted


def _ours(submission: Submission, placeholder: str) -> list[str]:
    """What nothing may undo, so it comes last."""
    request = submission.request
    ours = [
        f"--job-name={submission.job_name}",
        f"--chdir={submission.working_directory}",
        f"--comment={submission.mark}",
        f"--export-file=/proc/self/fd/{placeholder}",  # by path: a het job reads it again for each part
    ]
    if submission.dependencies:
        ours.append(f"--dependency={','.join(submission.dependencies)}")
    if request.env:  # a script's --export=NONE would drop them
        ours.append("--export=ALL")
    if request.hold or submission.held:
        ours.append("--hold")
    return ours


def read_submit(code: int, stdout: bytes, stderr: bytes) -> SubmitOutcome:
    """An id means that Slurm has taken the job, whatever else was said or which exit code came of it."""
    found = JOB_ID.findall(stdout.decode("utf-8", "replace"))
    if found:
        return SubmitAccepted(job_id=found[-1][0], warnings=read_warnings(stderr))
    if code != 0:
        return classify(code, stderr)
    return SubmitUnknown(f"sbatch ended well but printed no job id. {words_of(stderr)}".strip())


def read_warnings(stderr: bytes) -> tuple[str, ...]:
    """Warnings come on stderr with success; they are for the caller to see."""
    lines = (SPEAKER.sub("", line).strip() for line in stderr.decode("utf-8", "replace").splitlines())
    return tuple(line for line in lines if line)


def read_check(code: int, stderr: bytes) -> Check:
    """What --test-only says, all of it on stderr."""
    words = words_of(stderr).replace("allocation failure: ", "")
    found = WOULD_START.search(words)
    if code != 0 or found is None:
        nothing = f"sbatch ended with exit code {code} and said nothing."
        return Check(valid=False, detail=with_cure(words) or nothing)
    return Check(
        valid=True,
        would_start_at=datetime.fromtimestamp(int(found[1]), UTC),
        detail=f"It would use {found[2]}.",
    )
