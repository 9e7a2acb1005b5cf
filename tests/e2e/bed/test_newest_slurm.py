"""The newest Slurm, on a bed of its own beside this run's: the tests that need nothing else speak to it.

With BED_RELEASE every test of e2e runs on another release; this file is what each run has of it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from redbox_bed.bed import Bed
from redbox_bed.core.errors import RootUnavailableError
from redbox_bed.core.places import CHECKOUT
from redbox_bed.core.plan import Release
from redbox_bed.hosts import roots
from tests.e2e.harness import side_bed

NEWEST = Release.V26_05
OF_ANOTHER_RUN = ("PYTEST_", "TEST_BED")
PROGRAM = CHECKOUT / "deploy/local/bed"
TESTS = {
    "of rows": ("tests/e2e/redbox/test_slurm_manager.py", "tests/e2e/redbox/test_forged_rows.py"),
    "of metrics and sessions": (
        "tests/e2e/redbox/test_slurm_metrics.py",
        "tests/e2e/redbox/test_sessions.py",
    ),
    "of the bed": ("tests/e2e/bed/test_slurm.py", "-k", "daemon or mpi or memory or survive"),
}

pytestmark = pytest.mark.timeout(roots.BUILD_SECONDS)


@pytest.fixture(scope="module")
def environment(bed: Bed) -> Iterator[dict[str, str]]:
    """By which a command is about the other bed, which is up."""
    if bed.plan.options.release is NEWEST:
        pytest.skip(f"this run's own bed is of Slurm {NEWEST}")
    try:
        roots.ensure_root(bed.places, f"slurm-{NEWEST}")
    except RootUnavailableError as error:
        pytest.skip(str(error))
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(OF_ANOTHER_RUN)},
        "BED_DIR": str(bed.places.state / NEWEST),
        "BED_PORT_OFFSET": str(side_bed.port_offset()),
        "BED_RELEASE": NEWEST,
    }
    up = subprocess.run(
        [PROGRAM, "up", "--no-kube", "--fast"], check=False, capture_output=True, text=True, env=environment
    )
    try:
        assert up.returncode == 0, last_line_first(up.stderr)
        assert "Debian's unstable" in up.stderr  # since when this root is as it is
        yield environment
    finally:
        subprocess.run([PROGRAM, "down"], check=True, capture_output=True, env=environment)


@pytest.mark.parametrize("which", TESTS)
@pytest.mark.nightly
def test_what_speaks_to_slurm_passes_on_it(environment: dict[str, str], which: str) -> None:
    pytest_again = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS[which])
    done = subprocess.run(
        pytest_again, check=False, capture_output=True, text=True, env=environment, cwd=CHECKOUT
    )
    failures = [line for line in done.stdout.splitlines() if line.startswith("FAILED ")]
    assert done.returncode == 0, "; ".join(failures) + "\n" + done.stdout + done.stderr
    assert " passed" in done.stdout.splitlines()[-1]
    print(f"Slurm {NEWEST}, tests {which}: {done.stdout.splitlines()[-1]}")


def last_line_first(text: str) -> str:
    """A summary of a run shows a failure's first line, and a program ends with its error."""
    return f"{text.rstrip().rpartition(chr(10))[2]}\n{text}"
