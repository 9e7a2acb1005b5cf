"""Which beds tests/run starts and takes down. Its checkout has programs in place of the bed and of pytest."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BED = """#!/bin/sh
echo "$1 $BED_DIR $BED_PORT_OFFSET" >>"$CALLS"
[ "$1" != status ]
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    programs = {
        "deploy/bootstrap": "#!/bin/sh\n",
        "deploy/local/bed": BED,
        ".venv/bin/python": '#!/bin/sh\necho "pytest $TEST_BEDS" >>"$CALLS"\n',
    }
    for name, text in programs.items():
        program = tmp_path / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests/run", tmp_path / "tests/run")
    return tmp_path


def run(checkout: Path) -> tuple[str, list[str]]:
    """What tests/run prints, and the calls that it makes."""
    calls = checkout / "calls"
    env = {"PATH": os.environ["PATH"], "CALLS": str(calls)}
    ended = subprocess.run(
        [checkout / "tests/run", "e2e", "--", "-k", "nothing"],
        check=True,
        capture_output=True,
        text=True,
        env=env,
        timeout=60,
    )
    return ended.stdout, calls.read_text().splitlines()


def test_a_bed_that_is_not_up_is_started_and_taken_down(checkout: Path) -> None:
    bed = f"{checkout}/.bed"
    _, calls = run(checkout)
    assert calls == [f"status {bed} 0", f"up {bed} 0", f"pytest {bed}:0", f"down {bed} 0"]


def test_the_cluster_of_a_demo_is_left_alone(checkout: Path) -> None:
    bed = f"{checkout}/.bed"
    Path(bed).mkdir()
    Path(bed, "demo").touch()
    printed, calls = run(checkout)
    assert "the cluster of deploy/demo is up and stays as it is" in printed
    assert [call.split()[0] for call in calls] == ["status", "up", "pytest", "down"]
    assert not [call for call in calls if f"{bed} " in call or f"{bed}:" in call or call.endswith(" 0")]
