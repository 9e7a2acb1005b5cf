"""What several checks read."""

from pathlib import Path

import pytest

from redbox.agents.program_source import agent_source


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    """Write the agent as the one file that runs on a login host."""
    file = tmp_path / "agent.py"
    file.write_bytes(agent_source())
    return file
