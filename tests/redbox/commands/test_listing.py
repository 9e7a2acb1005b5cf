"""What is listed of the commands is what they are, and listing imports none of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from redbox.cli import COMMANDS, load

HEAVY = ("pydantic", "fastapi", "uvicorn", "cryptography", "asyncssh", "aiohttp", "sqlite3")
IMPORTED = f"""
import sys
from redbox.cli import app
app({{arguments}}, standalone_mode=False)
print(*(name for name in {HEAVY} if name in sys.modules), file=sys.stderr)
"""


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_does_what_its_line_says(name: str) -> None:
    command = load(name)
    assert command.help.startswith(COMMANDS[name].help.removesuffix("."))


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_listing_imports_no_command(option: str) -> None:
    program = IMPORTED.format(arguments=[option])
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ended.stderr == "\n"
