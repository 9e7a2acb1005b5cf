"""What the runner of a pod reports, as the record keeps it, and the end that follows from it. Pure.

The report is the text of a stranger: it is bounded, checked against `PodReport`, and at worst ignored. The
last one counts; `done` is the runner's last word, so nothing after it does.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache

from pydantic import ValidationError

from redbox.jobs.record.record import JobRecord, with_warning
from redbox.jobs.record.report_text import report_text
from redbox_api.models import Phase
from redbox_api.pod_report import (
    LONGEST_REPORT,
    ContainerReport,
    PodReport,
    Terminated,
    inputs_digest,
)

UNUSABLE = "The last line of the pod's report.jsonl is not a runner's report: it is ignored."
UNREADABLE = "The pod's last report could not be read in time: what became of its containers is not known."
SHOWN_LATE_S = 5.0
ENDED_BY_SLURM = frozenset({"BOOT_FAIL", "CANCELLED", "DEADLINE", "NODE_FAIL", "PREEMPTED", "TIMEOUT"})
"""States of jobs that did not end by themselves."""
KEPT = 512  # of the reports of pods that a page or a watch shows again and again


@lru_cache(maxsize=KEPT)
def stored_report(text: str) -> PodReport | None:
    """The report of a record; None: it has none, or an earlier release took what this one does not."""
    try:
        return PodReport.model_validate_json(text) if text else None
    except ValidationError:
        return None


def parse_report(line: bytes) -> PodReport | None:
    """The report that a line is; None for anything else, whatever it is."""
    if len(line) > LONGEST_REPORT:
        return None
    try:
        return PodReport.model_validate_json(line)
    except (ValidationError, RecursionError):
        return None


def with_line(record: JobRecord, line: bytes, addresses: Collection[str] = ()) -> JobRecord:
    """The record after this line of the runner's; with one warning, however many lines are not reports.

    `addresses` are those of the job's first node: no other one is taken from a report.
    """
    if not line or record.report_complete:
        return record
    report = parse_report(line)
    if report is None:
        return with_warning(record, UNUSABLE)
    if report.host_ip and report.host_ip not in addresses:
        report = report.model_copy(update={"host_ip": next(iter(addresses), "")})
    return replace(
        record,
        pod_report=report_text(report),
        report_settled=report.done or (report.settled and has_updates(record, report)),
        report_complete=report.done,
    )


def has_updates(record: JobRecord, report: PodReport) -> bool:
    """Whether the runner has applied the last update: before that it may report that it cannot."""
    return report.inputs == inputs_digest(record.pod_inputs)


def has_last_report(record: JobRecord, now: datetime) -> bool:
    """Whether no later report will be shown of a pod that has ended, and whose report was read since.

    A file system may show the runner's last line some seconds after Slurm has shown the end; of a pod that
    got no node nothing follows.
    """
    if record.report_complete or not record.status.nodes or record.ending_since is None:
        return True
    return now - record.ending_since >= timedelta(seconds=SHOWN_LATE_S)


def final_report(record: JobRecord) -> PodReport | None:
    """The report that all containers of this record's pod have ended for good, if there is one."""
    report = stored_report(record.pod_report) if record.is_pod else None
    return report if report is not None and report.done else None


def reported_phase(record: JobRecord) -> Phase | None:
    """The end by the runner's last word; None without one: then Slurm's state counts.

    It counts too where programs ended well on the signal by which Slurm ended their job, since they may not
    have finished, or where they had not started by then.
    """
    report = final_report(record)
    if report is None:
        return None
    mains = [container for container in report.containers if container.kind == "main"]
    ends = [container.state.terminated for container in mains]
    succeeded = bool(ends) and all(end is not None and end.exit_code == 0 for end in ends)
    if report.reason or failed_container(report):
        return Phase.FAILED
    if _is_cut_short(record, report):
        return None
    return Phase.SUCCEEDED if succeeded else Phase.FAILED


def _is_cut_short(record: JobRecord, report: PodReport) -> bool:
    """Whether Slurm ended the job before its containers had ended by themselves."""
    return report.stopped and record.status.state in ENDED_BY_SLURM


def failed_container(report: PodReport) -> tuple[ContainerReport, Terminated] | None:
    """Of which container the exit code is the pod's: the first main one that failed, else init container.

    A sidecar is ended by its runner, and has no part in it.
    """
    for kind in ("main", "init"):
        for container in report.containers:
            end = container.state.terminated
            if container.kind == kind and end is not None and end.exit_code:
                return container, end
    return None


def explain_end(record: JobRecord) -> str | None:
    """A sentence about a pod that failed by its report; None where Slurm's state says why."""
    report = final_report(record)
    if report is None or record.phase is not Phase.FAILED:
        return None
    if report.reason:
        return f"{report.reason}: {report.message}" if report.message else f"The pod failed: {report.reason}."
    failed = failed_container(report)
    if failed is None and _is_cut_short(record, report):
        return None
    if failed is None:
        return "Not all containers of the pod ran to their end."
    container, end = failed
    return f"Container {container.name} ended with exit code {end.exit_code} ({end.reason})."


def is_followed(record: JobRecord) -> bool:
    """Whether its report is worth reading now; a settled one is once Slurm no longer shows its job alive."""
    if not record.is_pod or record.job_id is None or record.final:
        return False
    if record.awaits_report or record.absent_since is not None:
        return not record.report_complete
    return record.phase in (Phase.RUNNING, Phase.SUSPENDED) and not record.report_settled
