"""A queue that a user has filled is read, and at a bounded price."""

from __future__ import annotations

import threading

from pydantic import BaseModel, field_validator

from redbox_api.limits.answer_limits import AnswerLimits
from redbox_hosting.build.config.slurm_conf import MOST_JOBS, cluster_files
from redbox_hosting.slurm.errors import SlurmUnknown
from tests.hosting.factories import inputs
from tests.hosting.slurm.scripted_server import response
from tests.hosting.slurm.test_client import JOB, asking, fails

CONTAINERS_OF_A_JOB = 62


async def test_as_many_jobs_as_slurmctld_takes_are_read() -> None:
    padding = b"[" + b",".join([b"[]"] * MOST_JOBS * CONTAINERS_OF_A_JOB) + b"]"
    async with asking(response(b'{"jobs": [], "padding": ' + padding + b"}")) as (client, _):
        assert await client.jobs() == ()
    assert AnswerLimits().containers < MOST_JOBS * CONTAINERS_OF_A_JOB


async def test_other_answers_stay_within_narrower_bounds() -> None:
    padding = b"[" + b",".join([b"[]"] * AnswerLimits().containers) + b"]"
    said = await fails(response(b'{"nodes": [], "padding": ' + padding + b"}"), SlurmUnknown)
    assert "objects and lists" in said


def test_slurmctld_takes_no_more_jobs_whatever_a_user_writes() -> None:
    made = cluster_files(inputs({"extraConf": "MaxJobCount=1000000"}))
    assert [refusal.what for refusal in made.refused] == ["MaxJobCount"]
    assert f"MaxJobCount={MOST_JOBS}\n" in made.files["slurm.conf"]


async def test_jobs_that_name_the_same_nodes_share_one_list() -> None:
    waiting = {**JOB, "job_state": ["PENDING"], "nodes": "", "required_nodes": "w-[0-99]"}
    rows = [{**waiting, "job_id": number} for number in (1, 2)] + [{**JOB, "nodes": "w-[0-99]"}]
    async with asking(response({"jobs": rows})) as (client, _):
        first, second, running = await client.jobs()
    assert first.required_nodes is second.required_nodes is running.nodes
    assert len(running.nodes) == 100


class WhereItIsRead(BaseModel):
    """Says which thread has validated it."""

    thread: int

    @field_validator("thread", mode="before")
    @classmethod
    def _own(cls, _: object) -> int:
        return threading.get_ident()


async def test_an_answer_is_not_read_on_the_event_loop() -> None:
    async with asking(response({"thread": 0})) as (client, _):
        read = await client.ask("slurm", WhereItIsRead, "GET", "jobs/")
    assert read.thread != threading.get_ident()
