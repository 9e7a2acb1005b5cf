"""What Apptainer does not mount."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from redbox.runner.program.rules import ConfigRefused
from redbox.runner.program.volumes import NodeVolume, Scratch, VolumeSet


@pytest.mark.parametrize(
    ("path", "at", "is_mounted"),
    [
        ("/dev/fuse", "/dev/fuse", True),
        ("/dev/shm/x", "/data", True),
        ("/data", "/devel", True),
        ("/dev/shm/x", "/devel", False),
        ("/devel", "/devel", False),
        ("/dev/fuse", "/dev/other", False),
    ],
)
def test_what_apptainer_takes_for_a_device_is_not_left_out_in_silence(
    tmp_path: Path, path: str, at: str, *, is_mounted: bool
) -> None:
    scratch = Scratch(str(tmp_path), "1")
    volumes = VolumeSet([], str(tmp_path), scratch)
    volumes.by_name["v"] = NodeVolume("v", path)
    container = {"mounts": [{"volume": "v", "mountPath": at}]}
    with nullcontext() if is_mounted else pytest.raises(ConfigRefused, match="choose another mountPath"):
        assert [mount.source for mount in volumes.mounts(container, {})] == [path]
    scratch.remove()
