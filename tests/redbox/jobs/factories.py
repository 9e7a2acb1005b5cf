"""A record, observations of its job, and the state machine of a Slurm cluster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from redbox.core.domain import JobKey, Owner, UnixUser
from redbox.core.observations import Observation
from redbox.jobs.record.record import JobRecord, Stage
from redbox.jobs.record.state_machine import StateMachine
from redbox.jobs.settings import JobsSettings
from redbox.slurm.text.states import JOB_STATES
from redbox_api.models import Phase

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RECORD = JobRecord(
    key=JobKey(Owner("kube", "ns", "default", "u"), "key"),
    user=UnixUser("alice", 2001),
    mark="rb1.x",
    body_id="b",
    created_at=NOW,
    last_submit_at=NOW,
    stage=Stage.BOUND,
    job_id="7",
    bound_at=NOW,
    phase=Phase.PENDING,
)


MACHINE = StateMachine(JOB_STATES, JobsSettings())


def seen(state: str, *, live: bool = True, **facts: Any) -> Observation:
    return Observation(job_id="7", uid=2001, mark="rb1.x", state=state, live=live, **facts)


def after(*observations: Observation, seconds: float = 0.0, record: JobRecord = RECORD) -> JobRecord:
    for number, observation in enumerate(observations):
        now = NOW + timedelta(seconds=seconds * number)
        record = MACHINE.observe(record, observation, now)
    return record
