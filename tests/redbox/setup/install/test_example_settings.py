"""The settings file with everything in it: whole, loadable, and never out of date."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from redbox.core.yaml_document import parse_document, validate
from redbox.settings import RedboxSettings
from redbox.setup.install.example_settings import render_settings

ROOT = Path(__file__).parents[4]
DISABLED = re.compile(r"^#(?! \S)")


def uncommented(text: str) -> str:
    return "\n".join(DISABLED.sub("", line) for line in text.splitlines())


def keys_in(value: Any, place: str = "") -> set[str]:
    if isinstance(value, dict):
        return {f"{place}.{key}" for key in value} | {
            found for key, below in value.items() for found in keys_in(below, f"{place}.{key}")
        }
    if isinstance(value, list):
        return {found for below in value for found in keys_in(below, f"{place}[]")}
    return set()


def test_the_example_in_the_repository_is_what_the_models_say() -> None:
    assert (ROOT / "redbox/redbox.example.yaml").read_text() == render_settings({"name": "hpc1"}), (
        "generate it: .venv/bin/python -m redbox.setup.install.example_settings > redbox/redbox.example.yaml"
    )


def test_the_example_loads_as_it_is_and_changes_no_default() -> None:
    loaded = validate(RedboxSettings, parse_document(render_settings({"name": "hpc1"}), "example"))
    assert loaded == RedboxSettings(name="hpc1")


def test_every_line_of_the_example_can_be_taken_into_use() -> None:
    whole = yaml.safe_load(uncommented(render_settings({"name": "hpc1"})))
    whole["agents"]["transport"] = "ssh"
    whole["agents"]["ssh"]["addresses"] = ["10.77.0.1"]
    settings = validate(RedboxSettings, parse_document(yaml.safe_dump(whole), "example"))
    assert settings.callers.clusters[0].name == "prod"
    assert settings.mapping.rules[0].user == "alice"
    defaults = RedboxSettings(name="hpc1")
    assert (settings.jobs, settings.logs, settings.limits, settings.audit) == (
        defaults.jobs,
        defaults.logs,
        defaults.limits,
        defaults.audit,
    )


def test_every_key_of_every_section_is_in_the_example() -> None:
    shown = keys_in(yaml.safe_load(uncommented(render_settings({"name": "hpc1"}))))
    schema = RedboxSettings.model_json_schema()
    for section, described in schema["$defs"].items():
        for key in described.get("properties", {}):
            assert any(place.endswith(f".{key}") for place in shown), f"{section}.{key}"


def test_every_key_that_is_not_a_section_has_a_description() -> None:
    schema = RedboxSettings.model_json_schema()
    for section, described in {"": schema, **schema["$defs"]}.items():
        for key, value in described.get("properties", {}).items():
            assert "description" in value or "$ref" in str(value), f"{section}.{key}"


def test_given_values_are_in_force_and_the_rest_is_not() -> None:
    rule = {"cluster": "prod", "namespaces": ["physics"], "user": "alice"}
    text = render_settings({"name": "hpc1", "listen": {"port": 9443}, "mapping": {"rules": [rule, rule]}})
    assert yaml.safe_load(text) == {
        "name": "hpc1",
        "listen": {"port": 9443},
        "tls": None,
        "callers": None,
        "mapping": {"rules": [rule, rule]},
        "agents": {"pool": None},
        "slurm": {"metrics": None},
        "jobs": None,
        "logs": None,
        "volumes": None,
        "exec": None,
        "limits": None,
        "audit": None,
    }
