from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from pydantic import SecretStr

from redbox.slurm.submit.pod_check import check_pod
from redbox_api.job_parts import RegistryCredentials
from redbox_resourced.translation.annotations import MEANINGS
from redbox_resourced.translation.errors import Unsupported
from tests.resourced.translation.factories import (
    TOKEN_MOUNT,
    TOKEN_VOLUME,
    annotated,
    container,
    limited,
    pod,
    program,
    requested,
    secret,
)

DEFAULTS: dict[str, Any] = {
    "dnsPolicy": "ClusterFirst",
    "enableServiceLinks": True,
    "nodeName": "hpc1.debug",
    "preemptionPolicy": "PreemptLowerPriority",
    "priority": 0,
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "serviceAccount": "default",
    "serviceAccountName": "default",
    "terminationGracePeriodSeconds": 30,
    "tolerations": [{"key": "redbox.dev/slurm", "operator": "Exists"}],
    "volumes": [TOKEN_VOLUME],
}


def test_a_minimal_pod_with_all_defaults_becomes_a_job_that_red_box_takes() -> None:
    given = pod(
        container(
            imagePullPolicy="IfNotPresent",
            resources={},
            terminationMessagePath="/dev/termination-log",
            terminationMessagePolicy="File",
            volumeMounts=[TOKEN_MOUNT],
        ),
        **DEFAULTS,
    )
    given["status"] = {"phase": "Pending", "qosClass": "BestEffort"}
    found = requested(given, config_maps={"kube-root-ca.crt": {"data": {"ca.crt": "PEM"}}})
    check_pod(found)
    assert (found.name, found.partition, found.spec_digest) == ("train", "debug", None)
    assert found.resources.model_dump(exclude_none=True) == {}
    assert found.pod is not None
    assert (found.pod.uid, found.pod.namespace, found.pod.hostname) == ("uid-1", "alice", "train")
    assert (found.pod.termination_grace_s, found.pod.scratch) == (30, "/scratch")


def test_init_containers_sidecars_and_overhead_are_added_up_as_kubernetes_does() -> None:
    found = requested(
        pod(
            limited("main", {"cpu": "1500m", "memory": "100Mi"}),
            initContainers=[
                limited("early", {"cpu": "1", "memory": "1Gi"}),
                limited("proxy", {"cpu": "500m", "memory": "50Mi"}, restartPolicy="Always"),
                limited("late", {"cpu": "3", "memory": "10Mi"}),
            ],
            overhead={"cpu": "250m", "memory": "1Mi"},
        )
    ).resources
    assert found.cpus_per_task == 4  # late and the sidecar: 3.5, and the overhead
    assert found.mem_per_node == f"{1024 + 1 + 2 * 30}M"


@pytest.mark.parametrize(
    ("resources", "cpus", "memory"),
    [
        ({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "4", "memory": "2Gi"}}, 1, "2078M"),
        ({"limits": {"cpu": "4", "memory": "1Gi"}}, 4, "1054M"),
        ({"requests": {"cpu": "100m"}}, 1, None),
        ({"requests": {"cpu": "0"}}, None, None),
    ],
)
def test_cpus_are_requests_and_memory_is_limits(
    resources: dict[str, Any], cpus: int | None, memory: str | None
) -> None:
    found = requested(pod(container(resources=resources))).resources
    assert (found.cpus_per_task, found.mem_per_node) == (cpus, memory)


def test_resources_of_the_pod_replace_the_sum() -> None:
    given = pod(limited("main", {"cpu": "1"}), resources={"requests": {"cpu": "6"}})
    assert requested(given).resources.cpus_per_task == 6


def test_local_storage_is_tmp() -> None:
    assert requested(pod(limited("main", {"ephemeral-storage": "2Gi"}))).options == ["--tmp=2048M"]


@pytest.mark.parametrize(
    ("name", "make"),
    [("nvidia.com/gpu", "nvidia"), ("amd.com/gpu", "rocm"), ("gpu.hpc1.redbox.dev/gpus", "nvidia")],
)
def test_gpus_are_gpus_of_the_job(name: str, make: str) -> None:
    found = requested(pod(limited("a", resources={"limits": {name: "2"}})))
    assert found.resources.gpus_per_node == "2"
    assert found.pod is not None
    assert found.pod.gpus == make


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"nvidia.com/gpu": "1", "amd.com/gpu": "1"}, "request GPUs by one name"),
        ({"hugepages-2Mi": "4Mi"}, "Slurm has no hugepages-2Mi"),
        ({"gpu.hpc1.redbox.dev/nodes": "1"}, "Slurm has no gpu.hpc1.redbox.dev/nodes"),
        ({"cpu": "much"}, "'much' is not a quantity"),
    ],
)
def test_other_resources_are_refused(limits: dict[str, str], words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        requested(pod(container(resources={"limits": limits})))


def test_the_time_limit_is_later_than_the_deadline() -> None:
    found = requested(pod(activeDeadlineSeconds=61, terminationGracePeriodSeconds=60))
    assert found.resources.time == "33"  # 61 s, half an hour for images, the grace period; rounded up
    assert found.pod is not None
    assert (found.pod.active_deadline_s, found.pod.termination_grace_s) == (61, 60)


def test_annotations_are_options_of_the_job() -> None:
    found = requested(
        annotated(
            account="physics",
            qos="high",
            time="2:00:00",
            nodes="2",
            tasks_per_node="4",
            gres="license:1",
            constraint="avx512",
            reservation="course",
            exclusive="true",
            mpi="pmix",
            options="--mail-type=END\n--nice=5\n",
        )
    )
    assert (found.account, found.qos) == ("physics", "high")
    assert found.resources.model_dump(exclude_none=True) == {
        "time": "2:00:00",
        "nodes": 2,
        "tasks_per_node": 4,
        "gres": "license:1",
    }
    expected = ["--constraint=avx512", "--reservation=course", "--exclusive", "--mail-type=END", "--nice=5"]
    assert found.options == expected
    assert found.pod is not None
    assert (found.pod.mpi, found.pod.hostname) == ("pmix", "")


@pytest.mark.parametrize("field", ["stdin", "tty"])
def test_ranks_of_an_mpi_program_have_no_input_and_no_terminal(field: str) -> None:
    given = annotated(mpi="pmix")
    given["spec"]["containers"][0][field] = True
    with pytest.raises(Unsupported, match=r"^spec: container main has stdin or tty, .*leave them out"):
        requested(given)


@pytest.mark.parametrize(
    ("annotations", "words"),
    [
        ({"nodes": "2"}, r"redbox\.dev/nodes\]: the containers run on the first node alone"),
        ({"nodes": "two"}, "'two' is not a number"),
        ({"exclusive": "yes"}, "neither true nor false"),
        ({"tiem": "1"}, r"redbox\.dev/tiem\]: there is no such option"),
    ],
)
def test_wrong_annotations_are_refused(annotations: dict[str, str], words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        requested(annotated(**annotations))


def test_a_value_that_a_slurmjob_cannot_have_is_refused_by_its_field() -> None:
    with pytest.raises(Unsupported, match=r"^metadata\.annotations\[redbox\.dev/time\]: "):
        requested(annotated(time="soon"))


@pytest.mark.parametrize(
    ("gres", "make"), [("gpu:a100:2", "nvidia"), ("license:1,gpu", "nvidia"), ("gpumem:1", None)]
)
def test_gpus_by_gres_are_inside_too(gres: str, make: str | None) -> None:
    assert program(annotated(gres=gres)).gpus == make


def needs(**resources: dict[str, str]) -> dict[str, Any]:
    return pod(container(resources=resources), container("side"))


def probed(**fields: Any) -> dict[str, Any]:
    return pod(container(livenessProbe={"httpGet": {"port": 80}, **fields}))


MAIN = "spec.containers[main]"
HUGE = str(10**7)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (needs(limits={"cpu": "x"}), f"{MAIN}.resources.limits.cpu: 'x' is not a quantity"),
        (needs(requests={"memory": "x"}), f"{MAIN}.resources.requests.memory: 'x' is not a quantity"),
        (needs(requests={"disk": "1"}), f"{MAIN}.resources.requests.disk: Slurm has no disk: leave it out"),
        (
            needs(requests={"cpu": HUGE}),
            f"{MAIN}.resources.requests.cpu: no job can have so much: request less",
        ),
        (
            needs(limits={"memory": "999999999999E"}),
            f"{MAIN}.resources.limits.memory: no job can have so much",
        ),
        (
            needs(limits={"amd.com/gpu": HUGE}),
            f"{MAIN}.resources.limits.amd.com/gpu: no job can have so much",
        ),
        (pod(resources={"requests": {"cpu": HUGE}}), "spec.resources.requests.cpu: no job can have"),
        (annotated(account=""), "metadata.annotations[redbox.dev/account]: it is empty: leave it out"),
        (annotated(qos="x" * 300), "metadata.annotations[redbox.dev/qos]: it is too long: write at most 256"),
        (annotated(qos="a\nb"), "metadata.annotations[redbox.dev/qos]: it is too long or has a control"),
        (annotated(reservation="a\0b"), "metadata.annotations[redbox.dev/reservation]: it is too long or"),
        (
            annotated(options="-n\n" + "x" * 2000),
            "metadata.annotations[redbox.dev/options]: it is too long or",
        ),
        (annotated(mpi="PMIX 4"), "metadata.annotations[redbox.dev/mpi]: write it in the form"),
        (
            pod(container(), container("other"), metadata={"annotations": {"redbox.dev/mpi": "pmix"}}),
            "metadata.annotations[redbox.dev/mpi]: srun starts one container on all nodes",
        ),
        (annotated(time="soon"), "metadata.annotations[redbox.dev/time]: write a time as sbatch takes it"),
        (annotated(gres="a b"), "metadata.annotations[redbox.dev/gres]: write it in the form"),
        (
            annotated(nodes="0", mpi="pmix"),
            "metadata.annotations[redbox.dev/nodes]: it is too small: write 1 or more",
        ),
        (annotated(nodes="9" * 5000), "metadata.annotations[redbox.dev/nodes]: it is too long or"),
        (annotated(tasks_per_node="\u0664"), "metadata.annotations[redbox.dev/tasks-per-node]: "),
        (
            probed(httpGet={"port": 80, "path": "/a\nb"}),
            f"{MAIN}.livenessProbe.httpGet.path: it has a line break or a control character: leave it out",
        ),
        (probed(httpGet={"port": 70000}), f"{MAIN}.livenessProbe.httpGet.port: it is too large: write 65535"),
        (
            probed(httpGet={"port": 80, "httpHeaders": [{"name": "a b", "value": ""}]}),
            f"{MAIN}.livenessProbe.httpGet.httpHeaders[0].name: ",
        ),
        (probed(periodSeconds=-1), f"{MAIN}.livenessProbe.periodSeconds: it is too small: write 1 or more"),
        (
            pod(container(lifecycle={"preStop": {"exec": {"command": ["a\0b"]}}})),
            f"{MAIN}.lifecycle.preStop.exec.command[0]: it has a line break or a control character",
        ),
        (pod(container(workingDir="here")), f"{MAIN}.workingDir: "),
        (pod(container(command=["a\0b"])), f"{MAIN}.command[0]: it has a line break or a control character"),
        (pod(container(terminationMessagePath="/a\0")), f"{MAIN}.terminationMessagePath: "),
        (pod(container(lifecycle={"stopSignal": "9"})), f"{MAIN}.lifecycle.stopSignal: "),
        (pod(container(ports=[{"containerPort": 0}])), f"{MAIN}.ports[0]: it is too small: write 1 or more"),
        (
            pod(container(volumeMounts=[{"name": "v", "mountPath": "/a\nb"}])),
            f"{MAIN}.volumeMounts[v].mountPath: write an absolute path without line breaks",
        ),
        (
            pod(container(volumeMounts=[{"name": "v", "mountPath": "/a"}])),
            "spec: container main mounts v, which no volume is",
        ),
        (
            pod(volumes=[{"name": "v", "hostPath": {"path": "home"}}]),
            "spec.volumes[v].hostPath.path: ",
        ),
        (
            pod(volumes=[{"name": "v", "hostPath": {"path": "/a", "type": "Folder"}}]),
            "spec.volumes[v].hostPath.type: it has a value that is not known: write ''",
        ),
        (pod(*(container(f"c{number}") for number in range(70))), "spec.containers: there are too many"),
    ],
)
def test_a_refusal_names_the_pods_own_field_and_the_cure(given: dict[str, Any], words: str) -> None:
    with pytest.raises(Unsupported) as refusal:
        requested(given)
    assert str(refusal.value).startswith(words)
    assert "Input should" not in str(refusal.value)
    assert "String should" not in str(refusal.value)


@pytest.mark.parametrize("name", MEANINGS)
def test_each_annotation_of_the_page_changes_the_job(name: str) -> None:
    values = {"tasks-per-node": "2", "nodes": "1", "time": "1", "options": "--nice"}
    values |= dict.fromkeys(("exclusive", "dynamic-ports"), "true")
    assert requested(annotated(**{name: values.get(name, "x")})) != requested(pod())


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ({"hostname": "job-0"}, "job-0"),
        ({"hostname": "a", "hostnameOverride": "b.example"}, "b.example"),
        ({"hostNetwork": True, "hostname": "a"}, ""),
        ({}, "train"),
    ],
)
def test_the_host_name(spec: dict[str, Any], name: str) -> None:
    assert program(pod(**spec)).hostname == name


def test_a_long_name_is_cut_as_kubelets_do() -> None:
    given = pod(metadata={"name": f"{'a' * 62}-b"})
    assert program(given).hostname == "a" * 62


def test_hosts_and_resolver() -> None:
    config = {
        "nameservers": ["1.1.1.1"],
        "searches": ["a", "b"],
        "options": [{"name": "ndots", "value": "2"}, {"name": "debug"}],
    }
    found = program(
        pod(
            hostAliases=[{"ip": "10.0.0.1", "hostnames": ["a", "b"]}],
            dnsPolicy="None",
            dnsConfig=config,
        )
    )
    assert found.hosts_file == "10.0.0.1\ta\tb\n"
    assert found.resolv_conf == "nameserver 1.1.1.1\nsearch a b\noptions ndots:2 debug\n"
    with pytest.raises(Unsupported, match=r"spec\.dnsConfig: "):
        program(pod(dnsConfig=config, dnsPolicy="ClusterFirst"))


def logins(auths: dict[str, Any]) -> dict[str, Any]:
    return secret(**{".dockerconfigjson": json.dumps({"auths": auths})})


def test_logins_of_registries() -> None:
    auth = base64.b64encode(b"bob:se:cret").decode()
    found = program(
        pod(imagePullSecrets=[{"name": name} for name in ("one", "old", "same", "missing")]),
        secrets={
            "one": logins({"quay.io": {"username": "alice", "password": "p"}, "ghcr.io": {"auth": auth}}),
            "old": secret(**{".dockercfg": json.dumps({"quay.io": {"auth": auth}, "x.io": {"auth": auth}})}),
            "same": logins({"quay.io": {"username": "alice", "password": "p"}}),
        },
    ).registries
    alice, bob = (
        RegistryCredentials(username=name, password=SecretStr(password))
        for name, password in (("alice", "p"), ("bob", "se:cret"))
    )
    assert found == {"quay.io": [alice, bob], "ghcr.io": bob, "x.io": bob}


@pytest.mark.parametrize(
    "values",
    [
        secret(other="x"),
        secret(**{".dockerconfigjson": "[1, 2]"}),
        secret(**{".dockerconfigjson": "hunter2"}),
        logins({"quay.io": {"auth": "hunter2"}}),
        logins({"quay.io": {"username": ["hunter2"]}}),
    ],
)
def test_a_login_that_cannot_be_read_is_refused_without_its_content(values: dict[str, Any]) -> None:
    with pytest.raises(Unsupported, match=r"^spec\.imagePullSecrets\[s\]: ") as refusal:
        program(pod(imagePullSecrets=[{"name": "s"}]), secrets={"s": values})
    assert "hunter2" not in str(refusal.value)


def test_a_name_that_is_too_long_for_a_job_is_cut() -> None:
    found = requested(pod(metadata={"name": "a" * 253}))
    assert found.name == "a" * 128
    assert found.pod is not None
    assert found.pod.name == "a" * 253


def test_the_longest_times_of_kubernetes_are_taken() -> None:
    found = program(pod(activeDeadlineSeconds=2**31 - 1, terminationGracePeriodSeconds=2**31 - 1))
    assert (found.active_deadline_s, found.termination_grace_s) == (10**9, 10**9)
