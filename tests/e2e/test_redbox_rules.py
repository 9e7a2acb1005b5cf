"""Accounts and partitions of a mapping rule: no script gets round them, as Slurm itself shows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from redbox_api.errors import NotAccepted
from redbox_bed.bed import Bed
from tests.e2e.asking import submit
from tests.e2e.redbox_server import CLUSTER, RedboxServer, running

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
