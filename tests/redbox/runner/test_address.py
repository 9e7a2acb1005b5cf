"""The node's address, as the runner finds it."""

from __future__ import annotations

import socket
import subprocess
import sys

from redbox.runner.program.handlers import resolve
from redbox.runner.program_source import runner_source

FINDS = """
import sys
names = {"__name__": "runner"}
exec(compile(sys.stdin.read(), "runner", "exec"), names)
print(names["resolve"]("localhost", 2), "unicodedata" in sys.modules)
"""


def test_a_name_is_resolved_without_the_tables_of_unicode() -> None:
    """They are half a MB of the job's own memory."""
    source = runner_source().decode()
    found = subprocess.run(
        [sys.executable, "-IS", "-c", FINDS], input=source, capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["127.0.0.1", "False"]


def test_a_name_that_no_host_can_have_has_no_address() -> None:
    assert resolve("knötchen", socket.AF_INET) is None
