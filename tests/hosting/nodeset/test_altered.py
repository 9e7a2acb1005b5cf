"""What others changed in a worker's pod."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from redbox_hosting.build.pods.worker import WorkerPlan, worker_pod
from redbox_hosting.nodeset.altered import alterations
from tests.hosting.factories import cell, node_set

WANTED = worker_pod(cell(), WorkerPlan(node_set(), 0, "rev"))


def changed(change: Callable[[dict[str, Any]], object]) -> list[str]:
    live = copy.deepcopy(WANTED)
    change(live["spec"])
    return alterations(WANTED, live)


def defaulted(spec: dict[str, Any]) -> None:
    """As the API server writes it back."""
    spec |= {"dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler", "nodeName": "k1"}
    slurmd = spec["containers"][0]
    slurmd |= {"imagePullPolicy": "Always", "terminationMessagePath": "/dev/termination-log"}
    slurmd["image"] = "mirror.example.org/slurm@sha256:0"
    slurmd["resources"]["limits"] = {"cpu": "4", "memory": "8192Mi"}
    spec["tolerations"] = [*spec["tolerations"], {"key": "x"}]


def test_defaults_are_no_alteration() -> None:
    assert changed(defaulted) == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda spec: spec["containers"].append({"name": "proxy"}), "containers: proxy was added"),
        (lambda spec: spec.update(initContainers=[{"name": "i"}]), "initContainers: i was added"),
        (lambda spec: spec.update(containers=[]), "containers: slurmd is missing"),
        (
            lambda spec: spec["containers"][0]["resources"]["limits"].update(memory="4Gi"),
            "slurmd: resources",
        ),
        (lambda spec: spec["containers"][0]["resources"].pop("requests"), "slurmd: resources"),
        (lambda spec: spec["containers"][0].update(command=["sh"]), "slurmd: command"),
        (lambda spec: spec["containers"][0].pop("lifecycle"), "slurmd: lifecycle"),
        (lambda spec: spec["containers"][0]["args"].append("-v"), "slurmd: args"),
        (lambda spec: spec.update(terminationGracePeriodSeconds=30), "terminationGracePeriodSeconds"),
        (lambda spec: spec.update(hostNetwork=True), "hostNetwork"),
        (lambda spec: spec.update(activeDeadlineSeconds=60), "activeDeadlineSeconds"),
        (lambda spec: spec.update(restartPolicy="Never"), "restartPolicy"),
    ],
)
def test_an_alteration_is_named(change: Callable[[dict[str, Any]], object], field: str) -> None:
    assert changed(change) == [field]
