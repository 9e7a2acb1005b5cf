"""What deploy/bootstrap says and does on machines that lack something. The programs it asks are stand-ins."""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

BOOTSTRAP = Path(__file__).parents[2] / "deploy/bootstrap"
TOOLS = (
    "sh",
    "basename",
    "cat",
    "cut",
    "dirname",
    "flock",
    "ln",
    "mkdir",
    "mktemp",
    "mv",
    "readlink",
    "rm",
    "sha256sum",
    "tail",
)
NEW_PYTHON = """
case $* in
    *version_info*) exit 0 ;;
    *ensurepip*) [ -e "$INSTALLED/python3-venv" ] ;;
    *) echo "Python 3.13.0" ;;
esac
"""
OLD_PYTHON = """
case $* in
    --version) echo "Python 3.9.2" ;;
    *) exit 1 ;;
esac
"""
APT_GET = """
echo "apt-get $*" >>"$INSTALLED/log"
case $1 in
    install) for word; do case $word in [a-z]*) : >"$INSTALLED/$word" ;; esac; done ;;
esac
"""


@dataclass(frozen=True)
class Machine:
    """A PATH with only what is put there, and a checkout with nothing but bootstrap and a lock."""

    folder: Path

    @property
    def installed(self) -> Path:
        return self.folder / "installed"

    def has(self, program: str, script: str) -> None:
        path = self.folder / "bin" / program
        path.write_text(f"#!/bin/sh\n{script}")
        path.chmod(0o755)

    def bootstrap(self, *packages: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.folder / "checkout/deploy/bootstrap", *packages],
            env={"PATH": str(self.folder / "bin"), "INSTALLED": str(self.installed)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def apt_calls(self) -> list[str]:
        log = self.installed / "log"
        return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A Debian of root's, with make and a new Python without venv."""
    for folder in ("bin", "installed", "checkout/deploy"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(BOOTSTRAP, tmp_path / "checkout/deploy/bootstrap")
    (tmp_path / "checkout/requirements.lock").touch()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool) or tool)
    made = Machine(tmp_path)
    made.has("id", "echo 0")
    made.has("make", "")
    made.has("apt-get", APT_GET)
    made.has("dpkg-query", '[ -e "$INSTALLED/$4" ] && echo installed')
    made.has("python3", NEW_PYTHON)
    return made


def test_what_is_missing_is_named_and_installed(machine: Machine) -> None:
    said = machine.bootstrap("shellcheck").stderr
    assert "bootstrap: installing shellcheck\n" in said
    assert "bootstrap: installing python3-venv\n" in said
    assert {"shellcheck", "python3-venv"} <= {file.name for file in machine.installed.iterdir()}


def test_what_is_there_is_not_installed_again(machine: Machine) -> None:
    machine.bootstrap("shellcheck")
    calls = len(machine.apt_calls())
    machine.bootstrap("shellcheck")
    assert len(machine.apt_calls()) == calls > 0


def test_without_root_nothing_is_tried_and_the_package_is_named(machine: Machine) -> None:
    machine.has("id", "echo 1000")
    ended = machine.bootstrap("shellcheck")
    assert ended.returncode == 1
    assert ended.stderr == (
        "bootstrap: root is needed to install shellcheck: run this as root, or install them yourself\n"
    )
    assert machine.apt_calls() == []


def test_another_distribution_is_told_what_to_install(machine: Machine) -> None:
    (machine.folder / "bin/apt-get").unlink()
    ended = machine.bootstrap("shellcheck")
    assert ended.returncode == 1
    assert "not Debian or Ubuntu" in ended.stderr
    assert "install shellcheck yourself" in ended.stderr


def test_a_checkout_of_somebody_else_is_told_from_a_fault(machine: Machine) -> None:
    (machine.folder / "checkout/.venvs").touch()  # as good as a folder that is not ours to write
    ended = machine.bootstrap()
    assert ended.returncode == 1
    assert ended.stderr.endswith("run this as the owner of the checkout, or in a clone of your own\n")
    assert "Permission" not in ended.stderr


def test_a_python_that_is_too_old_is_named(machine: Machine) -> None:
    machine.has("python3", OLD_PYTHON)
    ended = machine.bootstrap()
    assert ended.returncode == 1
    assert "Python 3.11 or newer is needed and python3 is Python 3.9.2" in ended.stderr


def test_a_newer_python_beside_an_old_one_is_used(machine: Machine) -> None:
    machine.has("python3", OLD_PYTHON)
    machine.has("python3.12", NEW_PYTHON)
    assert "is needed and" not in machine.bootstrap().stderr


def test_an_installation_that_fails_leaves_its_log(machine: Machine) -> None:
    machine.has("apt-get", "echo 'E: Unable to locate package'; exit 100")
    ended = machine.bootstrap("shellcheck")
    assert ended.returncode == 1
    log = Path(ended.stderr.split()[-1])
    assert "Unable to locate package" in log.read_text()
    log.unlink()
