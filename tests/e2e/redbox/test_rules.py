"""Accounts and partitions of a mapping rule: no script gets round them, nor does a plugin of Slurm's."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from redbox_api.errors import NotAccepted
from redbox_api.models import Phase
from redbox_bed.bed import Bed
from tests.e2e.harness.redbox_jobs import ended, started, submit, until
from tests.e2e.harness.redbox_server import CLUSTER, RedboxServer, running
from tests.e2e.harness.slurm_settings import configured
from tests.e2e.harness.waiting import eventually

ALLOWED = "debug physics"
LIMITED = {
    "cluster": CLUSTER,
    "namespaces": ["alices"],
    "user": "alice",
    "partitions": ["debug"],
    "accounts": ["physics"],
}
HET = "#SBATCH -n1\n#SBATCH hetjob\n"
TRICKS = {
    "a plain line": "#SBATCH --partition=GPU_big --account=biology",
    "short forms": "#SBATCH -pGPU_big -Abiology",
    "abbreviations": "#SBATCH --part GPU_big --acc biology",
    "quotes": "#SBATCH '--parti''tion=GPU_big' \"-Abiology\"",
    "one of several": "#SBATCH --partition=debug,GPU_big",
    "PBS": "#PBS -q GPU_big -A biology",
    "a component": f"{HET}#SBATCH -n1 -p GPU_big -A biology",
    "a component between others": f"{HET}#SBATCH -p GPU_big -A biology\n{HET}#SBATCH -p debug",
    "a component of PBS": f"{HET}#PBS -q GPU_big -A biology\n#SBATCH -n1",
    "a word that hides another": f"{HET}#SBATCH -n1 -O -pGPU_big -p debug -A physics",
}
PLUGIN = """
function slurm_job_submit(job, partitions, uid)
    if job.name == "moved" or job.time_limit == 7 then job.partition = "long" end
    if job.name == "charged" then job.account = "biology" end
    return slurm.SUCCESS
end
function slurm_job_modify(job, change, partitions, uid)
    return slurm.SUCCESS
end
return slurm.SUCCESS
"""


@pytest.fixture(scope="module")
def limiting(bed: Bed) -> Iterator[RedboxServer]:
    with running(bed, sections={"mapping": {"rules": [LIMITED]}}) as server:
        yield server


@pytest.mark.parametrize("trick", TRICKS)
async def test_a_script_does_not_get_round_a_rule(limiting: RedboxServer, trick: str) -> None:
    async with limiting.client_of_account("alices") as alice:
        try:
            key = await submit(alice, TRICKS[trick], "sleep 60")
        except NotAccepted:
            return
        job_id = (await alice.get_job(key)).job_id
    given = limiting.login.run("squeue", "--noheader", f"--jobs={job_id}", "--Format=Partition: ,Account:")
    assert {line.strip() for line in given.stdout.splitlines()} == {ALLOWED}


@pytest.fixture(scope="module")
def with_plugin(bed: Bed) -> Iterator[None]:
    """A site whose job_submit plugin has a mind of its own."""
    controller = bed.host("ctl")
    controller.write("/etc/slurm/job_submit.lua", PLUGIN)
    with configured(bed, "JobSubmitPlugins=lua"):
        yield
    controller.run("rm", "/etc/slurm/job_submit.lua")


@pytest.mark.usefixtures("with_plugin")
@pytest.mark.parametrize(
    ("name", "given"), [("moved", "partition long"), ("charged", "account biology")], ids=str
)
async def test_a_job_that_a_plugin_takes_out_of_its_rule_is_cancelled_and_told_why(
    limiting: RedboxServer, name: str, given: str
) -> None:
    async with limiting.client_of_account("alices") as alice:
        key = await submit(alice, "exec sleep 600", name=name)
        job = await ended(alice, key)
        kept = await submit(alice, "exec sleep 600", name="kept")
        await started(alice, kept)
        assert (await alice.get_job(kept)).warnings == []
        await alice.cancel_job(kept)
    assert job.phase is Phase.CANCELLED
    assert f"Slurm gave the job {given}, which the mapping does not allow" in (job.message or "")
    shown = limiting.login.run(
        "squeue", "--noheader", "--states=all", f"--jobs={job.job_id}", "--Format=State"
    )
    assert shown.stdout.strip() == "CANCELLED"


@pytest.mark.usefixtures("with_plugin")
async def test_a_plugin_that_moves_a_later_component_takes_the_whole_job_out_of_its_rule(
    limiting: RedboxServer,
) -> None:
    async with limiting.client_of_account("alices") as alice:
        key = await submit(alice, f"{HET}#SBATCH --time=7", "exec sleep 600")
        job = await ended(alice, key)
    assert job.phase is Phase.CANCELLED
    assert "Slurm gave the job partition debug,long, which" in (job.message or "")

    def last_told() -> tuple[str, str, str]:
        told = json.loads(limiting.login.read(f"{limiting.folder}/audit.log").splitlines()[-1])
        return told["caller"], told["act"], told["job_id"]

    eventually(lambda: last_told() == ("red-box", "cancel", job.job_id))


async def test_what_a_user_changes_later_is_between_the_user_and_slurm(limiting: RedboxServer) -> None:
    async with limiting.client_of_account("alices") as alice:
        key = await submit(alice, "true", hold=True)
        job = await until(alice, key, lambda job: job.state == "PENDING")
        limiting.login.run("scontrol", "update", f"JobId={job.job_id}", "Partition=long", user="alice")
        job = await until(alice, key, lambda job: job.partition == "long")
        assert (job.phase, job.cancel_requested, job.warnings) == (Phase.PENDING, False, [])
        await alice.cancel_job(key)
