"""What became of a pod's containers, as the runner on the node reports it: a line for each change.

Each line is the whole report, so the last whole line is all that counts. The file is the user's own: its
content is checked as a stranger's would be. States have the form that Kubernetes' ContainerStatus has.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

LONGEST_REPORT = 256 * 1024
LONGEST_MESSAGE = 4096
MAX_EVENTS = 32
Word = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z][A-Za-z0-9]*$")]
Sentence = Annotated[str, Field(max_length=LONGEST_MESSAGE)]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)


def _within_bounds(time: datetime) -> datetime:
    """The nearest time that can be written in each time zone: a clock, or a stranger, may be far off."""
    return min(max(time, EARLIEST), LATEST)


Time = Annotated[AwareDatetime, AfterValidator(_within_bounds)]


def inputs_digest(inputs: str) -> str:
    """As the runner reports it; of no inputs nothing."""
    return hashlib.sha256(inputs.encode()).hexdigest()[:16] if inputs else ""


class ReportModel(BaseModel):
    """Base of what the runner reports; fields of later runners are ignored."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True)


class Waiting(ReportModel):
    """It waits: ContainerCreating, PodInitializing, ErrImagePull, ImagePullBackOff, CrashLoopBackOff, ..."""

    reason: Word
    message: Sentence = ""


class Running(ReportModel):
    """It runs."""

    started_at: Time


class Terminated(ReportModel):
    """It has ended."""

    exit_code: Annotated[int, Field(ge=0, le=255)]
    reason: Word
    message: Sentence = ""
    signal: Annotated[int | None, Field(ge=1, le=64)] = None
    started_at: Time | None = None
    finished_at: Time


class ContainerState(ReportModel):
    """Exactly one of the three; none: not yet known."""

    waiting: Waiting | None = None
    running: Running | None = None
    terminated: Terminated | None = None


class ContainerReport(ReportModel):
    """One container."""

    name: Annotated[str, Field(max_length=63)]
    kind: Literal["init", "sidecar", "main", "ephemeral"] = "main"
    image_id: Annotated[str, Field(alias="imageID", max_length=512)] = ""
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    ready: bool = False
    started: bool = False
    restart_count: Count = 0
    """The number of its newest start, from 0: while it waits for the next one, still that of the last."""


class PodEvent(ReportModel):
    """Something to tell the pod's owner: Pulling, Pulled, Started, BackOff, Unhealthy, Killing, ..."""

    number: Count
    """Counts from 1 within the job's run; the same number is the same event."""
    type: Literal["Normal", "Warning"] = "Normal"
    reason: Word
    message: Sentence
    container: Annotated[str, Field(max_length=63)] = ""
    at: Time


class ChosenPort(ReportModel):
    """A declared port of the pod, and the one of the node that took its place."""

    port: Annotated[int, Field(ge=1, le=65535)]
    node_port: Annotated[int, Field(ge=1024, le=65535)]
    """Never one that a service of the node itself may have."""


class PodReport(ReportModel):
    """The pod."""

    version: Literal[1] = 1
    at: Time
    done: bool = False
    """Every container has ended for good: nothing follows."""
    stopped: bool = False
    """A signal came before that: containers that ended well may not have finished."""
    settled: bool = False
    """Nothing but the end can change it: red-box reads the next report when the job has ended.

    The runner sets it once all containers have started or ended for good, where no end leads to a restart and
    none is to be shown before the pod's (so only of one main container), nothing has a probe, and no
    ephemeral container runs. False is always right, and costs a read a second. A report that is not settled
    may follow one that was: red-box reads it then, if it has passed on the order that led to it.
    """
    reason: Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9]*$")] = ""
    """Of the pod: DeadlineExceeded, Evicted (an emptyDir over its limit), StartError, ..."""
    message: Sentence = ""
    node_name: Annotated[str, Field(max_length=253)] = ""
    host_ip: Annotated[str, Field(alias="hostIP", max_length=64)] = ""
    ports: Annotated[list[ChosenPort], Field(max_length=64)] = []
    """Of a pod with dynamic ports."""
    inputs: Annotated[str, Field(max_length=64, pattern=r"^[0-9a-f]*$")] = ""
    """The digest of the inputs (`PodProgram.inputs`) that its containers see."""
    containers: Annotated[list[ContainerReport], Field(max_length=160)] = []
    events: Annotated[list[PodEvent], Field(max_length=MAX_EVENTS)] = []
    """The last ones."""

    @property
    def chosen_ports(self) -> dict[int, int]:
        """The ports of the node, by those that the pod declares."""
        return {each.port: each.node_port for each in self.ports}
