"""A Slurm that scontrol asks."""

from pathlib import Path

import pytest

from tests.slurmpod.node.fake_slurm import FakeSlurm


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    slurm = FakeSlurm(tmp_path)
    slurm.put_on_path(monkeypatch)
    return slurm
