"""When Slurm is asked for its metrics, and when there are none."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pytest

from redbox.agents.protocol.answers import CommandResult
from redbox.core.gauges import MetricFamily
from redbox.core.workload_manager import WorkloadManagerError
from redbox.slurm.commands import counted_jobs
from redbox.slurm.metric_queries import MetricQueries
from redbox.slurm.settings import MetricsSettings, SlurmSettings
from redbox.slurm.slurm_manager import SlurmManager
from tests.redbox.slurm.captured import output
from tests.redbox.slurm.fakes import REDBOX, Answer, ScriptedAgents, SkippingClock, argv_option, done, late

JOB = {"State": "PENDING", "Partition": "debug", "UserName": "alice", "Account": "physics", "NumNodes": "1"}


def show(*jobs: dict[str, str]) -> Answer:
    """An squeue of these jobs."""

    def answer(argv: list[str]) -> CommandResult:
        ends = [word.partition(":")[2] for word in argv_option(argv, "--Format").split(",")]
        return done(
            "".join(
                "".join(
                    job.get(name, "N/A") + end for name, end in zip(counted_jobs.FIELDS, ends, strict=True)
                )
                for job in jobs
            )
        )

    return answer


class Stand:
    """A Slurm, its metrics, and a clock."""

    def __init__(
        self, answers: Mapping[str, Answer | list[Answer]] | None = None, *, most: int = 2000
    ) -> None:
        self.clock = SkippingClock()
        self.agents = ScriptedAgents({
            "squeue": show(JOB),
            "scontrol --oneliner --all --detail show node": done(output("24.11", "counted-nodes.txt")),
            "scontrol --oneliner --all show partition": done(output("24.11", "counted-partitions.txt")),
            "sdiag --json": done(output("24.11", "sdiag.json")),
            "sdiag": done(output("24.11", "sdiag.txt")),
            **(answers or {}),
        })  # fmt: skip
        settings = SlurmSettings(metrics=MetricsSettings(values_of_a_label=most, users_accounts=True))
        self.metrics: MetricQueries = SlurmManager(self.agents, REDBOX, settings, clock=self.clock).metrics

    async def number(self, family: MetricFamily, name: str, value: str = "") -> float:
        found = await self.metrics.family(family)
        return next(gauge.samples[value] for gauge in found.gauges if gauge.name == name)

    def calls(self, begin: str) -> int:
        return len(self.agents.called(begin))


async def test_however_often_they_are_scraped_slurm_is_asked_once_in_thirty_seconds() -> None:
    stand = Stand()
    for _ in range(5):
        for family in MetricFamily:
            await stand.metrics.family(family)
    asked = {"squeue": 1, "scontrol --oneliner --all --detail show node": 1, "sdiag": 1}
    assert {begin: stand.calls(begin) for begin in asked} == asked
    stand.clock.ahead += 31
    await stand.metrics.family(MetricFamily.JOBS)
    assert {begin: stand.calls(begin) for begin in asked} == {**asked, "squeue": 2}


async def test_under_private_data_there_are_none_and_slurm_is_not_asked() -> None:
    config = output("24.11", "config.txt").replace(
        "PrivateData             = none", "PrivateData = accounts,users"
    )
    stand = Stand({"scontrol show config": done(config)})
    for family in MetricFamily:
        with pytest.raises(WorkloadManagerError, match=r"PrivateData \(accounts, users\)"):
            await stand.metrics.family(family)
    assert not stand.calls("squeue")
    assert not stand.calls("sdiag")


async def test_private_data_that_is_set_later_hides_them_within_half_a_minute() -> None:
    """squeue then shows red-box's account none of the jobs: its zeros would scale everything down."""
    config = output("24.11", "config.txt")
    private = config.replace("PrivateData             = none", "PrivateData = jobs")
    stand = Stand({"scontrol show config": [done(config), done(private)]})
    assert await stand.number(MetricFamily.JOBS, "slurm_jobs_pending") == 1
    stand.clock.ahead += 31
    with pytest.raises(WorkloadManagerError, match=r"PrivateData \(jobs\)"):
        await stand.metrics.family(MetricFamily.JOBS)


@pytest.mark.parametrize(
    "squeue",
    [late(), done(stderr="Unable to contact slurm controller", code=1), done("a record without an end")],
)
async def test_an_old_number_is_never_served_for_a_new_one(squeue: CommandResult) -> None:
    stand = Stand({"squeue": [show(JOB), squeue, show(JOB, JOB)]})
    assert await stand.number(MetricFamily.JOBS, "slurm_jobs_pending") == 1
    stand.clock.ahead += 31
    with pytest.raises(WorkloadManagerError):
        await stand.metrics.family(MetricFamily.JOBS)
    stand.clock.ahead += 6
    assert await stand.number(MetricFamily.JOBS, "slurm_jobs_pending") == 2


async def test_partitions_and_users_beyond_the_bound_are_left_out_and_counted() -> None:
    jobs = [{**JOB, "UserName": f"u{number}", "Partition": f"p{number}"} for number in range(10)]
    stand = Stand({"squeue": show(*jobs, {**JOB, "UserName": "u7", "Account": 'a"}{'})}, most=3)
    found = await stand.metrics.family(MetricFamily.USERS_ACCOUNTS)
    (users,) = [gauge.samples for gauge in found.gauges if gauge.name == "slurm_user_jobs"]
    assert users == {"u0": 1, "u1": 1, "u7": 2}
    assert found.left_out == {"username": 7, "account": 0}
    nodes = await stand.metrics.family(MetricFamily.PARTITIONS)
    assert nodes.left_out["partition"] >= 1
    assert await stand.number(MetricFamily.JOBS, "slurm_jobs") == 11


async def test_an_sdiag_without_json_is_read_as_text() -> None:
    stand = Stand({"sdiag --json": done(stderr="sdiag: unrecognized option '--json'", code=1)})
    assert await stand.number(MetricFamily.SCHEDULER, "slurm_sdiag_jobs_submitted") > 0
    stand.clock.ahead += 31
    await stand.metrics.family(MetricFamily.SCHEDULER)
    assert stand.calls("sdiag --json") == 1
    assert stand.calls("sdiag") == 3
    nonsense = Stand({"sdiag --json": done(json.dumps({"statistics": []})), "sdiag": done("hello\n")})
    with pytest.raises(WorkloadManagerError, match="could not be parsed"):
        await nonsense.metrics.family(MetricFamily.SCHEDULER)


async def test_an_sdiag_that_met_no_slurmctld_is_asked_for_json_again() -> None:
    away = done(stderr="sdiag: error: Unable to contact slurm controller", code=1)
    stand = Stand({"sdiag --json": [away, done(output("24.11", "sdiag.json"))]})
    as_text = await stand.metrics.family(MetricFamily.SCHEDULER)
    assert "slurm_schedule_cycle_tot" not in {gauge.name for gauge in as_text.gauges}
    stand.clock.ahead += 301
    assert await stand.number(MetricFamily.SCHEDULER, "slurm_schedule_cycle_tot") > 0
