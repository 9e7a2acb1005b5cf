"""An update of a pod, as files in its private folder: `redbox.node.program.atomic_files` reads them.

The agent writes all of them by one request, each as a whole, the pod's own last.
"""

from __future__ import annotations

import io
import json
import posixpath
import tarfile

from redbox.agents.agent import AgentClient
from redbox.node.program.atomic_files import OF_POD, PREFIX
from redbox.slurm.errors import RequestRefused
from redbox.slurm.submit.pod_check import MAX_FILES_BYTES, check_files
from redbox.slurm.submit.pod_files import SECRET, add_file
from redbox_api.pod_parts import PodUpdate, SourceUpdate
from redbox_api.pod_report import inputs_digest


def pack_update(update: PodUpdate) -> bytes:
    """A tar of its files; RequestRefused for one that no volume can have."""
    for source in update.sources:
        check_files(f"sources[{source.volume}].files", source.files)
    size = sum(len(file.content) for source in update.sources for file in source.files)
    if size > MAX_FILES_BYTES:
        raise RequestRefused(
            f"sources: their files have {size} bytes together, more than {MAX_FILES_BYTES}: put large data "
            "on a volume that the cluster mounts."
        )
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for source in update.sources:
            add_file(tar, f"{PREFIX}{source.volume}.{source.source}", _of_source(source), SECRET)
        header = {"inputs": inputs_digest(update.inputs), "activeDeadlineS": update.active_deadline_s}
        add_file(tar, f"{PREFIX}{OF_POD}", _line(header), SECRET)
    return archive.getvalue()


async def write_update(agent: AgentClient, folder: str, archive: bytes) -> None:
    await agent.unpack(folder, archive, wanted=posixpath.join(folder, f"{PREFIX}{OF_POD}"))


def _of_source(update: SourceUpdate) -> bytes:
    files = [{"path": file.path, "mode": file.mode, "size": len(file.content)} for file in update.files]
    header = _line({"volume": update.volume, "source": update.source, "files": files})
    return b"".join((header, *(file.content for file in update.files)))


def _line(header: object) -> bytes:
    return json.dumps(header).encode() + b"\n"
