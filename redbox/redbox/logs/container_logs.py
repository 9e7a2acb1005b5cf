"""The log of one start of a pod's container: its file, and the state that the pod's report gives it.

Each start writes a file of its own. It is final once the report shows that this start has ended, or the job
is final: a reader gets the end then, as a kubelet's does, though the container may start again.
"""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass

from redbox.core.domain import JobKey
from redbox.jobs.record.pods import stored_report
from redbox.jobs.record.record import JobRecord
from redbox.jobs.service import JobService
from redbox.logs.interfaces import JobRecordDeleted, NoSuchContainer, OutputState
from redbox_api.pod_report import ContainerReport

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class LoggedStart:
    """One start of one container."""

    container: str
    restart: int

    @property
    def file_name(self) -> str:
        """The container is a DNS label here, whatever the report calls it."""
        return f"{self.container}-{self.restart}.log"


def reported_container(record: JobRecord, name: str) -> ContainerReport | None:
    report = stored_report(record.pod_report)
    containers = report.containers if report is not None else []
    return next((container for container in containers if container.name == name), None)


def container_start(record: JobRecord, name: str, restart: int | None) -> LoggedStart:
    """The start that is asked for, by default the newest; NoSuchContainer where none is reported."""
    if not record.is_pod:
        raise NoSuchContainer("This job is not a pod: it has no containers to choose from.")
    container = reported_container(record, name)
    if container is None:
        raise NoSuchContainer(f"No container {name} of this pod has been reported. {_reported_names(record)}")
    if restart is not None and restart > container.restart_count:
        raise NoSuchContainer(
            f"Container {name} has not been restarted {restart} times: {container.restart_count} so far."
        )
    return LoggedStart(name, container.restart_count if restart is None else restart)


def _reported_names(record: JobRecord) -> str:
    """The names to choose from; the report is a stranger's text, of which only DNS labels are shown."""
    report = stored_report(record.pod_report)
    containers = report.containers if report is not None else []
    names = [container.name for container in containers if DNS_LABEL.fullmatch(container.name)]
    return f"Its containers are {', '.join(names)}." if names else "It has not reported any yet."


def output_state(record: JobRecord, start: LoggedStart) -> OutputState:
    """Whether this start writes, and whether it will never write again. Pure."""
    container = reported_container(record, start.container)
    directory = record.status.working_directory or record.working_directory
    path = posixpath.join(directory, start.file_name) if directory.startswith("/") else None
    runs = ended = False
    if container is not None and start.restart <= container.restart_count:
        is_newest = start.restart == container.restart_count
        state = container.state
        between = state.waiting is not None and container.last_state.terminated is not None
        ended = not is_newest or state.terminated is not None or between
        runs = is_newest and state.running is not None
    final = ended or record.final
    return OutputState(path=path, run=int(runs or final), writing=runs and not final, final=final)


@dataclass
class ContainerOutputSource:
    """The output of one start, as `tail` follows it."""

    jobs: JobService
    key: JobKey
    start: LoggedStart

    def current(self) -> OutputState:
        record = self.jobs.current(self.key)
        if record is None:
            raise JobRecordDeleted(f"The job {self.key.key} was deleted from the journal.")
        return output_state(record, self.start)

    async def changed(self, since: OutputState) -> OutputState:
        while (state := self.current()) == since:
            await self.jobs.next_change()
        return state
