"""A node, for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.redbox.slurm.submit.container_node import RUNTIME, SRUN, Node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    (tmp_path / "bin").mkdir()
    for name, text in (("apptainer", RUNTIME), ("srun", SRUN)):
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    return Node(tmp_path)
