"""The chart's alerts, by Prometheus' own promtool: each fires for its fault, names it, and is silent else."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from redbox_bed.core.places import CHECKOUT
from tests.deploy.debian_programs import unpacked

CASES = CHECKOUT / "tests/deploy/alerts.yaml"
pytestmark = pytest.mark.timeout(600)  # promtool is fetched first, once


@pytest.fixture(scope="module")
def promtool() -> Path:
    return unpacked("prometheus") / "usr/bin/promtool"


@pytest.fixture
def rules(rendered: Callable[..., list[dict[str, Any]]], tmp_path: Path) -> list[dict[str, Any]]:
    """The chart's, and in a file beside the cases."""
    objects = rendered(resourced={"enabled": True}, monitoring={"prometheusRule": True})
    (one,) = [each for each in objects if each["kind"] == "PrometheusRule"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(one["spec"]))
    shutil.copy(CASES, tmp_path)
    return [rule for group in one["spec"]["groups"] for rule in group["rules"]]


@pytest.mark.usefixtures("rules")
@pytest.mark.parametrize(("kind", "file"), [("check", "rules.yaml"), ("test", "alerts.yaml")])
def test_promtool_finds_nothing_wrong(promtool: Path, tmp_path: Path, kind: str, file: str) -> None:
    ended = subprocess.run(
        [promtool, kind, "rules", file], check=False, cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_every_alert_is_seen_to_fire_and_to_be_silent(rules: list[dict[str, Any]]) -> None:
    tried = [one for case in yaml.safe_load(CASES.read_text())["tests"] for one in case["alert_rule_test"]]
    for fires in (True, False):
        assert {one["alertname"] for one in tried if ("exp_alerts" in one) is fires} == {
            rule["alert"] for rule in rules
        }
