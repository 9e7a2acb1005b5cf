"""The user's guide, followed on the bed: each section's commands, in order, as alice would type them."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from redbox_bed.bed import Bed
from redbox_bed.places import CHECKOUT
from tests.e2e.slurmjobs import SlurmJobs
from tests.e2e.test_slurm_containers import BUILD
from tests.e2e.volumes import claim_of

GUIDE = (CHECKOUT / "docs/user-guide.md").read_text()
EXAMPLES = CHECKOUT / "examples"
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", GUIDE, re.MULTILINE | re.DOTALL))
COMMANDS = {
    title: re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for title, text in SECTIONS.items()
}
WITHIN_S = 180
LEFTOVERS = (
    "secret/weather-service",
    "configmap/site",
    "configmap/scripts",
)  # of others, or of a run that failed


@pytest.fixture(scope="module")
def alice(bed: Bed, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Her environment: kubectl on the path, her namespace, a claim, and an image on the Slurm cluster."""
    SlurmJobs.on(bed)
    bed.host("login").run("sh", "-c", BUILD, user="alice", timeout=120)
    claim_of(bed, "alice", "results")
    kubeconfig = tmp_path_factory.mktemp("alice") / "kubeconfig"
    kubeconfig.write_bytes(bed.places.kubeconfig.read_bytes())
    program = bed.places.state / "bin"
    environment = {
        "PATH": f"{program}:{os.environ['PATH']}",
        "KUBECONFIG": str(kubeconfig),
        "HOME": str(kubeconfig.parent),
    }
    subprocess.run(
        [program / "kubectl", "config", "set-context", "--current", "--namespace=alice"],
        env=environment,
        check=True,
        capture_output=True,
    )
    for leftovers in (["slurmjobs", "--all"], [*LEFTOVERS]):
        delete = ["kubectl", "delete", "--ignore-not-found", *leftovers]
        subprocess.run(delete, env=environment, check=True, cwd=EXAMPLES)
    return environment


@pytest.mark.timeout(WITHIN_S + 60)
@pytest.mark.parametrize("title", [title for title, commands in COMMANDS.items() if commands])
def test_each_command_of_the_section_works(title: str, alice: dict[str, str]) -> None:
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", "".join(COMMANDS[title])],
        env=alice,
        cwd=EXAMPLES,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_an_example_is_shown_as_it_is(example: Path) -> None:
    assert f"```yaml\n{example.read_text()}```" in GUIDE
