"""`doctor` and clusters that Kubernetes runs: what is not well has one line with its cure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.cli.factories import condition, slurmcluster
from tests.cli.harness import Kubectl, run

MESSAGE = "the image slurm:latest has no tag that begins with 24.11 or 26.05: name one that has"
FORBIDDEN = "echo 'Error from server (Forbidden): {0} is forbidden: User \"a\" cannot list' >&2; exit 1"


@pytest.fixture
def kubectl(kubectl: Kubectl) -> Kubectl:
    kubectl.answers(
        "clusters",
        [{**slurmcluster(), "spec": {"endpoint": "https://127.0.0.1:1", "caBundle": "", "audience": "a"}}],
    )
    kubectl.answers("lease", lease())
    return kubectl


def lease(*, age: timedelta = timedelta(), holder: str = "redbox-hosting-a") -> dict[str, Any]:
    return {"spec": {"holderIdentity": holder, "renewTime": (datetime.now(UTC) - age).isoformat()}}


def hosted(kind: str, *conditions: dict[str, Any], namespace: str = "hpc") -> dict[str, Any]:
    metadata = {"name": kind.lower(), "namespace": namespace}
    status = {"conditions": list(conditions)} if conditions else {}
    return {"kind": kind, "metadata": metadata, "status": status}


def said(kind: str, status: str, message: str) -> dict[str, Any]:
    return {**condition(kind, status, "Reason"), "message": message}


READY = said("Ready", "True", "slurmctld runs the wanted configuration")


def lines_of(kubectl: Kubectl, *objects: dict[str, Any]) -> tuple[int, list[str]]:
    """Those about hosted clusters, with their cures."""
    if objects:
        kubectl.answers("hosted", list(objects))
    ended = run(kubectl, "doctor", "--no-submit")
    lines = ended.stdout.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith("ok quota")) + 1
    end = next(number for number, line in enumerate(lines) if "SlurmCluster hpc1" in line)
    return ended.returncode, lines[begin:end]


def test_a_cluster_without_hosted_slurm_has_no_line(kubectl: Kubectl) -> None:
    assert lines_of(kubectl) == (0, [])


def test_a_namespace_whose_objects_are_ready_is_one_line(kubectl: Kubectl) -> None:
    code, lines = lines_of(kubectl, hosted("Controller", READY), hosted("NodeSet", READY))
    assert (code, lines) == (0, ["ok hosted Slurm in hpc: ready: Controller controller, NodeSet nodeset"])


@pytest.mark.parametrize("kind", ["Controller", "NodeSet", "Accounting", "LoginSet", "RestApi", "Token"])
def test_an_object_of_each_kind_that_is_not_well_is_one_line_with_its_cure(
    kubectl: Kubectl, kind: str
) -> None:
    broken = hosted(kind, said("Ready", "False", f"Image: {MESSAGE}"), said("Degraded", "True", MESSAGE))
    code, lines = lines_of(kubectl, hosted("Controller", READY, namespace="lab"), broken)
    assert code == 1
    assert lines[0] == f"!! {kind} {kind.lower()} in hpc: {MESSAGE}"
    assert f"kubectl describe {kind.lower()}s.slurm.redbox.dev --namespace=hpc {kind.lower()}" in lines[1]
    assert lines[2:] == ["ok hosted Slurm in lab: ready: Controller controller"]


@pytest.mark.parametrize(
    ("alarm", "status"),
    [
        *((each, "True") for each in ("ClusterIdMismatch", "Expiring", "PodAltered", "MachinesLost")),
        *((each, "False") for each in ("UsersValid", "HomesValid")),
    ],
)
def test_an_alarm_of_an_object_that_is_ready_is_a_line(kubectl: Kubectl, alarm: str, status: str) -> None:
    code, lines = lines_of(kubectl, hosted("Token", READY, said(alarm, status, "it ends at noon")))
    assert (code, lines[0]) == (1, "!! Token token in hpc: it ends at noon")


def test_an_object_that_waits_is_not_a_fault(kubectl: Kubectl) -> None:
    code, lines = lines_of(kubectl, hosted("Controller", said("Ready", "False", "slurm-controller to start")))
    assert (code, lines[0]) == (0, "?? Controller controller in hpc: slurm-controller to start")
    assert "wait; if it stays so" in lines[1]


@pytest.mark.parametrize(
    ("found", "words", "cure"),
    [
        (None, "it does not serve the namespace hpc", "adds hpc to hosting.namespaces"),
        (lease(age=timedelta(hours=1)), "it has not served the namespace hpc since", "deployment/redbox-hos"),
        (lease(holder=""), "it has not served the namespace hpc since", "deployment/redbox-hosting"),
        ({"spec": {"holderIdentity": "a", "renewTime": "soon"}}, "since soon", "deployment/redbox-hosting"),
    ],
)
def test_an_operator_that_is_away_is_the_only_line(
    kubectl: Kubectl, found: dict[str, Any] | None, words: str, cure: str
) -> None:
    kubectl.forgets("lease")
    if found is not None:
        kubectl.answers("lease", found)
    code, lines = lines_of(kubectl, hosted("Controller", said("Degraded", "True", MESSAGE)), hosted("Token"))
    assert (code, len(lines)) == (1, 2)
    assert words in lines[0]
    assert cure in lines[1]


def test_a_status_that_was_never_written_tells_those_who_may_not_read_leases(kubectl: Kubectl) -> None:
    kubectl.when('*leases*" -- "*', FORBIDDEN.format("leases"))
    _, lines = lines_of(kubectl, hosted("Controller", READY))
    assert lines == ["ok hosted Slurm in hpc: ready: Controller controller"]
    code, lines = lines_of(kubectl, hosted("Controller", READY), hosted("Token"))
    assert (code, lines[0]) == (
        1,
        "!! redbox-hosting: it has not written the status of Token token in the namespace hpc",
    )


def test_those_who_may_not_list_everywhere_see_their_namespace(kubectl: Kubectl) -> None:
    kubectl.when("*slurm.redbox.dev*all-namespaces*", FORBIDDEN.format("controllers"))
    _, lines = lines_of(kubectl, hosted("Controller", READY))
    assert lines == ["ok hosted Slurm in hpc: ready: Controller controller"]


def test_kinds_that_may_not_be_listed_hide_no_other(kubectl: Kubectl) -> None:
    """kubectl prints the others, and fails."""
    kubectl.when("*slurm.redbox.dev*", f'cat "$ANSWERS/hosted"; {FORBIDDEN.format("tokens")}')
    assert lines_of(kubectl, hosted("NodeSet", READY))[1] == [
        "ok hosted Slurm in hpc: ready: NodeSet nodeset"
    ]


def test_those_who_may_list_nothing_have_no_line(kubectl: Kubectl) -> None:
    kubectl.when("*slurm.redbox.dev*", FORBIDDEN.format("controllers"))
    assert lines_of(kubectl) == (0, [])


def test_an_api_server_that_does_not_answer_is_a_line(kubectl: Kubectl) -> None:
    kubectl.when("*slurm.redbox.dev*", "echo 'Unable to connect to the server: i/o timeout' >&2; exit 1")
    code, lines = lines_of(kubectl)
    assert code == 1
    assert lines[0].startswith("!! hosted Slurm: the cluster does not answer")
