"""Strategic merge: what a user writes wins, also when it is false, 0 or empty."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_hosting.build.pods.merge import strategic_merge


@pytest.mark.parametrize(
    ("base", "patch", "expected"),
    [
        ({"a": True}, {"a": False}, {"a": False}),
        ({"a": 5}, {"a": 0}, {"a": 0}),
        ({"a": "x"}, {"a": ""}, {"a": ""}),
        ({"a": [1]}, {"a": []}, {"a": []}),
        ({"a": 1}, {"a": None}, {}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": False}}, {"a": {"b": False, "c": 2}}),
        ({"a": {"b": 1}}, {"a": "text"}, {"a": "text"}),
        ({"command": ["a", "b"]}, {"command": ["c"]}, {"command": ["c"]}),
        (
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            {"env": [{"name": "B", "value": ""}, {"name": "C", "value": "3"}]},
            {
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "B", "value": ""},
                    {"name": "C", "value": "3"},
                ]
            },
        ),
        (
            {"volumeMounts": [{"name": "etc", "mountPath": "/etc/slurm"}]},
            {"volumeMounts": [{"name": "home", "mountPath": "/home"}]},
            {
                "volumeMounts": [
                    {"name": "etc", "mountPath": "/etc/slurm"},
                    {"name": "home", "mountPath": "/home"},
                ]
            },
        ),
        (
            {"ports": [{"containerPort": 53, "protocol": "UDP"}]},
            {"ports": [{"containerPort": 53}, {"containerPort": 53, "protocol": "UDP", "name": "dns"}]},
            {
                "ports": [
                    {"containerPort": 53, "protocol": "UDP", "name": "dns"},
                    {"containerPort": 53},
                ]
            },
        ),
        (
            {"tolerations": [{"key": "a"}]},
            {"tolerations": [{"key": "b"}, {"key": "a"}]},
            {"tolerations": [{"key": "a"}, {"key": "b"}]},
        ),
        (
            {"readinessProbe": {"httpGet": {"port": 1}, "periodSeconds": 2}},
            {"readinessProbe": {"exec": {"command": ["a"]}}},
            {"readinessProbe": {"exec": {"command": ["a"]}, "periodSeconds": 2}},
        ),
    ],
)
def test_merge(base: dict[str, Any], patch: dict[str, Any], expected: dict[str, Any]) -> None:
    before = repr((base, patch))
    assert strategic_merge(base, patch) == expected
    assert repr((base, patch)) == before, "neither is changed"
