"""The bed's Kubernetes is one as production has it: what it runs, what it refuses, and what it survives."""

import json
import ssl
import subprocess
import urllib.error
import urllib.request
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import jwt
import pytest
import yaml

from redbox_bed.bed import Bed
from redbox_bed.core.plan import Role
from redbox_bed.core.progress import Progress
from redbox_bed.hosts.host import Host
from redbox_bed.images.node_images import BUSYBOX
from redbox_bed.kube import kube_cluster
from redbox_bed.kube.control_plane import AUDIT_LOG
from tests.e2e.harness.waiting import eventually

STARTS_WITHIN = 60
AUDIENCE = "redbox.dev/hpc1/4711"
COMPANION = "bed.local/redbox-companion:dev"


@dataclass(frozen=True)
class Namespace:
    """A namespace of one test, and kubectl in it as administrator."""

    bed: Bed
    name: str

    def command(self, *arguments: str) -> list[str]:
        kubectl = self.bed.places.state / "bin" / "kubectl"
        options = (f"--kubeconfig={self.bed.places.kubeconfig}", f"--namespace={self.name}")
        return [str(kubectl), *options, *arguments]

    def ask(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments), input=stdin, capture_output=True, text=True, check=False, timeout=90
        )

    def run(self, *arguments: str, stdin: str = "") -> str:
        done = self.ask(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def apply(self, *things: dict[str, Any]) -> None:
        self.run("apply", "--filename=-", stdin="---\n".join(json.dumps(thing) + "\n" for thing in things))

    def pod(self, name: str, command: list[str], image: str = BUSYBOX, **spec: Any) -> None:
        container = {
            "name": "main",
            "image": image,
            "imagePullPolicy": "Never",
            "command": command,
            **spec.pop("container", {}),
        }
        self.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name},
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 0,
                    "containers": [container],
                    **spec,
                },
            }
        )

    def get(self, *arguments: str) -> Any:
        return json.loads(self.run("get", *arguments, "--output=json"))

    def output_of(self, pod: str) -> str:
        """What a pod wrote by the time it had succeeded."""
        self.run(
            "wait", f"pod/{pod}", "--for=jsonpath={.status.phase}=Succeeded", f"--timeout={STARTS_WITHIN}s"
        )
        return self.run("logs", pod)

    def wait_until_ready(self, pod: str) -> None:
        self.run("wait", f"pod/{pod}", "--for=condition=Ready", f"--timeout={STARTS_WITHIN}s")


@pytest.fixture(scope="module")
def bed() -> Bed:
    return Bed.open()


@pytest.fixture(scope="module")
def control_plane(bed: Bed) -> Host:
    return bed.host(bed.plan.of_role(Role.CONTROL_PLANE)[0].name)


@pytest.fixture(scope="module")
def nodes(bed: Bed) -> list[Host]:
    return [bed.host(spec.name) for spec in bed.plan.of_role(Role.NODE)]


@pytest.fixture
def namespace(bed: Bed) -> Iterator[Namespace]:
    namespace = Namespace(bed, f"bed-{uuid4().hex[:8]}")
    namespace.run("create", "namespace", namespace.name)
    namespace.run("wait", "serviceaccount/default", "--for=create", f"--timeout={STARTS_WITHIN}s")
    yield namespace
    namespace.run("delete", "namespace", namespace.name, "--wait=false")


def is_ready(node: dict[str, Any]) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"]["conditions"])


def test_every_node_is_ready(namespace: Namespace, nodes: list[Host]) -> None:
    listed = namespace.get("nodes")["items"]
    ours = {node.name for node in nodes}
    assert {node["metadata"]["name"] for node in listed if is_ready(node)} >= ours
    assert {
        node["status"]["nodeInfo"]["kubeletVersion"] for node in listed if node["metadata"]["name"] in ours
    } == {"v1.34.4"}


# ------------------------------------------------------------------------------------------ what it runs
def test_logs_are_followed_while_the_pod_writes(namespace: Namespace) -> None:
    script = "echo first; until [ -e /tmp/go ]; do sleep 0.1; done; echo second"
    namespace.pod("writer", ["sh", "-c", script])
    namespace.wait_until_ready("writer")
    with subprocess.Popen(
        namespace.command("logs", "--follow", "writer"), stdout=subprocess.PIPE
    ) as following:
        assert following.stdout is not None
        try:
            assert following.stdout.readline() == b"first\n"
            assert namespace.get("pod", "writer")["status"]["phase"] == "Running"
            namespace.run("exec", "writer", "--", "touch", "/tmp/go")
            assert following.stdout.readline() == b"second\n"
        finally:
            following.kill()


@pytest.mark.parametrize("program", ["redbox-companion", "redbox-operator", "redbox-resourced"])
def test_an_image_of_ours_runs_without_root(namespace: Namespace, program: str) -> None:
    namespace.pod(
        "help",
        [f"/usr/local/bin/{program}", "--version"],
        image=f"bed.local/{program}:dev",
        securityContext={"runAsNonRoot": True},
        container={"securityContext": {"readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}},
    )
    assert namespace.output_of("help").strip()


def test_a_pod_reaches_the_api_by_its_service(namespace: Namespace) -> None:
    script = (
        "import ssl, urllib.request as u;"
        "trust = ssl.create_default_context(cafile='/run/secrets/kubernetes.io/serviceaccount/ca.crt');"
        "print(u.urlopen('https://10.96.0.1/readyz', context=trust, timeout=20).read().decode())"
    )
    namespace.pod("caller", ["python3", "-c", script], image=COMPANION)
    assert namespace.output_of("caller") == "ok\n"


def test_a_pod_reaches_login_under_its_own_address(bed: Bed, namespace: Namespace) -> None:
    if not bed.plan.clusters:
        pytest.skip("this bed has no Slurm of its own")
    login = bed.host(bed.plan.clusters[0].login)
    namespace.pod("caller", ["nc", login.spec.address, "22"], container={"stdin": True})
    namespace.wait_until_ready("caller")
    eventually(lambda: namespace.run("logs", "caller").startswith("SSH-2.0-"), what="a banner of sshd")
    address = namespace.get("pod", "caller")["status"]["podIP"]
    assert f" {address}:" in login.run("ss", "-Htn", "state", "established", "( sport = :22 )").stdout


# ------------------------------------------------------------------------------------------------ tokens
def token_pod(namespace: Namespace) -> str:
    """The token of a pod whose projected volume asks for AUDIENCE."""
    source = {"serviceAccountToken": {"path": "token", "audience": AUDIENCE, "expirationSeconds": 600}}
    namespace.pod(
        "bearer",
        ["cat", "/token/token"],
        volumes=[{"name": "token", "projected": {"sources": [source]}}],
        container={"volumeMounts": [{"name": "token", "mountPath": "/token"}]},
    )
    return namespace.output_of("bearer").strip()


def anonymous_get(bed: Bed, path: str) -> bytes:
    cluster = yaml.safe_load(bed.places.kubeconfig.read_text())["clusters"][0]["cluster"]
    authority = b64decode(cluster["certificate-authority-data"]).decode()
    trust = ssl.create_default_context(cadata=authority)
    with urllib.request.urlopen(cluster["server"] + path, context=trust, timeout=20) as answer:
        return bytes(answer.read())


def test_a_pods_token_verifies_by_the_published_keys_for_its_audience_alone(
    bed: Bed, namespace: Namespace
) -> None:
    token = token_pod(namespace)
    keys = jwt.PyJWKSet.from_json(anonymous_get(bed, "/openid/v1/jwks").decode())
    key = keys[jwt.get_unverified_header(token)["kid"]]
    claims = jwt.decode(
        token,
        key,
        algorithms=["RS256"],
        audience=AUDIENCE,
        issuer="https://kubernetes.default.svc.cluster.local",
    )
    assert claims["sub"] == f"system:serviceaccount:{namespace.name}:default"
    assert claims["kubernetes.io"]["pod"]["name"] == "bearer"
    with pytest.raises(jwt.InvalidAudienceError):
        jwt.decode(token, key, algorithms=["RS256"], audience="redbox.dev/hpc2/4711")


def test_a_token_for_another_audience_does_not_open_the_api(bed: Bed, namespace: Namespace) -> None:
    refused = namespace.ask("auth", "whoami", f"--kubeconfig={kubeconfig(bed, token=token_pod(namespace))}")
    assert refused.returncode != 0
    assert "Unauthorized" in refused.stderr or "must be logged in" in refused.stderr


def kubeconfig(bed: Bed, **credentials: str) -> Path:
    """A kubeconfig that knows the cluster, and of credentials these alone."""
    configuration = yaml.safe_load(bed.places.kubeconfig.read_text())
    configuration["users"] = [{"name": configuration["users"][0]["name"], "user": credentials}]
    file = bed.places.state / "kubeconfig-of-a-test"
    file.touch(mode=0o600)
    file.write_text(yaml.safe_dump(configuration))
    return file


# ------------------------------------------------------------------------------------------ what it refuses
def test_anonymous_requests_get_health_and_keys_and_nothing_else(bed: Bed) -> None:
    assert anonymous_get(bed, "/readyz") == b"ok"
    with pytest.raises(urllib.error.HTTPError) as refused:
        anonymous_get(bed, "/version")
    assert refused.value.code == 401


def kubelet_answer(control_plane: Host, node: Host, headers: str = "") -> str:
    url = f"https://{node.spec.address}:10250/pods"
    status = ("--output", "/dev/null", "--write-out", "%{http_code}")
    curl = ("curl", "--silent", "--insecure", *status, "--header", "@-", url)
    return control_plane.run(*curl, stdin=headers, timeout=30).stdout


def test_a_kubelet_refuses_strangers_and_plain_accounts(
    namespace: Namespace, control_plane: Host, nodes: list[Host]
) -> None:
    token = namespace.run("create", "token", "default").strip()
    for node in nodes:
        assert kubelet_answer(control_plane, node) == "401"
        assert kubelet_answer(control_plane, node, f"Authorization: Bearer {token}\n") == "403"


def test_a_plain_account_may_not_read_anothers_secrets(namespace: Namespace) -> None:
    account = f"system:serviceaccount:{namespace.name}:default"
    refused = namespace.ask("get", "secrets", "--namespace=kube-system", f"--as={account}")
    assert refused.returncode != 0
    assert "Forbidden" in refused.stderr


def test_a_node_reads_only_what_is_its_own_and_does_not_label_itself_as_trusted(
    namespace: Namespace, nodes: list[Host]
) -> None:
    first, second = nodes[:2]
    namespace.run("create", "secret", "generic", "foreign", "--from-literal=key=value")
    as_node = (f"--as=system:node:{first.name}", "--as-group=system:nodes")
    assert "no relationship found" in namespace.ask("get", "secret", "foreign", *as_node).stderr
    assert "only its own Node object" in namespace.ask("get", "node", second.name, *as_node).stderr
    trusted = ("label", "node", first.name, "node-restriction.kubernetes.io/trusted=yes")
    assert "is not allowed to modify labels" in namespace.ask(*trusted, *as_node).stderr


def test_a_validating_admission_policy_is_enforced(namespace: Namespace) -> None:
    group = {"apiVersion": "admissionregistration.k8s.io/v1"}
    name = {"metadata": {"name": namespace.name}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}
    validation = {"expression": "object.metadata.name != 'unwanted'", "message": "this one is not wanted"}
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace.name}}}
    policy = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [validation],
        "failurePolicy": "Fail",
    }
    binding = {"policyName": namespace.name, "validationActions": ["Deny"], "matchResources": here}
    try:
        namespace.apply(
            {**group, "kind": "ValidatingAdmissionPolicy", **name, "spec": policy},
            {**group, "kind": "ValidatingAdmissionPolicyBinding", **name, "spec": binding},
        )
        create = ("create", "configmap", "--dry-run=server")
        eventually(
            lambda: "this one is not wanted" in namespace.ask(*create, "unwanted").stderr, what="a refusal"
        )
        namespace.run(*create, "wanted")
    finally:
        kinds = "validatingadmissionpolicy,validatingadmissionpolicybinding"
        namespace.run("delete", kinds, namespace.name, "--ignore-not-found")


# ------------------------------------------------------------------------------------------ what it survives
def test_a_kubelet_that_was_killed_comes_back_and_its_pod_has_not_noticed(
    bed: Bed, namespace: Namespace, nodes: list[Host]
) -> None:
    node = nodes[0]
    namespace.pod("lasting", ["sleep", "3600"], nodeName=node.name)
    namespace.wait_until_ready("lasting")
    before = namespace.get("pod", "lasting")["status"]["containerStatuses"]
    node.kill("kubelet")
    node.kill("containerd")
    kube_cluster.up(bed, Progress())
    assert node.running("kubelet")
    namespace.wait_until_ready("lasting")
    after = namespace.get("pod", "lasting")["status"]["containerStatuses"]
    assert [(each["containerID"], each["restartCount"]) for each in after] == [
        (each["containerID"], each["restartCount"]) for each in before
    ]
    # A kubelet that has just started knows its pods a moment later.
    eventually(
        lambda: namespace.ask("exec", "lasting", "--", "true").returncode == 0, what="a command in the pod"
    )


def test_a_control_plane_that_was_killed_comes_back_with_all_it_knew(
    bed: Bed, namespace: Namespace, control_plane: Host
) -> None:
    namespace.run("create", "configmap", "remembered", "--from-literal=key=value")
    for daemon in kube_cluster.DAEMONS[Role.CONTROL_PLANE]:
        control_plane.kill(daemon)
    kube_cluster.up(bed, Progress())
    assert namespace.get("configmap", "remembered")["data"] == {"key": "value"}


# ------------------------------------------------------------------------------------------ what it records
def test_a_write_is_in_the_audit_log(namespace: Namespace, control_plane: Host) -> None:
    namespace.run("create", "configmap", "noted")
    search = f'"namespace":"{namespace.name}","name":"noted"'
    lines = control_plane.run("grep", "--fixed-strings", search, AUDIT_LOG).stdout.splitlines()
    written = [json.loads(line) for line in lines]
    assert [(each["verb"], each["responseStatus"]["code"]) for each in written] == [("create", 201)]
