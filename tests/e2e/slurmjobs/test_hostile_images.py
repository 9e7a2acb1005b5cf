"""Images of an enemy: what is pulled is pulled on a node as the job's user, who gains nothing by it."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from redbox_bed.images.oci import Image, Layer
from tests.e2e.harness import image_registry
from tests.e2e.harness.image_registry import Registry, apply_with_login, busybox_image
from tests.e2e.harness.slurmjobs import SlurmJobs, new_name

ESCAPED = "redbox-escaped"
MIB = 2**20


@pytest.fixture
def jobs(bed: Bed) -> Iterator[SlurmJobs]:
    jobs = SlurmJobs.on(bed)
    yield jobs
    jobs.clean()
    bed.host("login").run("rm", "-rf", "/home/alice/.cache/redbox", "/home/alice/.apptainer")


@pytest.fixture(scope="module")
def registry(bed: Bed) -> Iterator[Registry]:
    with image_registry.running(bed) as registry:
        yield registry


def member(name: str, kind: bytes = tarfile.REGTYPE, *, link: str = "", mode: int = 0o644) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mode = kind, link, mode
    made.devmajor, made.devminor = 8, 0
    return made


OUT = "../" * 12
ESCAPES = [
    member(f"{OUT}tmp/{ESCAPED}"),
    member(f"/home/alice/{ESCAPED}"),
    member("out", tarfile.SYMTYPE, link="/tmp"),
    member(f"out/{ESCAPED}"),
    member(ESCAPED, tarfile.BLKTYPE, mode=0o666),
]


def with_layer(image: Image, folder: Path, members: list[tarfile.TarInfo], content: bytes) -> Image:
    """The image below a layer that no builder makes."""
    file = folder / "hostile.tar"
    with tarfile.open(file, "w") as archive:
        for one in members:
            archive.addfile(one, io.BytesIO(content))
    layer = Layer(file, "sha256:" + hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_size)
    return replace(image, layers=(*image.layers, layer))


def push(
    registry: Registry, login: Host, folder: Path, members: list[tarfile.TarInfo], content: bytes = b""
) -> str:
    """`content` is that of the members that have a size."""
    name = new_name()
    image = with_layer(busybox_image(folder, login, name), folder, members, content)
    registry.push(f"{name}:1", replace(image, entrypoint=("/bin/sh", "-c", "id; echo $*", "sh")))
    return f"docker://{registry.address}/{name}:1"


def escaped(bed: Bed) -> list[str]:
    """Files that only such an image has, wherever a host of the cluster can have them."""
    search = f"find /tmp /var /home /root /etc /run /dev -name {ESCAPED} 2>/dev/null || :"
    hosts = [bed.host(name) for name in bed.plan.clusters[0].hosts]
    return [f"{host.name}:{path}" for host in hosts for path in host.run("sh", "-c", search).stdout.split()]


def test_members_that_lead_out_of_an_image_stay_inside_and_setuid_gives_nothing(
    bed: Bed, jobs: SlurmJobs, registry: Registry, tmp_path: Path
) -> None:
    """Only the nodes ask the registry: neither red-box nor a controller fetches anything of an image."""
    login = bed.host("login")
    setuid = member("bin/sh", mode=0o4755)
    setuid.size = len(busybox := login.read("/bin/busybox"))
    image = push(registry, login, tmp_path, [*ESCAPES, setuid], busybox)
    job = apply_with_login(jobs, image)
    assert job.finishes()["phase"] == "Succeeded", job.log()
    assert escaped(bed) == []
    assert "uid=0" not in job.log()
    nodes = {bed.host(name).spec.address for name in bed.plan.clusters[0].hosts if name.startswith("n")}
    assert registry.askers(image.split("/")[-1].partition(":")[0]) <= nodes


def test_an_image_that_fills_the_disk_fails_its_job_in_one_sentence_and_leaves_room_for_the_next(
    bed: Bed, jobs: SlurmJobs, registry: Registry, tmp_path: Path
) -> None:
    """A quota, or a small disk for temporary files: what does not fit is gone once the pull has failed."""
    large = member("large")
    large.size = len(content := os.urandom(8 * MIB))
    image = push(registry, bed.host("login"), tmp_path, [large], content)
    with small_cache(bed):
        job = apply_with_login(jobs, image)
        status = job.finishes()
        assert (status["phase"], status["exitCode"]) == ("Failed", 125)
        assert "image could not be pulled" in status["message"]
        assert "no space left on device" in job.log()
    again = apply_with_login(jobs, image)
    assert again.finishes()["phase"] == "Succeeded", again.log()
    parts = ("/home/alice/.cache/redbox", "-name", "*.sif.*", "!", "-name", "*.lock")
    assert bed.host("login").run("find", *parts).stdout == ""


@contextmanager
def small_cache(bed: Bed) -> Iterator[None]:
    """On each node Apptainer's cache in alice's home is a file system of 4 MiB."""
    folder = "/home/alice/.apptainer"
    bed.host("login").run("install", "-d", "-o", "alice", folder)
    nodes = [bed.host(node.name) for node in bed.plan.clusters[0].nodes]
    options = f"size={4 * MIB},mode=755,uid={bed.host('login').run('id', '-u', 'alice').stdout.strip()}"
    try:
        for node in nodes:
            node.run("mount", "-t", "tmpfs", "-o", options, "tmpfs", folder)
        yield
    finally:
        for node in nodes:
            node.run("umount", "--lazy", folder, check=False)


def test_a_hard_link_out_of_an_image_fails_the_pull_in_one_sentence(
    bed: Bed, jobs: SlurmJobs, registry: Registry, tmp_path: Path
) -> None:
    link = member(ESCAPED, tarfile.LNKTYPE, link=f"{OUT}etc/shadow")
    job = apply_with_login(jobs, push(registry, bed.host("login"), tmp_path, [link]))
    status = job.finishes()
    assert (status["phase"], status["exitCode"]) == ("Failed", 125)
    assert "image could not be pulled" in status["message"]
    assert escaped(bed) == []
