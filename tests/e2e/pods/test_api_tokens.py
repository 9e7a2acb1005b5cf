"""A pod on Slurm calls the API server with its token, where both administrators allow it.

The nodes' own Python makes the calls, from a path of the node: the tests' image has busybox alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from redbox_bed.bed import Bed
from tests.e2e.harness.slurm_pods import USER, SlurmPod, SlurmPods, api_tokens_allowed, container
from tests.e2e.harness.slurmjobs import new_name

pytestmark = pytest.mark.timeout(300)
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
