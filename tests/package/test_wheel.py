"""The wheel, installed in an empty virtual environment, works outside of the checkout."""

import json
import re
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INSTALLS_WITHIN = 480


@dataclass(frozen=True)
class Part:
    """A program, the extra that brings what it needs, and the packages that are its own."""

    program: str
    extra: str
    packages: tuple[str, ...]


PLUGIN = Part("kubectl-slurm", "cli", ("kubectl_slurm", "redbox_shared"))
"""Works without its extra, but for YAML."""
COMPANION = Part("redbox-companion", "", ("redbox_companion", "redbox_shared"))
WITH_EXTRA = (
    Part("redbox", "server", ("redbox", "redbox_api", "redbox_shared")),
    Part(
        "redbox-operator",
        "operator",
        ("redbox_operator", "redbox_clusters", "redbox_kube", "redbox_api", "redbox_shared"),
    ),
    Part(
        "redbox-resourced",
        "resourced",
        ("redbox_resourced", "redbox_clusters", "redbox_kube", "redbox_api", "redbox_shared"),
    ),
)
pytestmark = [
    pytest.mark.timeout(INSTALLS_WITHIN + 60),
    *(pytest.mark.nightly(part=part) for part in WITH_EXTRA[1:]),
]
IMPORT_ALL = """
import importlib, json, pkgutil, sys
names = [
    found.name
    for package in sys.argv[1:]
    for found in pkgutil.walk_packages(importlib.import_module(package).__path__, package + ".")
]
for name in names:
    importlib.import_module(name)
print(json.dumps(names))
"""


@dataclass(frozen=True)
class Environment:
    """A virtual environment, and a folder that has nothing to do with the checkout."""

    place: Path
    elsewhere: Path

    def run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.place / "bin" / program), *arguments],
            cwd=self.elsewhere,
            capture_output=True,
            text=True,
            check=False,
            timeout=INSTALLS_WITHIN,
        )

    def pip(self, *arguments: str | Path) -> str:
        """Run this interpreter's pip on the environment, which has none itself."""
        command: list[str | Path] = [sys.executable, "-m", "pip", "--python", self.place, *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=INSTALLS_WITHIN)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel from the checkout, with the build tools of this environment."""
    built = tmp_path_factory.mktemp("dist")
    command: list[str | Path] = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        built,
        ROOT,
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=INSTALLS_WITHIN)
    (only,) = built.glob("red_box-*.whl")
    return only


@pytest.fixture(scope="session")
def constraints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the lock's versions without its hashes: with them, pip would want one for the wheel too."""
    pinned = re.findall(r"^(\S+==[^\\\n]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    path = tmp_path_factory.mktemp("constraints") / "constraints.txt"
    path.write_text("\n".join(pinned))
    return path


@pytest.fixture(scope="module")
def bare(wheel: Path, constraints: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Install without any extra."""
    return environment_with(wheel, "", constraints, tmp_path_factory)


@pytest.fixture(scope="module", params=[*WITH_EXTRA, PLUGIN], ids=lambda part: part.extra)
def part(request: pytest.FixtureRequest) -> Part:
    chosen: Part = request.param
    return chosen


@pytest.fixture(scope="module")
def with_extra(
    part: Part, wheel: Path, constraints: Path, tmp_path_factory: pytest.TempPathFactory
) -> Environment:
    """Install with one extra and no other."""
    return environment_with(wheel, part.extra, constraints, tmp_path_factory)


def environment_with(
    wheel: Path, extra: str, constraints: Path, folders: pytest.TempPathFactory
) -> Environment:
    environment = Environment(folders.mktemp("environment"), folders.mktemp("elsewhere"))
    venv.create(environment.place)
    requirement = f"red-box[{extra}] @ {wheel.as_uri()}" if extra else str(wheel)
    environment.pip("install", "--quiet", "--no-compile", "-c", constraints, requirement)
    return environment


def assert_starts(environment: Environment, program: str) -> None:
    version = environment.run(program, "--version")
    assert re.fullmatch(rf"{program} \d+\.\d+\.\d+\n", version.stdout), version.stderr
    usage = environment.run(program, "--help")
    assert usage.returncode == 0, usage.stderr
    typed = program.replace("kubectl-", "kubectl ")
    assert f"usage: {typed}" in usage.stdout.lower().replace("  ", " ")


def test_without_an_extra_the_companion_starts(bare: Environment) -> None:
    assert_starts(bare, COMPANION.program)


def test_without_an_extra_nothing_else_is_installed(bare: Environment) -> None:
    assert [found["name"] for found in json.loads(bare.pip("list", "--format=json"))] == ["red-box"]


@pytest.mark.parametrize("lacking", WITH_EXTRA, ids=lambda part: part.extra)
def test_a_program_whose_extra_is_missing_says_so_in_one_line(bare: Environment, lacking: Part) -> None:
    ended = bare.run(lacking.program, "--help")
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert f"pip install 'WHEEL[{lacking.extra}]'" in line


def test_without_its_extra_the_plugin_says_what_yaml_needs(bare: Environment) -> None:
    assert_starts(bare, PLUGIN.program)
    ended = bare.run(PLUGIN.program, "submit", "--dry-run", "--wrap", "true")
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert "pip install 'WHEEL[cli]'" in line


def test_with_its_extra_a_program_starts(with_extra: Environment, part: Part) -> None:
    assert_starts(with_extra, part.program)


def test_an_extra_brings_all_that_its_packages_import(with_extra: Environment, part: Part) -> None:
    imported = with_extra.run("python", "-I", "-c", IMPORT_ALL, *part.packages)
    assert imported.returncode == 0, imported.stderr
    assert f"{part.packages[0]}.cli" in json.loads(imported.stdout)


def test_the_checkouts_folders_shadow_no_module_of_the_standard_library() -> None:
    program = "import operator, sys; assert operator.add(1, 2) == 3; print(operator.__file__)"
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert not Path(ended.stdout.strip()).is_relative_to(ROOT / "operator")
