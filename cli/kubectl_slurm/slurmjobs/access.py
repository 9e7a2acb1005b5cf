"""SlurmJobs at the API server: found by name or by Slurm's job id, listed, changed, and watched."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from kubectl_slurm.errors import JobTrouble, NotAnswered, NotPermitted, ObjectNotFound, Refusal
from kubectl_slurm.kubectl.program import SLURMJOBS, Kubectl
from kubectl_slurm.kubectl.refusals import refusal_of
from kubectl_slurm.slurmjobs.job import SlurmJobView, without_kind

GONE = 410
WATCH_S = 240
ARRAY_ID = re.compile(r"([0-9]+)_(?:([0-9]+)|\[.*\])")
MOST_REFUSALS = 6
"""In a row: an API server that has just started refuses for a moment; an expired login does for ever."""
PAUSES_S = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0)
MOST_SILENCES = 20
"""Beyond these: so often more, with the last pause, an API server that does not answer at all is asked."""


def list_jobs(kubectl: Kubectl, *, everywhere: bool = False) -> list[SlurmJobView]:
    """SlurmJobs of the namespace, or of all that the user may see; the oldest first."""
    scope = ["--all-namespaces"] if everywhere else []
    found = kubectl.json("get", SLURMJOBS, *scope)["items"]
    jobs = [SlurmJobView(obj) for obj in found]
    return sorted(jobs, key=lambda job: (job.metadata.get("creationTimestamp", ""), job.name))


def get_job(kubectl: Kubectl, text: str) -> SlurmJobView:
    """The SlurmJob of this name, or of this Slurm job id, also as `queue` shows that of an array."""
    name = without_kind(text)
    if name == text and (name.isdecimal() or ARRAY_ID.fullmatch(name)):
        return pick_job(kubectl, list_jobs(kubectl), text)
    return SlurmJobView(kubectl.json("get", SLURMJOBS, "--", name))


def pick_job(kubectl: Kubectl, jobs: Sequence[SlurmJobView], text: str) -> SlurmJobView:
    """As get_job, among the jobs of the namespace.

    A SlurmJob may have a number for its name, which is somebody else's job id: such a number names neither.
    """
    name = without_kind(text)
    if array := ARRAY_ID.fullmatch(text):
        if array[2]:
            raise Refusal(
                f"{name} is a task, a SlurmJob is a whole array: name that, {array[1]}; logs, shell, exec "
                f"and cp take --task {array[2]}"
            )
        return _of_id(kubectl, jobs, array[1])
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
        return _of_id(kubectl, jobs, text)
    raise ObjectNotFound(f"there is no SlurmJob {name} in namespace {kubectl.namespace}")


def job_of_id(kubectl: Kubectl, job_id: str) -> SlurmJobView:
    """The SlurmJob that has this job id, whatever has it for a name."""
    return _of_id(kubectl, list_jobs(kubectl), job_id)


def _of_id(kubectl: Kubectl, jobs: Sequence[SlurmJobView], job_id: str) -> SlurmJobView:
    """Of one Slurm cluster, which uses ids again, the job that has not ended, or else the newest.

    Jobs of two clusters are refused, also where all but one have ended: a SlurmEndpoint is a tenant's own
    server, which may report the id of another's job.
    """
    same = [job for job in jobs if job.job_id == job_id]
    unfinished = [job for job in same if not job.finished]
    if not same:
        raise ObjectNotFound(
            f"no SlurmJob of namespace {kubectl.namespace} is Slurm job {job_id}: `kubectl slurm queue "
            "--states all` lists them with their ids"
        )
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
    selector = f"--field-selector=involvedObject.uid={uid},involvedObject.kind={kind}"
    try:
        found: list[dict[str, Any]] = kubectl.json("get", "events", selector)["items"]
    except NotPermitted:
        return []
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
