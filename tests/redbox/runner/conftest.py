"""A node for each test."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.redbox.runner.harness import Node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    namespaces = ["unshare", "-Umipf", "--map-root-user", "--mount-proc", "true"]
    if subprocess.run(namespaces, check=False, capture_output=True).returncode:
        pytest.skip("no namespaces can be made here")
    return Node(tmp_path)
