"""The tutorial and the user's guide, followed on the bed: each section's commands, in order, as alice would.

A block of `sh` is typed; a plain block after it is what was printed. Numbers and the width of columns differ
from one time to the next, all else must be there.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from redbox_bed.bed import Bed
from redbox_bed.core.places import CHECKOUT
from tests.e2e.harness.container_image import BUILD
from tests.e2e.harness.slurmjobs import SlurmJobs
from tests.e2e.harness.volumes import claim_of

DOCS = CHECKOUT / "docs/users"
EXAMPLES = CHECKOUT / "examples"
WITHIN_S = 180
SECTION = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LEFTOVERS = (
    "secret/weather-service",
    "configmap/site",
    "configmap/scripts",
)  # of others, or of a run that failed


@dataclass(frozen=True)
class Section:
    """What is typed, and what the page shows of the answer."""

    page: str
    title: str
    folder: str
    typed: str
    shown: str


def sections(page: str, folder: str) -> Iterator[Section]:
    """Those with something to type, which is typed in `folder` of the checkout."""
    for title, text in SECTION.findall((DOCS / page).read_text()):
        blocks = BLOCK.findall(text)
        typed, shown = ("".join(text for name, text in blocks if name == language) for language in ("sh", ""))
        if typed:
            yield Section(page, title, folder, typed, shown)


SECTIONS = (*sections("tutorial.md", "."), *sections("guide.md", "examples"))


def lines_of(text: str) -> list[str]:
    """Without what differs each time."""
    return [" ".join(re.sub(r"\d+", "0", line).split()) for line in text.splitlines()]


@pytest.fixture(scope="module")
def alice(bed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Her checkout, with the bed where the tutorial has it; her namespace, a claim, and her images."""
    SlurmJobs.on(bed)
    login = bed.host("login")
    login.run("sh", "-c", BUILD, user="alice", timeout=120)
    login.write("/home/alice/cow.def", (EXAMPLES / "cow.def").read_bytes())
    login.run(
        "sh", "-c", "[ -e ~/cow.sif ] || apptainer -q build ~/cow.sif cow.def", user="alice", timeout=120
    )
    claim_of(bed, "alice", "results")
    checkout = tmp_path_factory.mktemp("checkout")
    for name in ("deploy", "examples"):
        (checkout / name).symlink_to(CHECKOUT / name)
    (checkout / ".bed").mkdir()
    (checkout / ".bed/bin").symlink_to(bed.places.state / "bin")
    (checkout / ".bed/kubeconfig").write_bytes(bed.places.kubeconfig.read_bytes())
    for arguments in (
        ["config", "set-context", "--current", "--namespace=alice"],
        ["delete", "--ignore-not-found", "slurmjobs", "--all"],
        ["delete", "--ignore-not-found", *LEFTOVERS],
    ):
        subprocess.run(["kubectl", *arguments], env=environment_in(checkout), check=True, capture_output=True)
    return checkout


def environment_in(checkout: Path) -> dict[str, str]:
    path = f"{checkout / '.bed/bin'}:{os.environ['PATH']}"
    return os.environ | {"PATH": path, "KUBECONFIG": str(checkout / ".bed/kubeconfig"), "HOME": str(checkout)}


@pytest.mark.timeout(WITHIN_S + 60)
@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: f"{section.page}: {section.title}")
def test_a_section_can_be_typed_and_prints_what_it_shows(section: Section, alice: Path) -> None:
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", section.typed],
        env=environment_in(alice),
        cwd=alice / section.folder,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert not [line for line in lines_of(section.shown) if line not in lines_of(done.stdout)], done.stdout


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_an_example_is_shown_as_it_is(example: Path) -> None:
    assert f"```yaml\n{example.read_text()}```" in (DOCS / "guide.md").read_text()
