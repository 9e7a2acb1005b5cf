"""What RBAC cannot say and the chart's admission policies do, asked of the real API server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest

from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from redbox_bed.core.progress import Progress
from redbox_bed.delivery import NAMESPACE, deliver
from tests.e2e.harness.kubernetes import Kubernetes
from tests.e2e.harness.waiting import eventually

OPERATOR = f"system:serviceaccount:{NAMESPACE}:redbox-operator"
RESOURCED = f"system:serviceaccount:{NAMESPACE}:redbox-resourced"
AUDIENCE = "redbox.dev/hpc1/x"
API_SERVER = "https://kubernetes.default.svc.cluster.local"


@pytest.fixture(scope="module")
def kubectl(bed: Bed) -> Kubernetes:
    """The cluster's administrator, once the chart is installed and the API server has taken its policies."""
    deliver(bed, Progress.silent())
    kubectl = Kubernetes(bed)
    eventually(lambda: _is_refused(kubectl, *ask_token(OPERATOR, NAMESPACE, "redbox-operator")))
    return kubectl


def _is_refused(kubectl: Kubernetes, *arguments: str) -> bool:
    try:
        kubectl(*arguments, "--filename=-", stdin=json.dumps(token_request(expirationSeconds=7200)))
    except BedError:
        return True
    return False


@pytest.fixture
def refused(kubectl: Kubernetes) -> Callable[..., str]:
    """What the API server says of a request that it must not accept."""

    def ask(*arguments: str, body: object) -> str:
        with pytest.raises(BedError) as refusal:
            kubectl(*arguments, "--filename=-", stdin=json.dumps(body))
        return str(refusal.value)

    return ask


@pytest.fixture(scope="module")
def tenant(kubectl: Kubernetes) -> Iterator[str]:
    """A namespace with a pod and some Secrets, and a user who may make SlurmJobs in it, but no pods."""
    name = f"policies-{uuid4().hex[:6]}"
    kubectl("create", "namespace", name)
    allow(kubectl, name, "create", "slurmjobs.redbox.dev")
    yield name
    kubectl("delete", "namespace", name, "--timeout=60s")


def allow(kubectl: Kubernetes, namespace: str, verb: str, resource: str, *names: str) -> None:
    """The user una may do that in the namespace, to these objects or to all, and the API server knows."""
    role, api = f"r-{uuid4().hex[:6]}", "rbac.authorization.k8s.io"
    what = "/".join([resource, *names[-1:]])
    resource, _, group = resource.partition(".")
    rule = {"apiGroups": [group], "resources": [resource], "verbs": [verb]}
    metadata = {"name": role, "namespace": namespace}
    objects = [
        {"kind": "Role", "metadata": metadata, "rules": [rule | ({"resourceNames": names} if names else {})]},
        {
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": api, "kind": "Role", "name": role},
            "subjects": [{"apiGroup": api, "kind": "User", "name": "una"}],
        },
    ]
    for one in objects:
        kubectl.apply(json.dumps({"apiVersion": f"{api}/v1", **one}))
    question = ("auth", "can-i", verb, what, "--as=una", f"--namespace={namespace}")
    eventually(lambda: _answer(kubectl, *question) == "yes")


# ------------------------------------------------------------------------------------------------ tokens
def token_request(**spec: object) -> dict[str, Any]:
    kind = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    return {**kind, "spec": {"audiences": [AUDIENCE], "expirationSeconds": 3600, **spec}}


def ask_token(who: str, namespace: str, account: str) -> tuple[str, ...]:
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    return ("create", f"--raw={path}", f"--as={who}")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"audiences": []}, "audience"),
        ({"audiences": [AUDIENCE, "redbox.dev/hpc2/y"]}, "exactly one audience"),
        ({"audiences": [API_SERVER]}, "for red-boxes only"),
        ({"audiences": ["redbox.dev.example.org/x"]}, "for red-boxes only"),
        ({"expirationSeconds": 7200}, "an hour at most"),
    ],
)
def test_a_controllers_token_is_for_one_red_box_and_an_hour(
    refused: Callable[..., str], spec: dict[str, Any], said: str
) -> None:
    answer = refused(*ask_token(OPERATOR, NAMESPACE, "redbox-operator"), body=token_request(**spec))
    assert said in answer
    assert "redbox-tokens" in answer


def test_the_operator_gets_a_token_of_its_own_for_a_red_box(kubectl: Kubernetes) -> None:
    arguments = ask_token(OPERATOR, NAMESPACE, "redbox-operator")
    answer = json.loads(kubectl(*arguments, "--filename=-", stdin=json.dumps(token_request())))
    assert answer["status"]["token"]


def test_the_operator_gets_no_token_of_anybody_else(refused: Callable[..., str]) -> None:
    said = refused(*ask_token(OPERATOR, "alice", "default"), body=token_request())
    assert "forbidden" in said.lower()


@pytest.fixture
def unlimited(kubectl: Kubernetes) -> Iterator[None]:
    """resourced's account may ask for tokens everywhere, as it does where it is installed."""
    kubectl("create", "clusterrole", "t-tokens", "--verb=create", "--resource=serviceaccounts/token")
    kubectl("create", "clusterrolebinding", "t-tokens", "--clusterrole=t-tokens", f"--user={RESOURCED}")
    yield
    kubectl("delete", "clusterrolebinding,clusterrole", "t-tokens")


@pytest.mark.usefixtures("unlimited")
def test_a_token_of_another_account_is_bound_to_a_pod(refused: Callable[..., str]) -> None:
    ask = ask_token(RESOURCED, "alice", "default")
    eventually(lambda: "only bound to a pod" in refused(*ask, body=token_request()))
    secret = {"apiVersion": "v1", "kind": "Secret", "name": "x"}
    assert "only bound to a pod" in refused(*ask, body=token_request(boundObjectRef=secret))
    pod = {"apiVersion": "v1", "kind": "Pod", "name": "no-such-pod", "uid": "0"}
    assert "redbox-tokens" not in refused(*ask, body=token_request(boundObjectRef=pod))


# ------------------------------------------------------------------------------------------------ authors
def slurm_job(**spec: object) -> dict[str, Any]:
    return {
        "apiVersion": "redbox.dev/v1alpha1",
        "kind": "SlurmJob",
        "metadata": {"generateName": "t-"},
        "spec": {"cluster": "nowhere", "batch": "#!/bin/sh\ntrue\n", **spec},
    }


def from_secrets(*names: str) -> list[dict[str, Any]]:
    return [
        {"name": f"V{at}", "valueFrom": {"secretKeyRef": {"name": name, "key": "k"}}}
        for at, name in enumerate(names)
    ]


def create(namespace: str) -> tuple[str, ...]:
    return ("create", f"--namespace={namespace}", "--as=una", "--dry-run=server")


def test_who_may_not_create_pods_may_not_create_a_slurmjob(refused: Callable[..., str], tenant: str) -> None:
    assert f"you may not create pods in namespace {tenant}" in refused(*create(tenant), body=slurm_job())


def test_an_author_needs_what_the_pod_will_use(
    kubectl: Kubernetes, refused: Callable[..., str], tenant: str
) -> None:
    allow(kubectl, tenant, "create", "pods")
    kubectl(*create(tenant), "--filename=-", stdin=json.dumps(slurm_job()))

    account = slurm_job(serviceAccountName="boss")
    assert "you may not use the service account boss" in refused(*create(tenant), body=account)
    allow(kubectl, tenant, "use", "serviceaccounts", "boss")
    kubectl(*create(tenant), "--filename=-", stdin=json.dumps(account))

    secrets = slurm_job(env=from_secrets("a", "a", "b"))
    assert "you may not get the Secret a" in refused(*create(tenant), body=secrets)
    allow(kubectl, tenant, "get", "secrets", "a")
    assert "you may not get the Secret b" in refused(*create(tenant), body=secrets)
    allow(kubectl, tenant, "get", "secrets", "b")
    kubectl(*create(tenant), "--filename=-", stdin=json.dumps(secrets))

    registry = slurm_job(container={"image": "docker://x", "registrySecret": "c"})
    del registry["spec"]["batch"]
    assert "you may not get the Secret c" in refused(*create(tenant), body=registry)

    many = slurm_job(env=from_secrets(*["a"] * 200, *(f"s{at}" for at in range(17))))
    allow(kubectl, tenant, "get", "secrets", *(f"s{at}" for at in range(17)))
    assert "16 Secrets at most" in refused(*create(tenant), body=many)
    allow(kubectl, tenant, "get", "secrets")
    kubectl(*create(tenant), "--filename=-", stdin=json.dumps(many))


def test_an_old_kind_is_a_pod_too(refused: Callable[..., str], kubectl: Kubernetes) -> None:
    name = f"old-{uuid4().hex[:6]}"
    kubectl("create", "namespace", name)
    try:
        allow(kubectl, name, "create", "slurmjobs.wlm.sylabs.io")
        job = {**slurm_job(), "apiVersion": "wlm.sylabs.io/v1alpha1", "spec": {"batch": "#!/bin/sh\n"}}
        assert "you may not create pods" in refused(*create(name), body=job)
    finally:
        kubectl("delete", "namespace", name, "--timeout=60s")


def test_the_api_server_finds_no_fault_in_the_policies(kubectl: Kubernetes) -> None:
    found = json.loads(kubectl("get", "validatingadmissionpolicies", "--output=json"))["items"]
    ours = [one for one in found if one["metadata"]["name"].startswith("redbox-")]
    assert len(ours) >= 2
    for policy in ours:
        assert policy["status"]["typeChecking"].get("expressionWarnings", []) == [], policy["metadata"]


# ------------------------------------------------------------------------------------------------ users
@pytest.mark.parametrize(
    ("role", "what", "may"),
    [
        ("edit", "create slurmjobs.redbox.dev", "yes"),
        ("edit", "patch slurmjobs.redbox.dev", "yes"),
        ("edit", "patch slurmjobs.redbox.dev/status", "no"),
        ("edit", "update slurmjobs.redbox.dev/finalizers", "no"),
        ("view", "get slurmjobs.redbox.dev", "no"),
        ("redbox-viewer", "get slurmjobs.redbox.dev", "yes"),
        ("redbox-viewer", "create slurmjobs.redbox.dev", "no"),
        ("redbox-cluster-viewer", "list slurmjobs.redbox.dev", "no"),
    ],
)
def test_what_a_role_of_a_namespace_brings(
    kubectl: Kubernetes, tenant: str, role: str, what: str, may: str
) -> None:
    user = f"{role}-user"
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": user, "namespace": tenant},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    kubectl.apply(json.dumps(binding))
    what, _, subresource = what.partition("/")
    question = ["auth", "can-i", *what.split(), f"--as={user}", f"--namespace={tenant}"]
    question += [f"--subresource={subresource}"] if subresource else []
    eventually(lambda: _answer(kubectl, *question) == may)


def _answer(kubectl: Kubernetes, *question: str) -> str:
    """`can-i` ends with 1 where the answer is no."""
    try:
        return kubectl(*question).strip()
    except BedError:
        return "no"


# --------------------------------------------------------------------------------------------- companions
@pytest.fixture
def companion(kubectl: Kubernetes) -> Iterator[str]:
    """A pod as that of a SlurmJob, in a namespace where una may change pods and not create any."""
    other = f"companions-{uuid4().hex[:6]}"
    owner = {"apiVersion": "redbox.dev/v1alpha1", "kind": "SlurmJob", "name": "cow", "uid": uuid4().hex}
    metadata = {
        "name": "cow-job",
        "namespace": other,
        "labels": {"redbox.dev/slurmjob-uid": owner["uid"]},
        "ownerReferences": [{**owner, "controller": True}],
        "finalizers": ["example.org/keeps-it"],  # the garbage collector finds no such SlurmJob
    }
    container = {"name": "companion", "image": "example.org/nothing:1"}
    spec = {"nodeName": "no-such-node", "containers": [container]}
    kubectl("create", "namespace", other)
    eventually(lambda: kubectl.get("serviceaccount", "default", other))
    kubectl.apply(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}))
    for resource in ("pods", "pods/ephemeralcontainers"):
        for verb in ("get", "patch"):
            allow(kubectl, other, verb, resource)
    yield other
    kubectl.patch("pod", "cow-job", {"metadata": {"finalizers": None}}, other)
    kubectl("delete", "namespace", other, "--timeout=60s")


def test_who_may_patch_pods_and_not_create_them_changes_no_companion(
    kubectl: Kubernetes, companion: str
) -> None:
    """Its image runs with the job's token and Secrets; without its owner it outlives the SlurmJob."""
    container = {"name": "companion", "image": "example.org/another:1"}
    debugs = {"name": "debug", "image": "example.org/another:1", "command": ["cat", "/token"]}
    denied: list[tuple[dict[str, Any], str, str]] = [
        ({"spec": {"containers": [container]}}, "", "what the pod of a SlurmJob runs"),
        ({"spec": {"activeDeadlineSeconds": 1}}, "", "what the pod of a SlurmJob runs"),
        ({"spec": {"ephemeralContainers": [debugs]}}, "ephemeralcontainers", "what the pod of a SlurmJob"),
        ({"metadata": {"labels": {"redbox.dev/slurmjob-uid": None}}}, "", "whose the pod of a SlurmJob is"),
        ({"metadata": {"labels": {"redbox.dev/slurmjob": "of-bob"}}}, "", "whose the pod of a SlurmJob is"),
        ({"metadata": {"ownerReferences": None}}, "", "whose the pod of a SlurmJob is"),
    ]
    ask = ("patch", "pod", "cow-job", f"--namespace={companion}", "--as=una", "--dry-run=server")
    for change, subresource, said in denied:
        kind = "merge" if change.get("metadata") else "strategic"
        where = (f"--subresource={subresource}",) if subresource else ()
        with pytest.raises(BedError, match=f"you may not create pods .*{said}"):
            kubectl(*ask, *where, f"--type={kind}", f"--patch={json.dumps(change)}")
    kubectl(*ask, "--patch", json.dumps({"metadata": {"labels": {"team": "a"}, "annotations": {"b": "c"}}}))
    allow(kubectl, companion, "create", "pods")
    kubectl(*ask, "--patch", json.dumps(denied[0][0]))
