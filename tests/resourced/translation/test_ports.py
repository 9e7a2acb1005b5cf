"""Pods whose ports the runner chooses: what the containers find them in."""

from __future__ import annotations

from typing import Any

import pytest

from redbox_api.pod_parts import PodProgram
from redbox_resourced.translation.errors import Unsupported
from tests.resourced.translation.factories import container, pod, requested

DYNAMIC = {"annotations": {"redbox.dev/dynamic-ports": "true"}}


def program_of(*containers: dict[str, Any], **spec: Any) -> PodProgram:
    program = requested(pod(*containers, metadata=DYNAMIC, **spec)).pod
    assert program is not None
    return program


def variables(program: PodProgram, number: int = 0) -> dict[str, int | None]:
    return {each.name: each.from_port for each in program.containers[number].env if each.from_port}


def test_each_container_finds_all_ports_by_name_and_the_first_one_by_none() -> None:
    web = container("web", ports=[{"containerPort": 8080, "name": "http-alt"}, {"containerPort": 9000}])
    side = container("side", ports=[{"containerPort": 53, "protocol": "UDP"}])
    program = program_of(web, side)
    assert program.dynamic_ports
    for number in range(2):
        assert variables(program, number) == {"PORT": 8080, "PORT_HTTP_ALT": 8080}


def test_a_variable_of_the_containers_own_counts() -> None:
    program = program_of(container(ports=[{"containerPort": 80}], env=[{"name": "PORT", "value": "mine"}]))
    assert [each.value for each in program.containers[0].env if each.name == "PORT"][-1] == "mine"


def test_a_port_of_the_host_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"ports\[80\]\.hostPort: .* leave one of them out"):
        program_of(container(ports=[{"containerPort": 80, "hostPort": 80}]))


def test_another_word_than_true_is_refused() -> None:
    with pytest.raises(Unsupported, match=r"dynamic-ports.*neither true nor false"):
        requested(pod(container(), metadata={"annotations": {"redbox.dev/dynamic-ports": "yes"}}))


def test_too_many_are_refused() -> None:
    with pytest.raises(Unsupported, match="at most 64"):
        program_of(container(ports=[{"containerPort": number} for number in range(1, 66)]))
