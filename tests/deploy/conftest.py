"""Helm, as the bed has it; built once, which takes minutes on a new machine."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from redbox_bed.core.places import CHECKOUT, Places
from redbox_bed.programs.helm import ensure_helm

CHART = CHECKOUT / "deploy" / "chart"
Rendered = list[dict[str, Any]]


@pytest.fixture(scope="session")
def helm() -> Path:
    return ensure_helm(Places.of(), print)


@pytest.fixture
def refused(helm: Path) -> Callable[[Mapping[str, Any]], str]:
    """What Helm says of values that it does not take."""

    def render(values: Mapping[str, Any]) -> str:
        ended = template(helm, values)
        assert ended.returncode != 0
        return ended.stderr

    return render


@pytest.fixture
def rendered(helm: Path) -> Callable[..., Rendered]:
    """The objects that the chart makes of values, a registry among them."""

    def render(**values: object) -> Rendered:
        ended = template(helm, {"images": {"registry": "example.org"}, **values})
        assert ended.returncode == 0, ended.stderr
        return [one for one in yaml.load_all(ended.stdout, yaml.CSafeLoader) if one]

    return render


def template(helm: Path, values: Mapping[str, Any]) -> subprocess.CompletedProcess[str]:
    return _template(helm, json.dumps(values, sort_keys=True))


@cache
def _template(helm: Path, values: str) -> subprocess.CompletedProcess[str]:
    """Many tests look at what the same values make."""
    command = [str(helm), "template", "red-box", str(CHART), "--namespace", "redbox-system", "--values=-"]
    return subprocess.run(command, input=values, check=False, capture_output=True, text=True, timeout=60)
