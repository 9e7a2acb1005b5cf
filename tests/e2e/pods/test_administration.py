"""What administrators allow pods on Slurm, and take away: rules, tokens, a SlurmCluster, all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from redbox_bed.bed import Bed
from redbox_bed.delivery import KUBERNETES_NAME, RELEASE, SLURM_CLUSTER, Helm, take_away
from redbox_bed.hosts.host import Host
from tests.e2e.harness import slurmjobs
from tests.e2e.harness.redbox_settings import put_rule_first, settings_changed
from tests.e2e.harness.slurm_pods import (
    FOREVER,
    NEVER_ENDED,
    USER,
    SlurmPod,
    SlurmPods,
    api_tokens_allowed,
    condition,
    container,
    on_slurm,
    pods_ready,
    upgrade,
    wait_until_served,
)
from tests.e2e.harness.slurmjobs import SlurmJobs, new_name
from tests.e2e.harness.waiting import eventually

pytestmark = pytest.mark.timeout(400)
ACCOUNT = "trainer"


def test_a_deployment_whose_account_has_no_rule_waits_and_then_runs(pods: SlurmPods) -> None:
    pods.apply("ServiceAccount", ACCOUNT)
    (pod,) = deployed(pods, serviceAccountName=ACCOUNT)
    assert ACCOUNT in pod.waits("Refused")
    assert pod.status["phase"] == "Pending"
    with rule_for(pods.login, ACCOUNT):
        pod.is_ready()
        pod.has_in_slurm("RUNNING")


def deployed(pods: SlurmPods, **spec: Any) -> list[SlurmPod]:
    """The pods of a Deployment of one replica, once there are any."""
    name = new_name()
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {**on_slurm(container(FOREVER)), "restartPolicy": "Always", **spec},
    }
    selector = {"matchLabels": {"app": name}}
    pods.apply(
        "Deployment", name, api="apps/v1", spec={"replicas": 1, "selector": selector, "template": template}
    )
    found = eventually(lambda: pods.kubectl.list("pods", USER, labels=f"app={name}"))
    return [pods.of(pod["metadata"]["name"]) for pod in found]


@contextmanager
def rule_for(login: Host, account: str) -> Iterator[None]:
    where = {"cluster": KUBERNETES_NAME, "namespaces": [USER], "service_accounts": [account]}
    rule = {**where, "user": USER, "roles": ["submit"]}
    with settings_changed(login, lambda settings: put_rule_first(settings, rule)):
        yield


def test_a_deleted_slurmcluster_waits_for_its_pods_and_names_them(bed: Bed, pods: SlurmPods) -> None:
    pod = pods.run(container(FOREVER))
    pod.is_ready()
    job_id = pod.job_id
    pods.kubectl("delete", "slurmcluster", SLURM_CLUSTER, "--wait=false")
    try:
        message = eventually(lambda: in_use(pods), what="the condition InUse")
        assert f"{USER}/{pod.name}: Slurm job {job_id}" in message
        assert pod.status["phase"] == "Running"
        pod.delete()
        eventually(lambda: not cluster(pods), what="the end of the SlurmCluster")
    finally:
        pod.delete()
        eventually(lambda: not cluster(pods), what="the end of the SlurmCluster")
        upgrade(bed)
        wait_until_served(pods.kubectl)


def cluster(pods: SlurmPods) -> dict[str, Any]:
    return pods.kubectl.get("slurmcluster", SLURM_CLUSTER)


def in_use(pods: SlurmPods) -> str:
    """What the condition says of pods; nothing before."""
    shown = condition(cluster(pods).get("status", {}), "InUse")
    return str(shown["message"]) if shown.get("reason") == "PodsUnfinished" else ""


# ----------------------------------------------------- tokens of the API server, where they are allowed
FOLDER = "/var/run/secrets/kubernetes.io/serviceaccount"
CALL = f"""
import json, os, ssl, urllib.error, urllib.request
read = lambda name: open("{FOLDER}/" + name).read()
server = os.environ["KUBERNETES_SERVICE_HOST"] + ":" + os.environ["KUBERNETES_SERVICE_PORT"]
url = "https://%s/api/v1/namespaces/%s/pods/%s" % (server, read("namespace"), os.environ["NAME"])
request = urllib.request.Request(url, headers={{"Authorization": "Bearer " + read("token")}})
try:
    answer = urllib.request.urlopen(request, context=ssl.create_default_context(cafile="{FOLDER}/ca.crt"))
    print(json.dumps([answer.status, json.load(answer)["metadata"]["uid"]]))
except urllib.error.HTTPError as error:
    print(json.dumps([error.code, json.load(error)["message"]]))
"""
NODES_PYTHON = [{"name": "usr", "hostPath": {"path": "/usr", "type": "Directory"}}]
AT_ITS_PLACE = [
    {"name": "usr", "mountPath": "/usr"},
    {"name": "usr", "mountPath": "/lib", "subPath": "lib"},
    {"name": "usr", "mountPath": "/lib64", "subPath": "lib64"},
]
"""The nodes' own Python makes the calls, from a path of the node: the tests' image has busybox alone."""


@pytest.fixture
def allowed(bed: Bed, pods: SlurmPods) -> Iterator[SlurmPods]:
    with api_tokens_allowed(bed):
        yield pods


def caller() -> dict[str, Any]:
    name = {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}
    command = ["/usr/bin/python3", "-c", CALL]
    return container(command=command, env=[name], volumeMounts=AT_ITS_PLACE)


def answer(pod: SlurmPod) -> tuple[int, str]:
    assert pod.ends()["phase"] == "Succeeded", pod.log()
    code, said = json.loads(pod.log())
    return code, said


def test_a_pod_reads_itself_once_its_account_may_and_is_named_in_the_refusal_before(
    allowed: SlurmPods,
) -> None:
    refused = allowed.run(caller(), volumes=NODES_PYTHON)
    code, said = answer(refused)
    account = refused.manifest["spec"]["serviceAccountName"]
    assert code == 403
    assert f'User "system:serviceaccount:{USER}:{account}" cannot get resource "pods"' in said

    role = new_name()
    group = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    allowed.apply("Role", role, api=f"{group}/v1", rules=rules)
    allowed.apply(
        "RoleBinding",
        role,
        api=f"{group}/v1",
        roleRef={"apiGroup": group, "kind": "Role", "name": role},
        subjects=[{"kind": "ServiceAccount", "name": account, "namespace": USER}],
    )
    pod = allowed.run(caller(), volumes=NODES_PYTHON)
    assert answer(pod) == (200, pod.uid)


def test_where_it_is_off_the_default_volume_has_no_token_and_no_server_is_named(pods: SlurmPods) -> None:
    pod = pods.run(container(f'ls {FOLDER}; echo "server=$KUBERNETES_SERVICE_HOST"'))
    assert pod.ends()["phase"] == "Succeeded"
    assert pod.log() == "ca.crt\nnamespace\nserver=\n"


def test_where_it_is_off_a_pod_that_asks_for_a_token_is_refused_by_the_field(pods: SlurmPods) -> None:
    source = {"serviceAccountToken": {"path": "token", "audience": "vault"}}
    pod = pods.run(container("true"), volumes=[{"name": "mine", "projected": {"sources": [source]}}])
    status = pod.ends()
    assert (status["phase"], status["reason"]) == ("Failed", "Unsupported")
    assert "spec.volumes[mine].projected" in status["message"]


@pytest.mark.nightly
def test_a_token_for_another_audience_is_where_the_author_wants_it(allowed: SlurmPods) -> None:
    source = {"serviceAccountToken": {"path": "token", "audience": "vault"}}
    script = 'IFS=.; set -- $(cat /mine/token); echo "parts=$#"'
    pod = allowed.run(
        container(script, volumeMounts=[{"name": "mine", "mountPath": "/mine"}]),
        volumes=[{"name": "mine", "projected": {"sources": [source]}}],
    )
    assert pod.ends()["phase"] == "Succeeded"
    assert pod.log() == "parts=3\n"


# ------------------------------------------------------------------------------------------ in the end
@pytest.mark.nightly
def test_an_uninstall_that_cancels_leaves_no_job_of_a_pod(bed: Bed, pods: SlurmPods) -> None:
    pod = pods.run(container(FOREVER))
    pod.is_ready()
    assert pods_ready(pods.kubectl)["status"] == "True"
    upgrade(bed, "uninstall.jobs=Cancel")
    try:
        Helm(bed)("uninstall", RELEASE, "--wait", "--timeout=2m")
        assert not pod.manifest
        states = eventually(lambda: {state for _, state in pod.in_slurm()} - NEVER_ENDED, what="its end")
        assert len(states) == 1, states
    finally:
        take_away(bed)
        slurmjobs.delivered.cache_clear()
        SlurmJobs.on(bed)
