"""What a run by several workers shows while it goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
CONFTEST = """
from tests.failures import FailuresAtOnce

def pytest_configure(config):
    config.pluginmanager.register(FailuresAtOnce(config))
"""
FAILS = """
import pytest

def test_adds_up():
    assert 1 + 1 == 3, "it does not add up"

@pytest.fixture
def broken():
    raise OSError("no such place")

def test_has_its_place(broken): pass
"""
WAITS = """
import time
from pathlib import Path

def test_is_passed_when_the_failures_were_read():
    deadline = time.monotonic() + 120
    while not Path(__file__).with_name("read").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)
"""


def test_a_failure_of_a_worker_is_printed_while_another_worker_goes_on(tmp_path: Path) -> None:
    files = {
        "conftest.py": CONFTEST,
        "test_fails.py": FAILS,
        "test_waits.py": WAITS,
        "pytest.ini": "[pytest]",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    options = ("-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider")
    run = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options],
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    awaited = [
        "FAILED test_fails.py::test_adds_up: AssertionError: it does not add up",
        "FAILED test_fails.py::test_has_its_place (setup): OSError: no such place",
    ]
    lines: list[str] = []
    with run:
        for line in run.stdout or ():
            lines.append(line.strip())
            if set(awaited) <= set(lines):
                (tmp_path / "read").touch()
    assert lines[-1].strip("= ").startswith("1 failed, 1 passed, 1 error in ")
