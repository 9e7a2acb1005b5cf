"""Images of a real registry, with TLS and a password, in jobs that callers of red-box send."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from redbox_api.client import RedboxClient
from redbox_api.models import JobRequest, Phase
from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from redbox_bed.hosts.waiting import wait_until
from tests.e2e.harness import image_registry
from tests.e2e.harness.image_registry import PASSWORD, USER, Registry, busybox_image
from tests.e2e.harness.redbox_jobs import ended, log_of, new_key, started
from tests.e2e.harness.redbox_server import RedboxServer, running
from tests.e2e.harness.slurmjobs import new_name

CACHE = "/home/alice/.cache/redbox/images"
PULLS_WITHIN_S = 120


@pytest.fixture(scope="module")
def server(bed: Bed) -> Iterator[RedboxServer]:
    with running(bed) as server:
        yield server
        server.login.run("rm", "-rf", "/home/alice/.cache/redbox", "/home/alice/.apptainer")


@pytest.fixture(scope="module")
def registry(bed: Bed) -> Iterator[Registry]:
    with image_registry.running(bed) as registry:
        yield registry


@dataclass(frozen=True)
class Repository:
    """One of a test's own, in which the tag 1 is an image that nobody has pulled."""

    registry: Registry
    login: Host
    folder: Path
    name: str = field(default_factory=new_name)

    def push(self, tag: str) -> str:
        """Its digest; the image says the name and the tag."""
        image = busybox_image(self.folder, self.login, f"{self.name}-{tag}")
        return self.registry.push(f"{self.name}:{tag}", image)

    def image(self, tag: str) -> str:
        return f"docker://{self.registry.address}/{self.name}:{tag}"


@pytest.fixture
def repository(registry: Registry, server: RedboxServer, tmp_path: Path) -> Repository:
    repository = Repository(registry, server.login, tmp_path)
    repository.push("1")
    return repository


async def send(client: RedboxClient, image: str, *, password: str = PASSWORD, **fields: Any) -> str:
    container = {"image": image, "args": ["moo"], "registry": {"username": USER, "password": password}}
    key = new_key()
    await client.put_job(key, JobRequest.model_validate({"container": container, **fields}))
    return key


async def said(client: RedboxClient, key: str) -> str:
    """What it wrote, if it succeeded without a word of complaint."""
    job, error = await ended(client, key), await log_of(client, key, "stderr")
    assert (job.phase, error) == (Phase.SUCCEEDED, ""), error or job
    return await log_of(client, key)


async def test_a_tag_and_a_digest_name_an_image(alice: RedboxClient, repository: Repository) -> None:
    digest = repository.push("2")
    by_tag = await send(alice, repository.image("1"))
    by_digest = await send(alice, repository.image("2").removesuffix(":2") + f"@{digest}")
    assert await said(alice, by_tag) == f"{repository.name}-1 moo\n"
    assert await said(alice, by_digest) == f"{repository.name}-2 moo\n"


async def test_an_image_in_apptainers_own_form_comes_by_oras(
    alice: RedboxClient, repository: Repository
) -> None:
    login = {"APPTAINER_DOCKER_USERNAME": USER, "APPTAINER_DOCKER_PASSWORD": PASSWORD}
    docker = repository.image("1")
    oras = docker.replace("docker://", "oras://").replace(":1", "-sif:1")
    carry = 'cd "$(mktemp -d)" && apptainer -q pull i.sif "$1" && apptainer -q push i.sif "$2"; rm i.sif'
    repository.login.run("sh", "-ec", carry, "carry", docker, oras, user="alice", env=login)
    assert await said(alice, await send(alice, oras)) == f"{repository.name}-1 moo\n"


@pytest.mark.parametrize(
    ("tag", "password", "why"),
    [("1", "wrong", "authentication required"), ("9", PASSWORD, "manifest unknown")],
    ids=["a wrong password", "no such image"],
)
async def test_a_registrys_refusal_is_said_and_leaves_neither_image_nor_password(
    alice: RedboxClient, repository: Repository, tag: str, password: str, why: str
) -> None:
    before, image = cached(repository.login), repository.image(tag)
    key = await send(alice, image, password=password)
    job, error = await ended(alice, key), await log_of(alice, key, "stderr")
    assert (job.phase, job.exit_code) == (Phase.FAILED, 125)
    assert "image could not be pulled" in str(job.message)
    assert why in error
    assert f"the image {image} could not be pulled" in error
    assert cached(repository.login) == before
    assert not repository.login.run("find", str(job.working_directory), "-name", ".redbox-*").stdout


async def test_jobs_on_two_nodes_at_once_and_one_afterwards_pull_one_image(
    alice: RedboxClient, repository: Repository
) -> None:
    image = repository.image("1")
    with repository.registry.stopped():  # so that both have begun before either is served
        keys = [await send(alice, image, options=[f"--nodelist={node}"]) for node in ("n1", "n2")]
        for key in keys:
            await started(alice, key)
    for key in keys:
        await said(alice, key)
    await said(alice, await send(alice, image))
    assert repository.registry.pulls(repository.name) == 1


@pytest.mark.parametrize("how", ["cancelled", "killed"])
async def test_a_pull_that_breaks_off_is_in_nobodys_way(
    bed: Bed, alice: RedboxClient, repository: Repository, how: str
) -> None:
    login, image = repository.login, repository.image("1")
    before = cached(login)
    with repository.registry.stopped():
        key = await send(alice, image)
        job = await started(alice, key)
        pull = ("pgrep", "--full", f"pull --force .*{repository.name}")
        node = bed.host(job.nodes[0])
        wait_until(lambda: node.run(*pull, check=False).returncode == 0, PULLS_WITHIN_S, "no pull began")
        if how == "cancelled":
            await alice.cancel_job(key)
        else:
            login.run("scancel", "--full", "--signal=KILL", str(job.job_id))
        await ended(alice, key)
    assert await said(alice, await send(alice, image)) == f"{repository.name}-1 moo\n"
    assert sorted(file.partition(".")[2] for file in cached(login) - before) == ["sif", "sif.lock"]


def cached(login: Host) -> set[str]:
    """Alice's images, and what lies beside them but for locks of images that never came."""
    found = set(login.run("find", CACHE, "-type", "f", "-printf", "%f\\n", check=False).stdout.split())
    return {file for file in found if not file.endswith(".lock") or file.removesuffix(".lock") in found}
