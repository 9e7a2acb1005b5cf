"""What several checks read."""

from pathlib import Path

import pytest

from redbox.agents.program_source import agent_source
from redbox.relay.program_source import relay_source
from redbox.runner.program_source import runner_source


@pytest.fixture(params=["agent", "relay", "runner"])
def program(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Write the agent, the relay and the runner of pods, each as the one file that runs elsewhere."""
    file = tmp_path / f"{request.param}.py"
    file.write_bytes({"agent": agent_source, "relay": relay_source, "runner": runner_source}[request.param]())
    return file
