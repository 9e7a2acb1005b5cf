"""`explain`: why a job is where it is, what to do, and what led there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from kubectl_slurm.errors import PluginError
from kubectl_slurm.kubectl.program import Kubectl
from kubectl_slurm.options import Invocation, invocation_of, parser_of
from kubectl_slurm.slurmjobs.access import events_of, get_job, list_jobs
from kubectl_slurm.slurmjobs.clusters import ClusterView, ListedPartition, cluster_of
from kubectl_slurm.slurmjobs.following import with_partitions
from kubectl_slurm.slurmjobs.job import SlurmJobView, read_time
from kubectl_slurm.slurmjobs.reasons import cure_of, limits_met
from kubectl_slurm.slurmjobs.redbox.answers import JobTasks
from kubectl_slurm.slurmjobs.redbox.expected_start import expected_start
from kubectl_slurm.slurmjobs.redbox.requests import access_of_job
from kubectl_slurm.terminal.screen import one_line
from kubectl_slurm.terminal.table import Column, render
from kubectl_slurm.terminal.times import clock, elapsed
from redbox_shared.sbatch_options import read_duration

TEXT = "Why a job is where it is, what to do about it, and what led there."
SHOWN_EVENTS = 8
CONDITIONS = (
    Column("CONDITION", importance=9),
    Column("STATUS", importance=8),
    Column("REASON", importance=7),
    Column("SINCE", importance=3),
    Column("MESSAGE", importance=9),
)
EVENTS = (Column("LAST SEEN", importance=5), Column("EVENT", importance=8), Column("MESSAGE", importance=9))
DEPENDENCIES = (Column("WAITS FOR", importance=9), Column("UNTIL"), Column("STATE", importance=8))
ANY_DEPENDENCY = (Column("WAITS FOR ONE OF", importance=9), *DEPENDENCIES[1:])
UNTIL = {
    "afterok": "it has succeeded (afterok)",
    "afternotok": "it has failed (afternotok)",
    "afterany": "it has ended (afterany)",
    "after": "it has started (after)",
    "aftercorr": "the same task of it has succeeded (aftercorr)",
}
SHOWN_TASKS = 10
PHASES = {
    "Pending": "is not in Slurm yet",
    "Submitted": "waits in Slurm's queue",
    "Running": "runs",
    "Suspended": "is suspended",
}


def run(command: str, words: Sequence[str], given: Sequence[str], environment: Mapping[str, str]) -> int:
    parser = parser_of(command, TEXT)
    parser.add_argument("name", metavar="NAME", help="a SlurmJob, or its Slurm job id")
    options = parser.parse_args(words)
    call = invocation_of(options, given, environment)
    job = get_job(call.kubectl, options.name)
    for paragraph in _paragraphs(call, job):
        call.screen.write(paragraph)
    return 0


def _paragraphs(call: Invocation, job: SlurmJobView) -> Iterator[str]:
    cluster = _cluster(call.kubectl, job)
    yield _headline(job)
    lines = dict(_facts(call.kubectl, job, cluster))
    longest = max(map(len, lines), default=0)
    for name, text in lines.items():
        yield f"  {call.screen.paint(f'{name}:'.ljust(longest + 1), 'bold')} {one_line(text)}"
    if depends := [*_dependencies(call.kubectl, job.spec)]:
        is_any = bool(job.spec.get("dependsOnAny"))
        yield "\n" + render(ANY_DEPENDENCY if is_any else DEPENDENCIES, depends, call.screen)
    if conditions := job.status.get("conditions"):
        yield "\n" + render(CONDITIONS, [_condition(item) for item in conditions], call.screen)
    events = [*events_of(call.kubectl, "SlurmJob", job.uid), *_pod_events(call.kubectl, job)]
    if events:
        yield "\n" + render(EVENTS, [_event(event) for event in events[-SHOWN_EVENTS:]], call.screen)


def _headline(job: SlurmJobView) -> str:
    place = f" on {job.node_list}" if job.node_list and job.phase in {"Running", "Suspended"} else ""
    if job.finished:
        what = f"ended {job.state or job.phase}"
    elif job.being_cancelled:
        what = "is being cancelled" + (
            ": its SlurmJob is gone when Slurm has ended it" if job.being_deleted else ""
        )
    else:
        what = PHASES.get(job.phase, f"is {job.phase}") + place
    since = job.ended_at or job.started_at if job.has_begun else job.submitted_at
    ago = f", {elapsed((datetime.now(UTC) - since).total_seconds())} ago" if since and job.finished else ""
    took = (
        ""
        if job.finished or since is None
        else f", for {elapsed((datetime.now(UTC) - since).total_seconds())}"
    )
    return one_line(f"{job.name} {what}{ago or took}.")


def _facts(kubectl: Kubectl, job: SlurmJobView, cluster: ClusterView | None) -> Iterator[tuple[str, str]]:
    if job.in_slurm:
        of = f" of {job.user}" if job.user else ""
        where = f" on {job.cluster or job.endpoint}" + (
            f", partition {job.partition}" if job.partition else ""
        )
        again = f"; attempt {job.attempt}" if job.attempt > 1 else ""
        yield "Job", f"Slurm job {job.job_id}{of}{where}{again}" + (f", run {job.run}" if job.run > 1 else "")
    message = with_partitions(kubectl, job) if job.finished and not job.in_slurm else job.message
    reason = f" [{job.reason}]" if job.reason and job.reason != "None" and not job.running else ""
    if message or reason:
        yield "Why", f"{message}{reason}".strip()
    partition = _partition(cluster, job)
    if not job.finished and (met := limits_met(job, partition)):
        yield "Limit", "; ".join(met)
    if cure := cure_of(job):
        yield "What to do", cure
    if job.phase == "Submitted":
        yield "Starts", expected_start(kubectl, job, cluster)
    yield from _times(job)
    yield from _places(job)
    if failed := failed_tasks(kubectl, job):
        yield "Failed tasks", failed
    if cluster is not None and cluster.trouble and not job.finished:
        yield "Old", f"what is shown may be old: {cluster.trouble}"
    if partition is not None and partition.state not in {"up", ""}:
        yield (
            "Partition",
            f"{partition.name} is {partition.state}"
            + (f": {partition.obj.get('reason')}" if partition.obj.get("reason") else ""),
        )
    if not job.finished and (pod := _pod_trouble(kubectl, job)):
        yield "Its pod", pod


def _times(job: SlurmJobView) -> Iterator[tuple[str, str]]:
    for name, at in (
        ("Submitted", job.submitted_at),
        ("Started", job.started_at if job.has_begun else None),
        ("Ended", job.ended_at),
    ):
        if at is not None:
            yield name, clock(at)
    if job.time_limit and not job.finished:
        limit_s = read_duration(job.time_limit)
        yield "Time limit", job.time_limit if limit_s is None else elapsed(limit_s)


def _places(job: SlurmJobView) -> Iterator[tuple[str, str]]:
    """Its directory and the files of its output, on the Slurm cluster."""
    if job.working_directory:
        yield "Directory", f"{job.working_directory} on {job.cluster or job.endpoint}"
    stdout, stderr = job.status.get("stdout"), job.status.get("stderr")
    if stdout:
        yield "Stdout" if stderr != stdout else "Output", stdout
    if stderr and stderr != stdout:
        yield "Stderr", stderr


def failed_tasks(kubectl: Kubectl, job: SlurmJobView) -> str:
    """Of an array, with the command that shows their output; red-box alone knows which they are."""
    count = int((job.status.get("array") or {}).get("failed") or 0)
    if not count:
        return ""
    try:
        access = access_of_job(kubectl, job)
        tasks = access.get(JobTasks, f"/v1/jobs/{job.uid}?attempt={job.attempt}").tasks
    except PluginError as error:
        return f"{count}; which they are is not known: {error}"
    failed = [task for task in tasks if task.phase == "Failed"]
    shown = [f"{task.index} ({task.words})" for task in failed[:SHOWN_TASKS]]
    shown += [f"{len(failed) - SHOWN_TASKS} more"] if len(failed) > SHOWN_TASKS else []
    how = f"`kubectl slurm logs {job.name}_{failed[0].index}` shows the output of one" if failed else ""
    return "; ".join(filter(None, (", ".join(shown) or str(count), how)))


def _cluster(kubectl: Kubectl, job: SlurmJobView) -> ClusterView | None:
    try:
        return cluster_of(kubectl, job)
    except PluginError:
        return None  # no right to read it, or not one that is named


def _partition(cluster: ClusterView | None, job: SlurmJobView) -> ListedPartition | None:
    partitions = cluster.partitions if cluster else []
    return next(
        (
            item
            for item in partitions
            if item.name == job.partition or (not job.partition and item.is_default)
        ),
        None,
    )


def _dependencies(kubectl: Kubectl, spec: Mapping[str, Any]) -> Iterator[list[str]]:
    depends = spec.get("dependsOn") or ()
    for item in spec.get("dependsOnJobs") or ():
        yield [item["jobID"], UNTIL[item.get("type") or "afterok"], "a job of Slurm that is no SlurmJob"]
    jobs = {job.name: job for job in list_jobs(kubectl)} if depends else {}
    for item in depends:
        other = jobs.get(item["name"])
        state = f"{other.phase} {other.state}".strip() if other else "there is no such SlurmJob yet"
        yield [item["name"], UNTIL[item.get("type") or "afterok"], state]


def _condition(item: Mapping[str, Any]) -> list[str]:
    since = clock(read_time(item.get("lastTransitionTime")))
    return [item["type"], item["status"], item.get("reason", ""), since, item.get("message", "")]


def _event(event: Mapping[str, Any]) -> list[str]:
    at = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"]
    return [clock(read_time(at)), event.get("reason", ""), event.get("message", "")]


def _pod_events(kubectl: Kubectl, job: SlurmJobView) -> list[dict[str, Any]]:
    """Warnings about its pod, while that is what it waits for."""
    uid = (job.status.get("companion") or {}).get("uid")
    if job.in_slurm or not uid:
        return []
    return [event for event in events_of(kubectl, "Pod", uid) if event.get("type") == "Warning"]


def _pod_trouble(kubectl: Kubectl, job: SlurmJobView) -> str:
    """Why its pod does not run."""
    code, _, _ = kubectl.outcome("get", "pod", "--output=name", "--", job.pod)
    if code:
        return ""
    pod = kubectl.json("get", "pod", "--", job.pod)
    status = pod.get("status", {})
    waiting = [
        state["waiting"]
        for item in status.get("containerStatuses") or ()
        if "waiting" in (state := item.get("state") or {})
    ]
    words = [f"{item.get('reason', '')} {item.get('message', '')}".strip() for item in waiting]
    unscheduled = [
        str(item.get("message"))
        for item in status.get("conditions") or ()
        if item.get("type") == "PodScheduled" and item.get("status") == "False"
    ]
    text = "; ".join([*words, *unscheduled])
    return f"{job.pod} does not run: {text}" if text and text != "ContainerCreating" else ""
