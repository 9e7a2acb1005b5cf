"""Specs as users write them: Slinky's fields, and fields that nothing implements."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from redbox_hosting.api import names
from redbox_hosting.api.controller import ControllerSpec
from redbox_hosting.api.daemons import AccountingSpec, LoginSetSpec, RestApiSpec, TokenSpec
from redbox_hosting.api.nodeset import NodeSet, NodeSetSpec
from redbox_hosting.api.unbuilt import unbuilt_fields
from redbox_kube.status.models import KubeModel

REF = {"name": "slurm"}
ELSEWHERE = {"external": True, "externalConfig": {"host": "a", "port": 6817}}


def paths(spec: KubeModel) -> list[str]:
    return [field.path for field in unbuilt_fields(spec)]


@pytest.mark.parametrize(
    ("model", "spec", "expected"),
    [
        (ControllerSpec, {"ha": {"enabled": True}}, ["spec.ha"]),
        (ControllerSpec, {"ha": {"enabled": False}}, []),
        (ControllerSpec, {"reconfigure": {"image": "x"}}, ["spec.reconfigure"]),
        (ControllerSpec, {"logfile": {"image": "x"}}, ["spec.logfile"]),
        (ControllerSpec, {"metrics": {"enabled": True, "serviceMonitor": {"enabled": False}}}, []),
        (
            ControllerSpec,
            {"metrics": {"enabled": True, "serviceMonitor": {"enabled": True}}},
            ["spec.metrics.serviceMonitor"],
        ),
        (
            ControllerSpec,
            {"redbox": {"users": {"sssdConfRef": {"name": "sssd", "key": "sssd.conf"}}}},
            ["spec.redbox.users.sssdConfRef"],
        ),
        (ControllerSpec, {"redbox": {"users": {"configMapRef": REF}}}, []),
        (
            NodeSetSpec,
            {"controllerRef": REF, "updateStrategy": {"type": "ScheduledUpdate"}},
            ["spec.updateStrategy.type ScheduledUpdate"],
        ),
        (NodeSetSpec, {"controllerRef": REF, "updateStrategy": {"type": "OnDelete"}}, []),
        (NodeSetSpec, {"controllerRef": REF, "redbox": {"onDemand": {"max": 4}}}, ["spec.redbox.onDemand"]),
        (NodeSetSpec, {"controllerRef": REF, "ssh": {"enabled": True}}, ["spec.ssh"]),
        (
            ControllerSpec,
            {**ELSEWHERE, "extraConf": "A=1", "redbox": {"partitions": [{"name": "a"}]}},
            ["spec.extraConf", "spec.redbox.partitions"],
        ),
        (ControllerSpec, ELSEWHERE, []),
        (LoginSetSpec, {"controllerRef": REF, "initconf": {"image": "x"}}, ["spec.initconf"]),
        (RestApiSpec, {"controllerRef": REF}, []),
        (AccountingSpec, {}, []),
        (TokenSpec, {"username": "alice"}, []),
    ],
)
def test_a_field_that_does_nothing_is_named(
    model: type[KubeModel], spec: dict[str, Any], expected: list[str]
) -> None:
    assert paths(model.model_validate(spec)) == expected


def test_an_unbuilt_field_comes_with_a_cure() -> None:
    (field,) = unbuilt_fields(ControllerSpec.model_validate({"ha": {"enabled": True}}))
    assert str(field).startswith("spec.ha is not built: set enabled to false")


@pytest.mark.parametrize("name", ["a b", "a\nPluginDir=/x", "a,b", "", "x" * 65, "a#b", 'a"b', "-a", "é"])
def test_a_name_in_slurm_is_one_word(name: str) -> None:
    with pytest.raises(ValidationError):
        TokenSpec.model_validate({"username": name})


@pytest.mark.parametrize("prefix", ["w", "w-"])
def test_a_workers_name_is_its_prefix_and_a_padded_number(prefix: str) -> None:
    assert names.node_name(prefix, 7) == "w-7"
    assert names.node_name(prefix, 7, 3) == "w-007"


def test_the_hostname_of_the_template_is_the_prefix_of_nodes() -> None:
    spec = {"controllerRef": REF, "template": {"spec": {"hostname": "gpu-"}}}
    assert NodeSet.model_validate({"metadata": {"name": "n"}, "spec": spec}).node_prefix == "gpu-"


def test_the_name_of_a_cluster_is_at_most_forty_characters() -> None:
    spec = ControllerSpec()
    assert spec.name_in_slurm("hpc", "slurm") == "hpc_slurm"
    assert len(spec.name_in_slurm("n" * 63, "c" * 40)) == 40
    assert ControllerSpec.model_validate({"clusterName": "lab"}).name_in_slurm("a", "b") == "lab"
