"""What a PUT asks for, and what it means beside what is already there. Pure.

The same key and the same body are the same job; sameness is judged by the caller's digest of its spec where
it gives one. Another body is a conflict, and so is another Unix user: the mapping changed, and the job did
not.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile

from redbox.core.domain import Caller, JobKey, UnixUser
from redbox.core.workload_manager import Submission
from redbox.jobs.errors import Forbidden, JobConflict, Tombstoned
from redbox.jobs.record.limits import violation_of
from redbox.jobs.record.marks import Marks, key8
from redbox.jobs.record.record import JobRecord, Stage, shared
from redbox.jobs.settings import JobsSettings
from redbox_api.models import JobRequest

DEFAULT_NAME = "redbox"
NAME_DIRECTIVE = re.compile(
    r"""#SBATCH\s+(?:-J\s*|--job-name(?:=|\s+))(?:["'](?P<quoted>[^"']+)["']|(?P<plain>[^\s"']+))"""
)
OPEN_MODE = re.compile(r"""--op[a-z-]*(?:=|\s+)["']?(?P<appends>a)?""", re.IGNORECASE)
HET_SEPARATOR = re.compile(r"#SBATCH\s+(hetjob|packjob)\b")


@dataclass(frozen=True, slots=True)
class PutRequest:
    """A PUT of a caller who may submit."""

    key: JobKey
    user: UnixUser
    caller: Caller
    request: JobRequest
    mark: str
    body_id: str
    body_digest: str
    working_directory: str


def order_for(
    caller: Caller, user: UnixUser, key: JobKey, request: JobRequest, *, marks: Marks, settings: JobsSettings
) -> PutRequest:
    """A PUT with all that its record will need."""
    body_id = marks.body_id(request)
    directory = request.working_directory or default_directory(settings.directory, key, request)
    mark = marks.make(key, body_id, user.uid)
    return PutRequest(key, user, caller, request, mark, body_id, marks.body_digest(request), directory)


UNSAFE = re.compile(r"[/{%\\]")  # path separators, our own placeholders, sbatch's file name patterns


def default_directory(template: str, key: JobKey, request: JobRequest) -> str:
    """The administrator's template; `{home}` stays in it, for only the user's agent knows it."""
    names = {"namespace": key.owner.namespace, "account": key.owner.account, "name": job_name(request)}
    path = template
    for name, value in names.items():
        path = path.replace("{" + name + "}", UNSAFE.sub("_", value))
    return f"{path}-{key8(key.key)}"


def job_name(request: JobRequest) -> str:
    """The request's, else the script's own: acts are bound to the name, so that it must always be known."""
    name = request.name or DEFAULT_NAME
    if request.name is None:
        for found in filter(None, map(NAME_DIRECTIVE.match, _directives(request.batch or ""))):
            name = found["quoted"] or found["plain"]
    return "".join(c for c in name if c.isprintable())[:128] or DEFAULT_NAME


def appends(request: JobRequest) -> bool | None:
    """Whether each run writes behind its output file, as the request's options or its script say."""
    directives = (line for line in _directives(request.batch or "") if line.startswith("#SBATCH"))
    words = (*(line.partition(" #")[0] for line in directives), *request.options)  # an option wins
    said = [found for several in words for found in OPEN_MODE.finditer(several)]
    return said[-1]["appends"] is not None if said else None


def _directives(script: str) -> Iterator[str]:
    """The lines that sbatch reads for its first component: up to the first command."""
    comments = takewhile(lambda line: line.startswith("#") or not line.strip(), script.splitlines())
    return takewhile(lambda line: HET_SEPARATOR.match(line) is None, comments)


def refuse_beyond_limits(order: PutRequest) -> None:
    """A rule's accounts and partitions; what the request does not name is passed on with the submission."""
    request = order.request
    found = violation_of(
        order.caller.limits, account=request.account or "", partition=request.partition or ""
    )
    if found is not None:
        raise Forbidden(
            f"The {found.what} {found.named} is not among those that the mapping allows you: {found.allowed}."
        )


def new_record(order: PutRequest, now: datetime) -> JobRecord:
    """The intent, before anybody has heard of it."""
    container = order.request.container
    return JobRecord(
        key=replace(order.key, owner=shared(order.key.owner)),
        user=shared(order.user),
        mark=order.mark,
        body_id=order.body_id,
        body_digest=order.body_digest,
        spec_digest=order.request.spec_digest,
        job_name=job_name(order.request),
        working_directory=order.working_directory,
        hold=order.request.hold,
        limits=shared(order.caller.limits),
        appends=appends(order.request),
        credentials=container is not None and container.registry is not None,
        created_at=now,
        last_submit_at=now,
    )


def tried_again(record: JobRecord, order: PutRequest, now: datetime) -> JobRecord:
    """A doubtful intent that a live PUT submits once more."""
    return replace(
        record,
        stage=Stage.INTENT,
        last_submit_at=now,
        held_retry=True,
        unanswered_at=record.last_submit_at,
        body_digest=order.body_digest,
        job_name=job_name(order.request),
        limits=shared(order.caller.limits),
        appends=appends(order.request),
        working_directory=order.working_directory,
    )


def refuse_unless_same(record: JobRecord, order: PutRequest) -> None:
    """Raise unless the PUT asks for this very job."""
    if record.user.uid != order.user.uid:
        raise JobConflict(
            f"The key {record.key.key} belongs to a job of another Unix user ({record.user.name}) from "
            "before your mapping changed. Use another key."
        )
    if record.stage is Stage.NEVER:
        raise tombstoned(record.key)
    if record.body_id != order.body_id:
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


def body_changed(record: JobRecord, order: PutRequest) -> bool:
    """Equal by its digest, and yet another body: a secret was rotated, say."""
    return record.body_digest is not None and record.body_digest != order.body_digest


def submission(order: PutRequest, dependencies: tuple[str, ...], *, held: bool) -> Submission:
    """For the workload manager."""
    return Submission(
        request=order.request,
        mark=order.mark,
        job_name=job_name(order.request),
        working_directory=order.working_directory,
        directory_key=key8(order.key.key),
        limits=order.caller.limits,
        dependencies=dependencies,
        held=held and not order.request.hold,
    )
