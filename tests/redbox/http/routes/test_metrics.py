"""Slurm's metrics over HTTP: who may read them, and what is answered where there are none."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from redbox.core.gauges import FamilyOfGauges, MetricFamily, NamedGauge, number
from redbox.core.workload_manager import WorkloadManagerError
from redbox_shared.printable import printable
from tests.redbox.http.harness import Stand, standing

HOSTILE = 'x"} 1\nslurm_jobs 99'


class Source:
    """What a workload manager counts."""

    serves_users_accounts = False

    def __init__(self) -> None:
        self.fault: Exception | None = None

    async def family(self, name: MetricFamily) -> FamilyOfGauges:
        if self.fault:
            raise self.fault
        waiting = NamedGauge("slurm_partition_jobs_pending", "Waiting", {"debug": 3, HOSTILE: 1}, "partition")
        return FamilyOfGauges((number("slurm_partitions", f"Of {name}", 2), waiting), {"partition": 4})


def samples(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for metric in text_string_to_metric_families(text)
        for sample in metric.samples
    }


async def test_the_role_metrics_reads_them_in_prometheus_format() -> None:
    async with standing(slurm_metrics=Source()) as stand, stand.by_token("metrics") as http:
        answer = await http.get("/metrics/slurm/partitions")
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert samples(answer.text) == {
            ("slurm_partitions",): 2,
            ("slurm_partition_jobs_pending", "debug"): 3,
            ("slurm_partition_jobs_pending", printable(HOSTILE)): 1,
            ("redbox_slurm_metrics_left_out", "partition"): 4,
            ("redbox_slurm_metrics_available", "partitions"): 1,
        }
        assert (await http.get("/metrics")).status_code == 200
        assert (await http.get("/v1/jobs")).status_code == 403


@pytest.mark.parametrize("who", ["reader", "operator", "volumes", "limited"])
async def test_other_roles_do_not(who: str) -> None:
    async with standing(slurm_metrics=Source()) as stand, stand.by_token(who) as http:
        answer = await http.get("/metrics/slurm/jobs")
    assert answer.status_code == 403
    assert "a rule with the role metrics" in answer.json()["detail"]


async def test_where_slurm_does_not_answer_there_is_no_number_and_a_sentence() -> None:
    source = Source()
    source.fault = WorkloadManagerError("squeue gave no answer\nwithin 15 s")
    async with standing(slurm_metrics=source) as stand, stand.by_token("metrics") as http:
        answer = await http.get("/metrics/slurm/jobs")
    assert answer.status_code == 200
    assert answer.text.splitlines()[0] == "# squeue gave no answer within 15 s"
    assert samples(answer.text) == {("redbox_slurm_metrics_available", "jobs"): 0}


async def test_users_and_accounts_are_served_only_where_the_settings_say_so() -> None:
    source = Source()
    async with standing(slurm_metrics=source) as stand, stand.by_token("metrics") as http:
        answer = await http.get("/metrics/slurm/users-accounts")
        assert answer.status_code == 404
        assert "slurm.metrics.users_accounts" in answer.json()["detail"]
        source.serves_users_accounts = True
        assert (await http.get("/metrics/slurm/users-accounts")).status_code == 200


async def test_a_family_that_there_is_not(stand: Stand) -> None:
    async with stand.by_token("metrics") as http:
        assert (await http.get("/metrics/slurm/steps")).status_code == 422
