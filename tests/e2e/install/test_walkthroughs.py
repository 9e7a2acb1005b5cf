"""The demo, as README has a newcomer run it, then the pages for users, typed on its bed in order, as alice.

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
from typing import Any

import pytest
import yaml

from redbox_bed import docker_hub, login_node
from redbox_bed.bed import Bed
from redbox_bed.core.places import CHECKOUT
from redbox_bed.core.progress import Progress
from redbox_bed.delivery import deliver
from redbox_bed.prepare.walkthrough import VOLUMES_RULE, take_away_volumes
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.resourced_process import rendered
from tests.e2e.harness.slurm_release import skip_without_pmix
from tests.e2e.harness.waiting import eventually

DOCS = CHECKOUT / "docs/users"
EXAMPLES = CHECKOUT / "examples"
WITHIN_S = 180
DEMO_WITHIN_S = 800
SECTION = re.compile(r"^##? (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MINE = "deployments,pods,jobs,cronjobs,services,persistentvolumeclaims,secrets,configmaps"
FOLDERS = {
    "tutorial.md": ".",
    "guide.md": "examples",
    "kubectl-slurm.md": ".",
    "sessions.md": ".",
    "services.md": ".",
    "pods.md": ".",
    "workflows.md": ".",
}
"""The pages in the order in which they are typed, each with the folder of the checkout."""
USUAL = {
    *("tutorial.md", "kubectl-slurm.md", "sessions.md", "services.md", "pods.md"),
    *("guide.md: Containers", "guide.md: Results", "guide.md: Refused jobs"),
}
"""What `make test` types; `make nightly` types all."""

pytestmark = pytest.mark.timeout(DEMO_WITHIN_S + WITHIN_S)


@dataclass(frozen=True)
class Section:
    """What is typed, and what the page shows of the answer."""

    page: str
    title: str
    typed: str
    shown: str

    @property
    def name(self) -> str:
        return f"{self.page}: {self.title}"


def sections(page: str) -> Iterator[Section]:
    """Those with something to type."""
    for title, text in SECTION.findall((DOCS / page).read_text()):
        blocks = BLOCK.findall(text)
        typed, shown = ("".join(text for name, text in blocks if name == language) for language in ("sh", ""))
        if typed:
            yield Section(page, title, typed, shown)


def cases() -> Iterator[Any]:
    for section in (section for page in FOLDERS for section in sections(page)):
        usual = {section.page, section.name} & USUAL
        yield pytest.param(section, id=section.name, marks=() if usual else pytest.mark.nightly)


def lines_of(text: str) -> list[str]:
    """Without what differs each time."""
    return [" ".join(re.sub(r"\d+", "0", line).split()) for line in text.splitlines()]


@pytest.fixture(scope="module")
def _left_as_found(bed: Bed) -> Iterator[None]:
    """The demo turns pods and sessions on."""
    skip_without_pmix(bed)  # its examples start ranks by srun
    kubectl = Kubernetes(bed)
    delete_mine(kubectl)
    # Other files make resourced's account and rights without helm, which refuses to take them for its own.
    kubectl("delete", "--ignore-not-found", "--filename=-", stdin=rendered(bed))
    yield
    delete_mine(kubectl)
    (bed.places.state / "demo").unlink(missing_ok=True)
    take_away_volumes(bed)
    eventually(lambda: not folders_of_claims(kubectl), what="no folder of a claim")
    docker_hub.down(bed)
    turn_sessions_and_volumes_off(bed)
    deliver(bed, Progress.silent())
    kubectl("delete", "nodes", "--selector=redbox.dev/virtual", "--wait=false")


def delete_mine(kubectl: Kubernetes) -> None:
    """Where this is the first file of its bed, the kinds of Red Box are not there yet."""
    jobs = ",slurmjobs" if kubectl.get("crd", "slurmjobs.redbox.dev") else ""
    kubectl("delete", "--ignore-not-found", "--all", MINE + jobs, "--namespace=alice")


def folders_of_claims(kubectl: Kubernetes) -> list[str]:
    return [
        volume["metadata"]["name"]
        for volume in kubectl.list("persistentvolumes")
        if volume["spec"].get("storageClassName") == "redbox-directory"
    ]


def turn_sessions_and_volumes_off(bed: Bed) -> None:
    """In red-box's settings; `deliver` starts it again."""
    login = bed.host("login")
    settings = yaml.safe_load(login.read(login_node.SETTINGS))
    settings["exec"] = {"enabled": False}
    rules = settings["mapping"]["rules"]
    settings["mapping"]["rules"] = [rule for rule in rules if rule != VOLUMES_RULE]
    login.write(login_node.SETTINGS, yaml.safe_dump(settings, sort_keys=False))


@pytest.fixture(scope="module")
def demo(_left_as_found: None) -> str:
    """What it printed."""
    ended = subprocess.run(
        [CHECKOUT / "deploy/demo"], check=False, capture_output=True, text=True, timeout=DEMO_WITHIN_S
    )
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    return ended.stdout


@pytest.fixture(scope="module")
def alice(bed: Bed, demo: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Her checkout, with the demo's bed where the tutorial has it."""
    assert "All of it stays up" in demo
    checkout = tmp_path_factory.mktemp("checkout")
    for name in ("deploy", "examples"):
        (checkout / name).symlink_to(CHECKOUT / name)
    (checkout / ".bed").mkdir()
    (checkout / ".bed/bin").symlink_to(bed.places.state / "bin")
    (checkout / ".bed/kubeconfig").write_bytes(bed.places.kubeconfig.read_bytes())
    subprocess.run(
        ["kubectl", "config", "set-context", "--current", "--namespace=alice"],
        env=environment_in(checkout),
        check=True,
        capture_output=True,
    )
    return checkout


def environment_in(checkout: Path) -> dict[str, str]:
    path = f"{checkout / '.bed/bin'}:{os.environ['PATH']}"
    return os.environ | {"PATH": path, "KUBECONFIG": str(checkout / ".bed/kubeconfig"), "HOME": str(checkout)}


def test_the_demo_shows_what_it_promises(bed: Bed, demo: str) -> None:
    assert "< Slurm runs me. >" in demo
    ranks = re.findall(r"^rank \d of 3 on n[123]$", demo, re.MULTILINE)
    assert len(ranks) == 6, demo
    assert re.search(r"pingpong-\d+\.out", demo)
    assert re.search(r"^hpc1\.debug +Ready", demo, re.MULTILINE)
    assert re.search(r"^I am alice on busybox$", demo, re.MULTILINE)
    assert re.search(r"^hello +Succeeded", demo, re.MULTILINE)
    assert f"export KUBECONFIG={bed.places.kubeconfig}" in demo


@pytest.mark.parametrize("section", [*cases()])
def test_a_section_can_be_typed_and_prints_what_it_shows(section: Section, alice: Path) -> None:
    done = subprocess.run(
        ["bash", "-euxo", "pipefail", "-c", section.typed],
        env=environment_in(alice),
        cwd=alice / FOLDERS[section.page],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert not [line for line in lines_of(section.shown) if line not in lines_of(done.stdout)], done.stdout
