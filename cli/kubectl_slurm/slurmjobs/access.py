"""SlurmJobs at the API server: found by name or by Slurm's job id, listed, changed, and watched."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from kubectl_slurm.errors import BadUsage, JobTrouble, NotAnswered, NotPermitted, ObjectNotFound, Refusal
from kubectl_slurm.kubectl.program import SLURMJOBS, Kubectl
from kubectl_slurm.kubectl.refusals import LISTED, refusal_of
from kubectl_slurm.slurmjobs.job import SlurmJobView, without_kind
from redbox_shared.requested_actions import MOST_TASKS

GONE = 410
WATCH_S = 240
TASK = re.compile(r"(.+)_([0-9]{1,10})")
PART = re.compile(r"(.+)_(?:([0-9]{1,10})|\[(.*)\])")
"""No name of Kubernetes has a `_`."""
RANGE = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")
OF_TASKS = "logs, shell, exec, cp, forward and cancel"
MOST_REFUSALS = 6
"""In a row: an API server that has just started refuses for a moment; an expired login does for ever."""
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
MOST_SILENCES = 20
"""Beyond these: so often more, with the last pause, an API server that does not answer at all is asked."""


def list_jobs(kubectl: Kubectl, *, everywhere: bool = False) -> list[SlurmJobView]:
    """SlurmJobs of the namespace, or of all that the user may see; the oldest first."""
    scope = ["--all-namespaces"] if everywhere else []
    found = kubectl.json("get", SLURMJOBS, *scope)["items"]
    return sorted(map(SlurmJobView, found), key=oldest_first)


def oldest_first(job: SlurmJobView) -> tuple[str, str]:
    """For a sort."""
    return job.metadata.get("creationTimestamp", ""), job.name


def get_job(kubectl: Kubectl, text: str) -> SlurmJobView:
    """The SlurmJob of this name, or of this Slurm job id, also as `queue` shows that of an array."""
    name = without_kind(text)
    if text.startswith("pod/"):
        raise BadUsage(f"{text} is no SlurmJob: use kubectl itself, as in `kubectl describe {text}`")
    if PART.fullmatch(text) or (name == text and name.isdecimal()):
        return pick_job(kubectl, list_jobs(kubectl), text)
    return SlurmJobView(kubectl.json("get", SLURMJOBS, "--", name))


def get_job_or_task(kubectl: Kubectl, text: str) -> tuple[SlurmJobView, int | None]:
    """As get_job, or of NAME_3 or 4711_3 the array, and the index of the task."""
    found = TASK.fullmatch(text)
    return get_job(kubectl, found[1] if found else text), int(found[2]) if found else None


def get_part(kubectl: Kubectl, text: str) -> tuple[SlurmJobView, list[int]]:
    """Of NAME_3 and 4711_[1-3,7] the array and its tasks; none where `queue` shows the whole of it so."""
    part = PART.fullmatch(text)
    job = get_job(kubectl, part[1] if part else text)
    if part is None or is_whole(job, part):
        return job, []
    if not job.is_array:
        raise BadUsage(f"{job.name} is not an array, so it has no tasks")
    return job, indexes_in(part[2] or part[3])


def is_whole(array: SlurmJobView, part: re.Match[str]) -> bool:
    return part[3] is not None and part[3] == str(array.spec.get("array"))


def indexes_in(text: str) -> list[int]:
    """Of `1-3,7`."""
    found: list[int] = []
    for word in text.split(","):
        bounds = RANGE.fullmatch(word)
        first, last = (int(bounds[1]), int(bounds[2] or bounds[1])) if bounds else (1, 0)
        if last < first:
            raise BadUsage(f"{text!r} are not tasks of an array: 3, 1-3 or 1,7")
        found += range(first, min(last, first + MOST_TASKS) + 1)
    if len(found) > MOST_TASKS:
        raise BadUsage(f"{text} is more than {MOST_TASKS} tasks: cancel the whole array, or fewer at a time")
    return found


def pick_job(kubectl: Kubectl, jobs: Sequence[SlurmJobView], text: str) -> SlurmJobView:
    """As get_job, among the jobs of the namespace.

    A SlurmJob may have a number for its name, which is somebody else's job id: such a number names neither.
    """
    name = without_kind(text)
    if part := PART.fullmatch(text):
        array = pick_job(kubectl, jobs, part[1])
        if is_whole(array, part):
            return array
        raise BadUsage(
            f"{text} is a part of an array, and this is about whole SlurmJobs: name the array, {part[1]}; "
            f"{OF_TASKS} take a task"
        )
    named = [job for job in jobs if job.name == name]
    of_id = [job for job in jobs if job.job_id == text and job not in named]
    if named and of_id:
        raise Refusal(
            f"{name} is the name of a SlurmJob, and the Slurm job id of {of_id[-1].name}: write "
            f"slurmjob/{name} or {of_id[-1].name}"
        )
    if named:
        return named[0]
    if text.isdecimal():
        return job_of_id(kubectl, jobs, text)
    raise ObjectNotFound(f"there is no SlurmJob {name} in namespace {kubectl.namespace}")


def job_of_id(kubectl: Kubectl, jobs: Sequence[SlurmJobView], job_id: str) -> SlurmJobView:
    """The SlurmJob that has this job id, whatever has it for a name.

    Of one Slurm cluster, which uses ids again, the job that has not ended, or else the newest.

    Jobs of two clusters are refused, also where all but one have ended: a SlurmEndpoint is a tenant's own
    server, which may report the id of another's job.
    """
    same = [job for job in jobs if job.job_id == job_id]
    unfinished = [job for job in same if not job.finished]
    if not same:
        raise ObjectNotFound(f"no SlurmJob of namespace {kubectl.namespace} is Slurm job {job_id}: {LISTED}")
    if len({job.cluster_key for job in same}) > 1 or len(unfinished) > 1:
        found = ", ".join(f"{job.name} (of {job.cluster or job.endpoint})" for job in same)
        raise Refusal(f"Slurm job {job_id} is more than one SlurmJob: write the name of one of {found}")
    return (unfinished or same)[-1]


def patch(kubectl: Kubectl, job: SlurmJobView, change: dict[str, Any]) -> SlurmJobView:
    """A merge patch, of this very SlurmJob."""
    change = {**change, "metadata": {**change.get("metadata", {}), "uid": job.uid}}
    words = ["patch", SLURMJOBS, "--type=merge", f"--patch={json.dumps(change)}", "--", job.name]
    return SlurmJobView(kubectl.json(*words))


def events_of(kubectl: Kubectl, kind: str, uid: str) -> list[dict[str, Any]]:
    """The events of an object, the oldest first; none where the user may not read them."""
    try:
        return list_events(kubectl, kind, uid)
    except NotPermitted:
        return []


def list_events(kubectl: Kubectl, kind: str, uid: str) -> list[dict[str, Any]]:
    """As events_of; NotPermitted where the user may not read them."""
    selector = f"--field-selector=involvedObject.uid={uid},involvedObject.kind={kind}"
    found: list[dict[str, Any]] = kubectl.json("get", "events", selector)["items"]
    return sorted(
        found, key=lambda event: event.get("lastTimestamp") or event["metadata"]["creationTimestamp"]
    )


class Retries:
    """Of what breaks for a moment: pauses that grow, and a sentence at the first."""

    def __init__(self, say: Callable[[str], None], *, silences: int = 0) -> None:
        """`silences`: how many more are waited for than of other faults."""
        self._say = say
        self._silences = silences
        self._failures = 0

    def succeeded(self) -> None:
        self._failures = 0

    def wait_after(self, fault: Exception) -> None:
        """Raises the fault where there were too many in a row."""
        silences = self._silences if isinstance(fault, NotAnswered) else 0
        if self._failures >= len(PAUSES_S) + silences:
            raise fault
        if not self._failures:
            self._say(f"{fault}; trying again, the job is not affected")
        time.sleep(PAUSES_S[min(self._failures, len(PAUSES_S) - 1)])
        self._failures += 1


def watch_job(
    kubectl: Kubectl, job: SlurmJobView, *, say: Callable[[str], None], until: datetime | None = None
) -> Iterator[SlurmJobView]:
    """The SlurmJob as it is, then after each change; ends with it, or at a time.

    What breaks is begun again: the API server may restart, and the laptop sleep.
    """
    retries = Retries(say, silences=0 if until else MOST_SILENCES)
    while True:
        try:
            yield job
            for change in _changes(kubectl, job, until):
                retries.succeeded()
                job = change
                yield job
            if until is not None and datetime.now(until.tzinfo) >= until:
                return
            current = get_again(kubectl, job)
            retries.succeeded()
        except ObjectNotFound as gone:
            raise JobTrouble(f"{job.name} was deleted, and its job cancelled") from gone
        except Refusal as refusal:
            retries.wait_after(refusal)
            continue
        job = current


def get_again(kubectl: Kubectl, job: SlurmJobView) -> SlurmJobView:
    """The same SlurmJob; ObjectNotFound where another one has its name."""
    found = SlurmJobView(kubectl.json("get", SLURMJOBS, "--", job.name))
    if found.uid != job.uid:
        raise ObjectNotFound(f"{job.name} is another SlurmJob now")
    return found


def _changes(kubectl: Kubectl, job: SlurmJobView, until: datetime | None) -> Iterator[SlurmJobView]:
    left = timedelta(seconds=WATCH_S) if until is None else until - datetime.now(until.tzinfo)
    seconds = max(1, min(WATCH_S, int(left.total_seconds())))
    query = {
        "watch": "true",
        "fieldSelector": f"metadata.name={job.name}",
        "resourceVersion": job.version,
        "timeoutSeconds": str(seconds),
    }
    path = f"/apis/redbox.dev/v1alpha1/namespaces/{job.namespace}/slurmjobs?{urlencode(query)}"
    with kubectl.process("get", "--raw", path) as (process, errors):
        for line in process.stdout or ():
            if not line.endswith(b"\n"):
                break  # half an event: the connection broke, and kubectl says why
            event = _read_event(line)
            if event["type"] == "ERROR":
                if event["object"].get("code") == GONE:
                    return
                raise Refusal(str(event["object"].get("message", "the watch failed")))
            if event["type"] == "DELETED":
                raise ObjectNotFound(f"{job.name} was deleted")
            if event["type"] != "BOOKMARK":
                yield SlurmJobView(event["object"])
        code = process.wait()
    if code:
        raise refusal_of(errors.text(), kubectl.namespace_option)


def _read_event(line: bytes) -> dict[str, Any]:
    try:
        event: dict[str, Any] = json.loads(line)
    except ValueError:
        raise Refusal(f"the watch is not answered by an API server: {line[:80]!r}") from None
    return event
