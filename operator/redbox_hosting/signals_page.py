"""The reference page of what redbox-hosting reports: conditions, reasons of events, and metrics.

Steps and metrics are read from the operator's own objects, so that none is left out. Their meanings, and the
conditions that are no step, stand here; a test compares them with the sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

from redbox_hosting.application import HostingOperator, HostingOptions
from redbox_hosting.controllers.context import OperatorPods
from redbox_hosting.nodeset.drains import DrainOwner
from redbox_kube.api.objects import ObjectClient
from redbox_kube.controller.steps import StepState

STEP_MEANINGS = {
    "Accounting": {
        "Clusters": "at least one Controller names this Accounting",
        "Database": "MariaDB runs, if the operator runs one",
        "Slurmdbd": "slurmdbd runs with its configuration",
        "Keys": "all its clusters have slurmdbd's keys",
        "Registered": "the slurmctld of each cluster has registered with slurmdbd",
        "Users": "slurmdbd has the users of each cluster",
    },
    "Controller": {
        "Finalizer": "the object stays until its NodeSets are gone",
        "Authority": "this operator is new enough to change what is there",
        "Keys": "keys and certificates exist and are not due",
        "Image": "the image names a known release of Slurm",
        "Network": "Services, NetworkPolicies and the workers' budget exist",
        "Users": "the ConfigMap that pods mount has the good lines of the users",
        "Homes": "each user whose home is directly in `/home` has a folder in the claim",
        "Configuration": "the wanted configuration is the one that pods mount",
        "Daemons": "slurmctld and the operator's slurmrestd run",
        "Slurm": "slurmctld was seen to run the mounted configuration",
        "KeysRotated": "no rotation of keys is under way; the message names its step",
        "NodeSets": "in deletion: its NodeSets are gone",
    },
    "LoginSet": {
        "Fields": "no field is set that does nothing",
        "HostKey": "the Secret with the host key exists",
        "Login": "sshd runs with its configuration",
    },
    "NodeSet": {
        "Finalizer": "the object stays until its workers are gone",
        "Revision": "the revision of the spec is recorded",
        "NamespaceFence": "the namespace has the label by which its deletion is refused",
        "Workers": "as many pods exist as are wanted",
        "Authority": "this operator is new enough to drain and to remove workers",
        "Condemned": "workers that are to go have the annotation, and no others",
        "Nodes": "Slurm's nodes are drained or resumed as wanted",
        "Removal": "workers that passed the gate are deleted",
        "Records": "former nodes are deleted in Slurm",
        "PodConditions": "each worker's pod shows who drained its node",
        "Gone": "in deletion: all workers and their records are gone",
    },
    "RestApi": {
        "Certificate": "the certificate of slurmrestd exists and is not due",
        "Slurmrestd": "slurmrestd runs",
    },
    "Token": {
        "Allowed": "the Controller allows a token for this user",
        "Signed": "the Secret has a valid token",
    },
}
OTHER_CONDITIONS = [
    ("all", "Ready", "Ready, NotReady, NotObserved", "the object is as its spec wants"),
    ("all", "Progressing", "Waiting, Done", "true: it waits for what the message names"),
    (
        "all",
        "Degraded",
        "StepsFailed, Failed, NoneFailed",
        "true: somebody has to act",
    ),
    ("all", "Observed", "Failed", "only while no step can run"),
    (
        "Accounting",
        "ClusterIdMismatch",
        "SlurmctldHasAnotherId, NoneHas",
        "true: a cluster has another id",
    ),
    (
        "Controller",
        "ConfigurationTried",
        "Trying, Accepted, Unknown, Refused",
        "how a slurmctld and a slurmd of their own ran the wanted configuration; absent if it is not tried",
    ),
    (
        "Controller",
        "UsersValid",
        "LinesLeftOut, AllTaken",
        "false: lines of users or groups are left out, and the message names them",
    ),
    (
        "Controller",
        "HomesValid",
        "Problems, NotMadeHere, NoProblems",
        "false: the claim cannot be shared, or a folder is not its user's; NotMadeHere: the homes are yours",
    ),
    (
        "Controller",
        "UpgradeBlocked",
        "Waiting, NotBlocked",
        "true: slurmctld keeps its release until the daemon in the message has the new one",
    ),
    ("Token", "Expiring", "NotRenewed, Fresh", "true: the last fifth of its life, and not renewed"),
    ("NodeSet", "Draining", "Waiting, Unknown", "workers that are to go: their gate waits, or is unknown"),
    ("NodeSet", "PodAltered", "Altered", "somebody changed pods: their nodes are not resumed"),
    ("NodeSet", "MachinesLost", "Lost", "machines of workers are lost or gone"),
    ("NodeSet", "NodesMissing", "NoRecord", "Slurm lost the record of a running worker"),
    ("NodeSet", "NodesUnreadable", "NoRights", "cordons and lost machines are not seen"),
    ("NodeSet", "SlurmRead", "Unknown", "Slurm was not read; numbers of nodes are the last that were"),
]
"""Kind, type, reasons, meaning."""
POD_REASONS = {
    "InService": "false: the node takes jobs",
    "Unknown": "unknown: the operator cannot tell whether jobs run there",
    DrainOwner.OPERATOR: "true: the worker is to go, or was cordoned",
    DrainOwner.SLURM: "true: Slurm took it out of service",
    DrainOwner.ADMINISTRATOR: "true: an administrator drained it; the operator does not resume it",
    DrainOwner.NOBODY: "true: it is out of service without a reason",
    "Reservation": "true: a maintenance reservation has the node",
}
OTHER_EVENTS = [
    ("NodeSet", "JobsLost", "Warning", "a worker ended with jobs on it, which are named"),
    ("Pod", "NodeDraining", "Normal, Warning if unknown", "the condition Draining has changed"),
    ("Pod", "NodeInService", "Normal", "the node takes jobs again"),
]
"""Kind, reason, type, meaning."""
STEP_STATES = {
    StepState.DONE: "true",
    StepState.WAITING: "false: it waits for what the message names",
    StepState.FAILED: "false: the message has the cure",
    StepState.BLOCKED: "unknown: a step that it needs is not done",
}
BEGIN = """\
# What redbox-hosting reports

Generated by `make generate`. Alerts and scripts may rely on the names in these tables, which change only in a
minor release, with an entry in the change log. Messages may change at any time.

## Conditions

Each step of a reconciliation is a condition. Its reasons are:
"""
BEFORE_EVENTS = """
## Events

A step has three reasons of events: its own name for what it did (Normal), `STEPFailed` for the first failure
of a series (Warning), and `STEPRecovered` (Normal). Others:
"""
BEFORE_METRICS = """
## Metrics

At `/metrics` on the port of probes. No label has the name of a user or of an object.
"""


def signals_page() -> str:
    """The whole page."""
    operator = _operator()
    steps = {str(each.kind): each.step_names for each in operator.controllers}
    parts = [
        BEGIN,
        _table(("reason", "status"), ((f"`{state}`", words) for state, words in STEP_STATES.items())),
        "",
        _table(("kind", "step", "true if"), _steps(steps)),
        "\nConditions that are no step:\n",
        _table(("kind", "type", "reasons", "meaning"), _coded(OTHER_CONDITIONS)),
        "\nReasons of the condition `slurm.redbox.dev/Draining` of a worker's pod:\n",
        _table(("reason", "status"), ((f"`{reason}`", words) for reason, words in POD_REASONS.items())),
        BEFORE_EVENTS,
        _table(("about", "reason", "type", "meaning"), _coded(OTHER_EVENTS)),
        BEFORE_METRICS,
        _table(("metric", "type", "labels", "meaning"), _metrics(operator)),
    ]
    return "\n".join(parts) + "\n"


def _operator() -> HostingOperator:
    """It connects to nothing before it runs."""
    objects = cast("ObjectClient", _NoClient())
    return HostingOperator(objects, HostingOptions([], OperatorPods("redbox-system")))


class _NoClient:
    """In place of a client: only its name is read."""

    field_manager = "redbox-hosting"


def _steps(steps: dict[str, list[str]]) -> Iterator[Iterable[str]]:
    for kind, names in sorted(steps.items()):
        for name in names:
            yield kind, f"`{name}`", STEP_MEANINGS[kind][name]


def _coded(rows: Iterable[tuple[str, str, str, str]]) -> Iterator[Iterable[str]]:
    for kind, name, reasons, meaning in rows:
        yield kind, f"`{name}`", reasons, meaning


def _metrics(operator: HostingOperator) -> Iterator[Iterable[str]]:
    for family in sorted(operator.registry.collect(), key=lambda family: family.name):
        total = "_total" if family.type == "counter" else ""
        labels = ", ".join(_labels_of(operator, family.name))
        yield f"`{family.name}{total}`", family.type, labels, family.documentation


def _labels_of(operator: HostingOperator, name: str) -> Iterable[str]:
    """Of a family that may have no sample yet."""
    collectors: dict[Any, list[str]] = operator.registry._collector_to_names  # noqa: SLF001 (it has no other way)
    return next(each._labelnames for each, found in collectors.items() if name in found)  # noqa: SLF001


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [list(head), *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
