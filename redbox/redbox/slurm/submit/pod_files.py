"""What a pod's runner works from: the private folder as a tar, and where the runner itself lies.

    WORKING_DIRECTORY/.redbox-HASH/pod.json          the PodProgram, and `paths`; without the files' contents
    WORKING_DIRECTORY/.redbox-HASH/files/VOLUME/...  the files of its volumes
    IMAGE_CACHE/runner-DIGEST.py                     the runner, once for all pods of a user
    IMAGE_CACHE/runner-DIGEST.PYTHON-VERSION.pyc     its compiled form, which the runner itself leaves

The agent unpacks the folder and reports whether it has the runner in one request, so that a pod costs as many
requests as a batch script does: one for its files, one for sbatch.
"""

from __future__ import annotations

import hashlib
import io
import json
import posixpath
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass

from redbox.agents.agent import AgentClient
from redbox.runner.program_source import runner_source
from redbox_api.job_parts import REVEAL_SECRETS
from redbox_api.pod_parts import FilesVolume, PodProgram
from redbox_api.pod_report import inputs_digest

PROGRAM = "pod.json"
CONTENTS = {"volumes": {"__all__": {"files": {"files": {"__all__": {"content"}}}}}}
READABLE, SECRET = 0o400, 0o600


@dataclass(frozen=True, slots=True)
class PodPaths:
    """Where the runner finds and puts what is not in the private folder; `paths` of pod.json."""

    logs: str  # the working directory
    cache: str  # of images
    keep_days: int = 0  # images unused for longer are removed; 0: never
    images_within_s: float = 0.0  # of attempts to pull an image; 0: without an end


def runner_path(image_cache: str) -> str:
    """By its digest: a pod that waits in the queue keeps the runner that it was submitted with."""
    digest = hashlib.sha256(runner_source()).hexdigest()[:12]
    return posixpath.join(image_cache, f"runner-{digest}.py")


def pack(pod: PodProgram, paths: PodPaths) -> bytes:
    """The content of the private folder; the program, without which nothing starts, is last."""
    program = pod.model_dump(mode="json", by_alias=True, exclude=CONTENTS, context=REVEAL_SECRETS)
    names = {
        "logs": paths.logs,
        "cache": paths.cache,
        "keepDays": paths.keep_days,
        "imagesWithinS": paths.images_within_s,
        "inputs": inputs_digest(pod.inputs),
    }
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for volume in pod.volumes:
            for path, content, mode in _files(volume.files):
                add_file(tar, posixpath.join("files", volume.name, path), content, mode)
        add_file(tar, PROGRAM, json.dumps({**program, "paths": names}).encode(), SECRET)
    return archive.getvalue()


def _files(volume: FilesVolume | None) -> Iterator[tuple[str, bytes, int]]:
    """Path, content and mode; the runner, which is the user too, must be able to read each of them."""
    for file in volume.files if volume is not None else ():
        mode = file.mode & SECRET if volume is not None and volume.secret else file.mode
        yield file.path, file.content, mode | READABLE


def add_file(tar: tarfile.TarFile, path: str, content: bytes, mode: int) -> None:
    member = tarfile.TarInfo(path)
    member.size, member.mode = len(content), mode
    tar.addfile(member, io.BytesIO(content))


async def lay_out(agent: AgentClient, folder: str, archive: bytes, runner: str) -> None:
    """Make the private folder, with those above it, and the runner's file if the user has none yet."""
    if not await agent.unpack(folder, archive, wanted=runner):
        await agent.make_directory(posixpath.dirname(runner), mode=0o700)
        await agent.write(runner, runner_source(), mode=0o600)
