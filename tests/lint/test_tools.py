"""The tools that read the code without running it have nothing to say about it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from redbox_bed.core.places import Places
from tests.lint.sources import ROOT, sources

PROGRAMS = Path(sys.executable).parent


def has_nothing_to_say(*command: str | Path, cwd: Path = ROOT, env: Mapping[str, str] | None = None) -> None:
    ended = subprocess.run(
        command,
        cwd=cwd,
        env={**os.environ, "NO_COLOR": "1", **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if ended.returncode:
        pytest.fail(f"{Path(command[0]).name} found:\n{ended.stdout}", pytrace=False)


def test_ruff_finds_nothing() -> None:
    has_nothing_to_say(PROGRAMS / "ruff", "check", "--quiet", "--output-format=concise", ".")


def test_the_code_is_formatted() -> None:
    has_nothing_to_say(PROGRAMS / "ruff", "format", "--diff", "--quiet", ".")


@pytest.mark.timeout(600)  # without a cache, beside three other workers
def test_types_hold() -> None:
    """With what earlier runs found in the bed's cache, also those of other checkouts: it goes by content."""
    cache = Places.of().cache / "mypy"
    cache.mkdir(parents=True, exist_ok=True)
    alone = ("flock", cache / "lock")  # of two that write at once one would fail
    has_nothing_to_say(*alone, PROGRAMS / "mypy", f"--cache-dir={cache}", "--no-error-summary")


def test_parts_import_only_what_they_may() -> None:
    has_nothing_to_say(PROGRAMS / "lint-imports", "--no-cache")


def test_the_programs_as_they_are_sent_run_on_python_3_6(program: Path) -> None:
    has_nothing_to_say(PROGRAMS / "vermin", "--no-tips", "--eval-annotations", "-vvv", "-t=3.6-", program)


def test_shell_scripts_are_sound() -> None:
    if not (shellcheck := shutil.which("shellcheck")):
        pytest.skip("there is no shellcheck in PATH (deploy/bootstrap shellcheck)")
    # SC2153 takes what a script is given in its environment for a misspelling.
    has_nothing_to_say(shellcheck, "--shell=dash", "--exclude=SC2153", *shell_scripts())


def shell_scripts() -> list[Path]:
    scripts = [path for path in sources() if path.suffix == ".sh" or (not path.suffix and is_shell(path))]
    assert ROOT / "tests/run" in scripts
    return scripts


def is_shell(path: Path) -> bool:
    return path.read_bytes().startswith((b"#!/bin/sh", b"#!/bin/bash"))


def test_go_is_formatted() -> None:
    files = [path for path in sources() if path.suffix == ".go"]
    if not (gofmt := shutil.which("gofmt")):
        pytest.skip("there is no gofmt in PATH")
    ended = subprocess.run([gofmt, "-d", *files], check=False, capture_output=True, text=True)
    assert ended.stdout + ended.stderr == ""


def go_modules() -> list[Path]:
    """List what `go vet` reads in seconds, not a module that requires Kubernetes, nor one without code."""
    modules = [path for path in sources() if path.name == "go.mod"]
    return [
        path.parent
        for path in modules
        if "k8s.io/kubernetes " not in path.read_text() and list(path.parent.glob("*.go"))
    ]


@pytest.mark.parametrize("module", go_modules(), ids=lambda module: str(module.relative_to(ROOT)))
def test_go_vet_finds_nothing(module: Path) -> None:
    if not (go := shutil.which("go")):
        pytest.skip("there is no go in PATH")
    has_nothing_to_say(go, "vet", "./...", cwd=module, env={"CGO_ENABLED": "0"})
