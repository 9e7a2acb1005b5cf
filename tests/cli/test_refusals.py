"""kubectl's words, as v1.34 prints them, and the sentences with a cure that become of them."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import pytest

from kubectl_slurm.errors import KindsMissing, NotAnswered, NotPermitted, ObjectNotFound, Refusal
from kubectl_slurm.kubectl import program
from kubectl_slurm.kubectl.program import Kubectl
from kubectl_slurm.kubectl.refusals import is_own_line, refusal_of

LOG = "E1124 20:00:00.123456    1234 memcache.go:265] couldn't get current server API group list: "
NO_CONFIG = (
    "The connection to the server localhost:8080 was refused - did you specify the right host or port?"
)
EXPIRED = (
    "Unable to connect to the server: getting credentials: exec: executable aws failed with exit code 255"
)
FORBIDDEN = (
    'Error from server (Forbidden): slurmjobs.redbox.dev is forbidden: User "eve" cannot list resource '
    '"slurmjobs" in API group "redbox.dev" in the namespace "alice"'
)
CLUSTERS = (
    'Error from server (Forbidden): slurmclusters.redbox.dev "hpc1" is forbidden: User "eve" cannot get '
    'resource "slurmclusters" in API group "redbox.dev" at the cluster scope'
)
EXEC = (
    'Error from server (Forbidden): pods "x" is forbidden: User "eve" cannot create resource "pods/exec" in '
    'API group "" in the namespace "alice"'
)
NODES = (
    'Error from server (Forbidden): nodes is forbidden: User "eve" cannot list resource "nodes" in API group '
    '"" at the cluster scope'
)
QUOTA = 'Error from server (Forbidden): slurmjobs.redbox.dev "x" is forbidden: exceeded quota: few, used: 1'
FROM_KUBELET = "Error from server: Sessions are off at this red-box"
INVALID = 'The SlurmJob "x" is invalid: spec.resources.nodes: Invalid value: 0: should be >= 1'
NO_KINDS = 'error: the server doesn\'t have a resource type "slurmjobs"'
NOT_FOUND = 'Error from server (NotFound): slurmjobs.redbox.dev "train" not found'
RESET = (
    'Get "https://127.0.0.1:1/apis/redbox.dev/v1alpha1/namespaces/alice/slurmjobs?limit=500": read tcp '
    "127.0.0.1:2->127.0.0.1:1: connection reset by peer - error from a previous attempt: EOF"
)
NO_TOKEN = (
    'error: failed to create token: serviceaccounts "default" is forbidden: User "eve" cannot create '
    'resource "serviceaccounts/token" in API group "" in the namespace "alice"'
)
NO_ACCOUNT = 'error: failed to create token: serviceaccounts "ghost" not found'
DENIED = (
    "The slurmjobs \"x\" is invalid: : ValidatingAdmissionPolicy 'redbox-authors' with binding "
    "'redbox-authors' denied request: you may not create pods in namespace alice"
)
MISSING = "there is no slurmjob train in namespace alice: `kubectl slurm queue"
CONFLICT = "Error from server (Conflict): the job is an array: name one of its tasks"


@pytest.mark.parametrize(
    ("words", "kind", "sentence"),
    [
        (NO_CONFIG, Refusal, "there is no kubeconfig"),
        (f"{LOG}dial tcp 127.0.0.1:8080: connect: connection refused\n{NO_CONFIG}", Refusal, "no kubeconfig"),
        ('error: context "prod" does not exist', Refusal, "no context prod"),
        (NO_KINDS, KindsMissing, "install Red Box's chart"),
        ("error: You must be logged in to the server (Unauthorized)", Refusal, "log in again"),
        (EXPIRED, Refusal, "log in again"),
        (NOT_FOUND, ObjectNotFound, MISSING),
        ('Error from server (NotFound): namespaces "ghost" not found', ObjectNotFound, "no namespace ghost"),
        (
            FORBIDDEN,
            NotPermitted,
            "eve may not list slurmjobs in namespace alice: a RoleBinding to redbox-viewer",
        ),
        (FORBIDDEN.replace("list", "delete"), NotPermitted, "a RoleBinding to redbox-editor gives"),
        (
            CLUSTERS,
            NotPermitted,
            "may not get slurmclusters: a ClusterRoleBinding to redbox-cluster-viewer",
        ),
        (EXEC, NotPermitted, "a RoleBinding to edit gives"),
        (EXEC.replace("create", "get"), NotPermitted, "a RoleBinding to edit gives"),
        (EXEC.replace("create", "get").replace("/exec", "/log"), NotPermitted, "a RoleBinding to view gives"),
        (NODES, NotPermitted, "may not list nodes: an administrator of Kubernetes gives this right"),
        (EXEC.replace("pods/exec", "secrets"), NotPermitted, "a RoleBinding to edit gives"),
        (EXEC.replace("pods/exec", "resourcequotas"), NotPermitted, "an administrator of Kubernetes gives"),
        (QUOTA, NotPermitted, "Kubernetes does not allow this: exceeded quota: few"),
        (FROM_KUBELET, Refusal, "^Sessions are off at this red-box$"),
        (INVALID, Refusal, "SlurmJob x is not valid: spec.resources.nodes"),
        (
            "Unable to connect to the server: dial tcp 10.0.0.1:6443: i/o timeout",
            NotAnswered,
            "does not answer",
        ),
        (RESET, NotAnswered, "does not answer: read tcp 127.0.0.1:2->127.0.0.1:1: connection reset by peer"),
        ("Error from server (Timeout): the server was unable to return", NotAnswered, "cannot answer now"),
        (
            NO_TOKEN,
            NotPermitted,
            "may not create serviceaccounts/token in namespace alice: a RoleBinding to edit",
        ),
        (NO_ACCOUNT, ObjectNotFound, "there is no serviceaccount ghost in namespace alice"),
        (DENIED, NotPermitted, "does not allow this: you may not create pods in namespace alice"),
        (CONFLICT, Refusal, "the job is an array: name one of its tasks"),
        ("", Refusal, "printed no reason"),
        ("error: something new", Refusal, "something new"),
    ],
)
def test_each_failure_of_kubectl_has_its_cure(words: str, kind: type[Refusal], sentence: str) -> None:
    refusal = refusal_of(words, "alice")
    assert type(refusal) is kind
    assert re.search(sentence, str(refusal)) or sentence in str(refusal)
    assert "\n" not in str(refusal)


def test_a_sentence_of_the_server_has_no_other_before_it() -> None:
    assert str(refusal_of(CONFLICT)) == "the job is an array: name one of its tasks"


@pytest.mark.parametrize("words", [FORBIDDEN, NOT_FOUND])
def test_who_named_no_namespace_may_be_in_the_wrong_one(words: str) -> None:
    assert "--namespace names another namespace" in str(refusal_of(words))


def test_a_broken_connection_is_kubectls_own_line_and_the_request_is_left_out() -> None:
    assert is_own_line(RESET)
    assert str(refusal_of(RESET)).endswith("connection reset by peer")


def test_a_login_programs_lines_are_not_kubectls() -> None:
    assert not is_own_line("To sign in, open https://login.example.org and enter the code ABC\n")
    assert is_own_line("error: You must be logged in to the server (Unauthorized)\n")
    assert is_own_line(LOG)


def test_what_a_login_program_leaves_running_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as the master of an ssh connection, which keeps the stderr that it was given."""
    monkeypatch.setattr(program, "REST_S", 2.0)
    kubectl = tmp_path / "kubectl"
    kubectl.write_text("#!/bin/sh\nsleep 600 >/dev/null & echo $!\necho 'error: no' >&2; exit 1\n")
    kubectl.chmod(0o755)
    code, left, error = Kubectl(str(kubectl)).outcome("get")
    os.kill(int(left), signal.SIGTERM)
    assert (code, error) == (1, "error: no\n")
