"""A PUT as `jobs` decides about it, and what it means beside a record that exists. Pure.

The same key and the same body are the same job; bodies are compared by the caller's digest of its spec if
there is one. Another body is a conflict, and so is another Unix user: the mapping changed, and the job did
not.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from redbox.core.domain import Caller, JobKey, JobShape, UnixUser
from redbox.core.workload_manager import Submission
from redbox.jobs.errors import Forbidden, JobConflict, NotAcceptable, Tombstoned
from redbox.jobs.record.limits import violation_of
from redbox.jobs.record.marks import Marks, key8
from redbox.jobs.record.packed_records import RecordSummary
from redbox.jobs.record.record import JobRecord, Stage, shared
from redbox.jobs.settings import JobsSettings
from redbox_api.models import JobRequest
from redbox_api.pod_parts import PodProgram
from redbox_shared.sbatch_options import (
    HET_SEPARATOR,
    NAMES,
    directive_lines,
    first_component,
    leading_lines,
    read_directives,
)

DEFAULT_NAME = "redbox"
LONGEST_NAME = 128
LONGEST_PATH = 4096
LONGEST_DIRECTIVES = 16 << 10
LONGEST_LEADING = 256 << 10
MOST_WORDS_BYTES = 32 << 10
"""Six times as long at most in the agent's header, which has 256 KiB."""
LONGEST_GRACE_S = 10**6
RUNNERS_END_S = 15
"""Beyond a pod's own grace: preStop gets two seconds more, then containers are killed and folders removed."""
OPEN_MODE = re.compile(r"""--op[a-z-]{0,16}(?:=|\s+)["']?(?P<appends>a)?""", re.IGNORECASE)
UNCERTAIN_LINE = re.compile(r"^(?:#PBS|#SBATCH\s+(?:hetjob|packjob)\b)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PutRequest:
    """An authorized PUT: what is submitted, and what tells it from another PUT of the same key."""

    key: JobKey
    user: UnixUser
    submission: Submission
    body_id: str
    body_digest: str


def put_request(
    caller: Caller, user: UnixUser, key: JobKey, request: JobRequest, *, marks: Marks, settings: JobsSettings
) -> PutRequest:
    """The PUT with everything that its record and its submission need."""
    refuse_endless_directives(request)
    refuse_endless_words(request)
    body_digest = marks.body_digest(request)
    body_id = marks.body_id(request, body_digest)
    submission = Submission(
        request=request,
        mark=marks.make(key, body_id, user.uid),
        job_name=job_name(request),
        working_directory=directory_of(settings.directory, key, request),
        limits=caller.limits,
    )
    return PutRequest(key, user, submission, body_id, body_digest)


UNSAFE = re.compile(r"[/{%\\]")  # path separators, our own placeholders, sbatch's file name patterns


def directory_of(template: str, key: JobKey, request: JobRequest) -> str:
    """The request's, else its script's --chdir, which may be below the administrator's, else that."""
    if request.working_directory:
        return request.working_directory
    default = default_directory(template, key, request)
    named = _option_of_script(request, "chdir")
    if not named or not named.isprintable() or len(named) > LONGEST_PATH:
        return default
    return posixpath.normpath(posixpath.join(default, named))


def default_directory(template: str, key: JobKey, request: JobRequest) -> str:
    """The administrator's template; `{home}` stays in it, for only the user's agent knows it."""
    names = {
        "namespace": key.owner.namespace,
        "account": key.owner.account,
        "name": request.name or job_name(request),
    }
    path = template
    for name, value in names.items():
        path = path.replace("{" + name + "}", UNSAFE.sub("_", value))
    return f"{path}-{key8(key.key)}"


def job_name(request: JobRequest) -> str:
    """The option's, the script's own, else the request's: actions are bound to it, so there always is one."""
    options = (option.partition("=") for option in reversed(request.options))
    named = next((value for option, _, value in options if option == "--job-name"), None)
    name = named or _option_of_script(request, "job-name") or request.name or DEFAULT_NAME
    return "".join(c for c in name if c.isprintable())[:LONGEST_NAME] or DEFAULT_NAME


def appends(request: JobRequest) -> bool | None:
    """Whether each run appends to its output file, by the request's options or its script; None: neither."""
    lines = (line for line in directive_lines(first_component(request.batch or "")) if line[1] == "S")
    words = (*(line.partition(" #")[0] for line in lines), *request.options)  # an option wins
    modes = [mode for word in words for mode in OPEN_MODE.finditer(word)]
    return modes[-1]["appends"] is not None if modes else None


def _option_of_script(request: JobRequest, name: str) -> str | None:
    """Of its first component; the last of several counts."""
    directives = read_directives(first_component(request.batch or ""))
    return next((line.value for line in reversed(directives) if line.name == name), None)


def shape_of(request: JobRequest) -> JobShape | None:
    """None where it is not certain.

    sbatch reads PBS's options too, no line behind the first command, and options that this red-box does not
    know, each of which may take the word behind it as its value.
    """
    script = request.batch or ""
    if request.array is not None:
        return JobShape.ARRAY
    if UNCERTAIN_LINE.search(script):
        return JobShape.HETEROGENEOUS if HET_SEPARATOR.search(leading_lines(script)) else None
    names = {line.name for line in read_directives(script)} if "#SBATCH" in script else set()
    if "array" in names:
        return JobShape.ARRAY
    return JobShape.PLAIN if names <= NAMES else None


def refuse_endless_directives(request: JobRequest) -> None:
    """Before they are parsed, which takes up to a microsecond of the event loop for each character."""
    leading = leading_lines((request.batch or "")[: LONGEST_LEADING + 1])
    if len(leading) > LONGEST_LEADING:
        raise NotAcceptable(
            f"batch: more than {LONGEST_LEADING >> 10} KiB come before its first command: remove comments "
            "and empty lines."
        )
    length = sum(map(len, directive_lines(leading)))
    if length > LONGEST_DIRECTIVES:
        raise NotAcceptable(
            f"batch: its #SBATCH lines have {length} characters in all, more than {LONGEST_DIRECTIVES}. Give "
            "options by fields of the request, or shorter ones."
        )


def refuse_endless_words(request: JobRequest) -> None:
    """The agent's header has no room for them: the submit would be tried without end."""
    arguments, options = _bytes_of(request.arguments), _bytes_of(request.options)
    paths = _bytes_of(filter(None, (request.working_directory, request.output, request.error)))
    if arguments + options + paths > MOST_WORDS_BYTES:
        most = MOST_WORDS_BYTES >> 10
        if arguments < options:
            raise NotAcceptable(
                f"options: more than {most} KiB in all, with arguments and paths: give fewer or shorter ones."
            )
        raise NotAcceptable(
            f"arguments: more than {most} KiB in all, with options and paths: put them into a file."
        )


def _bytes_of(words: Iterable[str]) -> int:
    return sum(len(word.encode(errors="replace")) for word in words)


def refuse_new_pod(request: JobRequest, record: RecordSummary | None, settings: JobsSettings) -> None:
    """Where the administrator wants no pods; the same request of one that there is, is answered."""
    if request.pod is not None and not settings.pods and record is None:
        raise Forbidden(
            "Pods are turned off at this red-box: its administrator turns them on by jobs.pods in its "
            "settings. A SlurmJob with a container runs."
        )


def refuse_beyond_limits(submission: Submission) -> None:
    """A rule's accounts and partitions; those that the request does not name are left to the submission."""
    request = submission.request
    found = violation_of(submission.limits, account=request.account or "", partition=request.partition or "")
    if found is not None:
        raise Forbidden(
            f"The {found.what} {found.named} is not among those that the mapping allows you: {found.allowed}."
        )


def new_intent(put: PutRequest, now: datetime, unanswered_at: datetime | None) -> JobRecord:
    """The first record of a key; held if a submit of the server before this one may still arrive."""
    submission = put.submission
    container, pod = submission.request.container, submission.request.pod
    return JobRecord(
        key=replace(put.key, owner=shared(put.key.owner)),
        user=shared(put.user),
        mark=submission.mark,
        body_id=put.body_id,
        body_digest=put.body_digest,
        spec_digest=submission.request.spec_digest,
        job_name=submission.job_name,
        shape=shape_of(submission.request),
        working_directory=submission.working_directory,
        hold=submission.request.hold,
        limits=shared(submission.limits),
        appends=appends(submission.request),
        credentials=pod is not None or (container is not None and container.registry is not None),
        is_pod=pod is not None,
        grace_s=grace_of(pod) if pod is not None else 0,
        pod_inputs=pod.inputs if pod is not None else "",
        created_at=now,
        last_submit_at=now,
        held_retry=unanswered_at is not None,
        unanswered_at=unanswered_at,
    )


def grace_of(pod: PodProgram) -> int:
    """How long its runner may take from SIGTERM to its end, preStop and its own last report included."""
    return min(pod.termination_grace_s, LONGEST_GRACE_S) + RUNNERS_END_S


def retried_intent(record: JobRecord, put: PutRequest, now: datetime) -> JobRecord:
    """An unconfirmed intent that a live PUT submits once more, held."""
    pod = put.submission.request.pod
    return replace(
        record,
        pod_inputs=pod.inputs if pod is not None else "",
        stage=Stage.INTENT,
        last_submit_at=now,
        held_retry=True,
        unanswered_at=record.last_submit_at,
        body_digest=put.body_digest,
        job_name=put.submission.job_name,
        shape=shape_of(put.submission.request),
        limits=shared(put.submission.limits),
        appends=appends(put.submission.request),
        working_directory=put.submission.working_directory,
    )


def refuse_unless_same(record: JobRecord, put: PutRequest) -> None:
    """Raise unless the PUT asks for this very job."""
    if record.user.uid != put.user.uid:
        raise JobConflict(
            f"The key {record.key.key} belongs to a job of another Unix user ({record.user.name}) from "
            "before your mapping changed. Use another key."
        )
    if record.stage is Stage.NEVER:
        raise tombstoned(record.key)
    if record.body_id != put.body_id:
        raise conflict(record.key)


def conflict(key: JobKey) -> JobConflict:
    return JobConflict(
        f"The key {key.key} (attempt {key.attempt}) already stands for another request. A job is not "
        "changed by submitting it again: use another key, or delete this job."
    )


def tombstoned(key: JobKey) -> Tombstoned:
    return Tombstoned(
        f"The key {key.key} (attempt {key.attempt}) was deleted before it was submitted: it stays deleted."
    )


def body_changed(record: JobRecord, put: PutRequest) -> bool:
    """Whether the bodies differ although the caller's digests are equal: a rotated secret, for example."""
    return record.body_digest is not None and record.body_digest != put.body_digest
