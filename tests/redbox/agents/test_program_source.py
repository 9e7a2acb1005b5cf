"""The agent is one file, always the same, that old Pythons run and every shell starts."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from redbox.agents.pool import AgentPool
from redbox.agents.program_source import agent_source
from redbox.agents.transports.bootstrap import COMMAND, bootstrap_preamble
from redbox.core.domain import UnixUser
from tests.redbox.agents.harness import LaunchedTransport

VERSIONS = ("3.6", "3.7", "3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
SHELLS = {"sh": ["-c"], "bash": ["-c"], "tcsh": ["-f", "-c"], "fish": ["-c"], "zsh": ["-c"]}


def pythons() -> list[str]:
    """Return the interpreters of this machine that the agents of tests may run."""
    folders = [*Path("/usr/bin").glob("python3.*"), *Path("/opt").glob("python*/bin/python3")]
    found = [str(path) for path in folders if path.name.removeprefix("python") in (*VERSIONS, "3")]
    return found + [path for v in VERSIONS if os.geteuid() != 0 and (path := shutil.which(f"python{v}"))]


def test_it_is_the_same_each_time() -> None:
    agent_source.cache_clear()
    first = agent_source()
    agent_source.cache_clear()
    assert agent_source() == first
    assert first.startswith(b"#!/usr/bin/python3 -IS\n")


@pytest.mark.parametrize("python", pythons())
async def test_it_runs_with_every_python_there_is(python: str, user: UnixUser) -> None:
    async with AgentPool(LaunchedTransport(python=python)) as pool:
        agent = await pool.agent(user)
        assert (await agent.run(["/bin/cat"], stdin=b"here", deadline=60)).stdout == b"here"
        assert (await agent.read("/etc/passwd", tail=True)).data == Path("/etc/passwd").read_bytes()
        assert [part async for part in agent.tar("/etc", ["passwd"])]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_command_means_the_same_to_every_shell(shell: str, tmp_path: Path) -> None:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"no {shell} here")
    source = b"import os, sys; print(sys.flags.isolated, sys.flags.no_site, dict(os.environ), sys.argv)"
    done = subprocess.run(
        [path, *SHELLS[shell], COMMAND],
        input=b"%d\n%b" % (len(source), source),
        capture_output=True,
        check=True,
        timeout=60,
        env={"HOME": str(tmp_path), "SECRET": "1"},
    )
    assert done.stdout.startswith(b"1 1 {")
    assert b"SECRET" not in done.stdout


def test_the_command_is_a_plain_literal() -> None:
    words = shlex.split(COMMAND)
    assert words[:6] == ["exec", "/usr/bin/env", "-i", "/usr/bin/python3", "-I", "-S"]
    assert not set(words[7]) & set("'!$`\\\n")
    assert b"%d\n" % len(agent_source()) == bootstrap_preamble().split(agent_source())[0]
