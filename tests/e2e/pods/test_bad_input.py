"""Pods that cannot work, or only just: one sentence that says what to do, and nothing that is left behind.

Pods that need not be looked at while they run are applied at once, when the file begins.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import yaml

from redbox_bed.bed import Bed
from redbox_bed.core.plan import Release
from tests.e2e.harness.container_image import IMAGE
from tests.e2e.harness.image_registry import Registry
from tests.e2e.harness.left_behind import left_behind
from tests.e2e.harness.registry_pods import OTHER
from tests.e2e.harness.slurm_pods import (
    FOREVER,
    HOME,
    USER,
    SlurmPod,
    SlurmPods,
    container,
    ended,
    events_of,
    manifest,
    on_slurm,
)
from tests.e2e.harness.slurmjobs import new_name
from tests.e2e.harness.waiting import eventually

pytestmark = pytest.mark.timeout(300)
Object = dict[str, Any]
LARGEST_CONFIG = f"large-{new_name()}"
FOREIGN_CLAIM = f"foreign-{new_name()}"
FOREIGN_CLASS = f"class-{new_name()}"
LATE_SECRET = f"late-{new_name()}"
IGNORES_TERM = "trap '' TERM; while :; do sleep 0.2; done"
ENDS_BADLY = FOREVER.replace("exit 0", "exit 3")


def volume(kind: str, **source: Any) -> Object:
    """Fields of a pod with one volume; its container mounts it at /data."""
    return {"volumes": [{"name": "data", kind: source}]}


def mounting(script: str, **fields: Any) -> Object:
    return container(script, volumeMounts=[{"name": "data", "mountPath": "/data"}], **fields)


def with_memory(main: Object, amount: str) -> Object:
    return {**main, "resources": {"requests": {"memory": amount}}}


LIVENESS = {"exec": {"command": ["sh", "-c", "exit 1"]}, "periodSeconds": 1, "failureThreshold": 1}
FROM_CONFIG = {"name": "LARGE", "valueFrom": {"configMapKeyRef": {"name": LARGEST_CONFIG, "key": "text"}}}
PODS: dict[str, Object] = {
    "no such file": on_slurm({**container("true"), "image": f"{HOME}/none.sif"}),
    "no entry point": on_slurm({"name": "main", "image": IMAGE}),
    "entry point missing": on_slurm({**container(), "command": ["/no/such/program", "argument"]}),
    "500 variables": on_slurm(
        container(
            "env | busybox grep -c '^VARIABLE_[0-9]*=moo$'",
            env=[{"name": f"VARIABLE_{number}", "value": "moo"} for number in range(500)],
        )
    ),
    "1 MiB as a file": on_slurm(
        mounting("busybox wc -c < /data/text"), **volume("configMap", name=LARGEST_CONFIG)
    ),
    "1 MiB as a variable": on_slurm(container("true", env=[FROM_CONFIG])),
    "no Secret": on_slurm(mounting("true"), **volume("secret", secretName="never")),
    "foreign claim": on_slurm(mounting("true"), **volume("persistentVolumeClaim", claimName=FOREIGN_CLAIM)),
    "foreign class": on_slurm(mounting("true"), **volume("persistentVolumeClaim", claimName=FOREIGN_CLASS)),
    "late Secret": on_slurm(mounting("cat /data/word"), **volume("secret", secretName=LATE_SECRET)),
    "no hostPath": on_slurm(mounting("true"), **volume("hostPath", path="/no/such", type="Directory")),
    "root": on_slurm(container("true", securityContext={"runAsUser": 0})),
    "liveness": on_slurm(container(ENDS_BADLY, livenessProbe=LIVENESS), restartPolicy="OnFailure"),
    "ignores SIGTERM": on_slurm(
        container(IGNORES_TERM), activeDeadlineSeconds=8, terminationGracePeriodSeconds=2
    ),
    "ten containers": on_slurm(
        *(with_memory(container(f"echo {number}", f"number-{number}"), "16Mi") for number in range(10))
    ),
    "never fits": on_slurm(
        {**container("true"), "resources": {"requests": {"cpu": "400", "memory": "100Mi"}}}
    ),
    "long name": on_slurm(container("hostname")),
    # Its runner cleans up before Slurm kills it: the bed's KillWait is 5 s.
    "deleted by force": on_slurm(container("trap '' TERM; sleep 600"), terminationGracePeriodSeconds=1),
}


@dataclass(frozen=True)
class BadPods:
    """All of them, by what is wrong with each."""

    names: Mapping[str, str]
    pods: SlurmPods

    def __getitem__(self, what: str) -> SlurmPod:
        return self.pods.of(self.names[what])


@pytest.fixture(scope="module", autouse=True)
def before(bed: Bed, installed: None) -> set[str]:
    """What tests of other files have left, which is not looked at here."""
    assert installed is None
    return left_behind(bed)


@pytest.fixture(scope="module")
def bad(lasting: SlurmPods, before: set[str]) -> Iterator[BadPods]:
    assert before is not None
    pods = lasting
    names = {what: new_name() for what in PODS} | {"long name": new_name().ljust(253, "a")}
    pods.apply("ConfigMap", LARGEST_CONFIG, data={"text": "x" * (1 << 20)})
    with foreign_claim(pods), foreign_class(pods):
        pods.apply_all(*(manifest("Pod", names[what], spec=spec) for what, spec in PODS.items()))
        yield BadPods(names, pods)
        pods.clean()


@contextmanager
def foreign_claim(pods: SlurmPods) -> Iterator[None]:
    """A claim whose volume is on a file server that only Kubernetes' own nodes would mount."""
    name = FOREIGN_CLAIM
    common: Object = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    bound_to = {"namespace": USER, "name": FOREIGN_CLAIM}
    source = {"nfs": {"server": "192.0.2.1", "path": "/projects"}, "capacity": {"storage": "1Gi"}}
    spec = {**common, **source, "claimRef": bound_to, "persistentVolumeReclaimPolicy": "Retain"}
    metadata = {"name": name}
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": metadata, "spec": spec}
    pods.kubectl.apply(yaml.safe_dump(volume))
    wanted = {"volumeName": name, "resources": {"requests": {"storage": "1Gi"}}}
    pods.apply("PersistentVolumeClaim", FOREIGN_CLAIM, spec={**common, **wanted})
    bound = "--for=jsonpath={.status.phase}=Bound"
    pods.kubectl("wait", f"pvc/{FOREIGN_CLAIM}", bound, f"--namespace={USER}", "--timeout=60s")
    yield
    pods.kubectl("delete", "persistentvolume", name, "--wait=false")


@contextmanager
def foreign_class(pods: SlurmPods) -> Iterator[None]:
    """A StorageClass whose provisioner makes no volume for virtual nodes, and a claim of it."""
    body = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": FOREIGN_CLASS},
        "provisioner": "disks.example.org",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    pods.kubectl.apply(yaml.safe_dump(body))
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    pods.apply("PersistentVolumeClaim", FOREIGN_CLASS, spec={**wanted, "storageClassName": FOREIGN_CLASS})
    yield
    pods.kubectl("delete", "storageclass", FOREIGN_CLASS, "--wait=false")


def test_what_a_deletion_by_force_leaves_is_ended(bad: BadPods) -> None:
    """The last test of this file sees that nothing is left of it."""
    pod = bad["deleted by force"]
    pod.reaches("Running")
    job_id = pod.job_id
    pod.delete("--force", "--grace-period=0")
    assert not pod.manifest
    eventually(lambda: [row[0] for row in pod.in_slurm()] == [job_id])  # the accounting may be late


@pytest.mark.parametrize(
    ("what", "reason", "words"),
    [
        ("root", "Unsupported", ["securityContext.runAsUser", "leave it out"]),
        ("foreign claim", "Unsupported", [FOREIGN_CLAIM, "nfs volume", "redbox.dev/directory"]),
        ("1 MiB as a variable", "Unsupported", ["containers[main].env[LARGE]", "mount it as a file"]),
    ],
)
def test_what_no_job_can_have_is_refused_with_the_cure(
    bad: BadPods, what: str, reason: str, words: list[str]
) -> None:
    status = bad[what].ends()
    assert (status["phase"], status["reason"]) == ("Failed", reason)
    assert [word for word in words if word not in status["message"]] == [], status["message"]
    assert bad[what].in_slurm() == []


def test_what_no_node_can_ever_run_is_refused_or_waits_with_the_reason(bed: Bed, bad: BadPods) -> None:
    pod = bad["never fits"]
    if bed.plan.options.release is not Release.V24_11:
        status = pod.until(lambda status: "It will wait for ever" in json.dumps(status), "said to wait")
        assert "PartitionConfig" in status["containerStatuses"][0]["state"]["waiting"]["message"]
        return
    status = pod.ends()
    assert (status["phase"], status["reason"]) == ("Failed", "Refused")
    assert "node configuration is not available" in status["message"]
    # sbatch leaves a row of what it refuses, of a job that never was in the queue.
    pod.has_in_slurm("FAILED")


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("entry point missing", ["/no/such/program", "no such file"]),
        ("no entry point", ["has no entry point", "needs a command"]),
    ],
)
def test_a_program_that_cannot_start_is_an_end_with_128(bad: BadPods, what: str, words: list[str]) -> None:
    status = bad[what].ends()
    end = ended(status)
    assert (status["phase"], end["exitCode"], end["reason"]) == ("Failed", 128, "StartError")
    assert [word for word in words if word not in end["message"]] == [], end["message"]


@pytest.mark.parametrize(
    ("what", "log"),
    [("500 variables", "500\n"), ("1 MiB as a file", f"{1 << 20}\n")],
)
def test_much_of_what_is_allowed_reaches_the_container_whole(bad: BadPods, what: str, log: str) -> None:
    assert bad[what].ends()["phase"] == "Succeeded"
    assert bad[what].log() == log


def test_ten_containers_run_beside_each_other(bad: BadPods) -> None:
    status = bad["ten containers"].ends()
    assert status["phase"] == "Succeeded", status
    names = [row["name"] for row in status["containerStatuses"]]
    assert [bad["ten containers"].log("-c", name) for name in names] == [f"{n}\n" for n in range(10)]


def test_a_name_of_253_characters_is_a_pods_name(bad: BadPods) -> None:
    pod = bad["long name"]
    assert (len(pod.name), pod.ends()["phase"]) == (253, "Succeeded")
    assert pod.log() == f"{pod.name[:63]}\n"
    pod.has_in_slurm("COMPLETED")


def test_a_program_that_ignores_sigterm_is_killed_after_the_grace_period(bad: BadPods) -> None:
    status = bad["ignores SIGTERM"].ends()
    assert (status["phase"], status["reason"]) == ("Failed", "DeadlineExceeded")
    assert ended(status)["exitCode"] == 137


def test_a_liveness_probe_that_fails_has_the_container_started_again(bad: BadPods) -> None:
    pod = bad["liveness"]
    status = pod.until(
        lambda status: any(row["restartCount"] for row in status.get("containerStatuses", [])), "a restart"
    )
    assert status["phase"] == "Running"
    assert pod.has_event("Unhealthy", "Liveness probe failed")
    assert pod.has_event("Killing", "failed liveness probe, will be restarted")


def test_an_image_file_that_is_not_there_is_named(bad: BadPods) -> None:
    pod = bad["no such file"]
    message = pod.waits("ImagePullBackOff")
    assert f"{HOME}/none.sif does not exist on node n" in message
    assert "give the path of a .sif" in message


def test_a_secret_that_comes_later_is_waited_for(bad: BadPods) -> None:
    pod = bad["late Secret"]
    assert f'secret "{LATE_SECRET}" not found' in pod.has_event("FailedMount")
    bad.pods.apply("Secret", LATE_SECRET, stringData={"word": "late"})
    assert pod.ends()["phase"] == "Succeeded"
    assert pod.log() == "late"


def test_a_secret_that_never_comes_is_waited_for_without_a_job(bad: BadPods) -> None:
    pod = bad["no Secret"]
    message = pod.has_event("FailedMount")
    assert message == 'MountVolume.SetUp failed for volume "data" : secret "never" not found'
    assert pod.waits("ContainerCreating") == message
    pod.delete()
    assert pod.in_slurm() == []


def test_a_hostpath_that_is_not_there_is_named(bad: BadPods) -> None:
    pod = bad["no hostPath"]
    problem = '"data" : /no/such: No such file or directory on node n'
    message = pod.has_event("FailedMount", "/no/such")
    assert (problem in message, message.endswith("your user may enter")) == (True, True)
    assert pod.status["phase"] == "Pending"


def test_a_claim_whose_class_makes_nothing_for_virtual_nodes_names_a_class_that_does(bad: BadPods) -> None:
    def failed() -> str:
        found = events_of(bad.pods.kubectl, "PersistentVolumeClaim", FOREIGN_CLASS)
        return next((message for reason, message in found if reason == "ProvisioningFailed"), "")

    message = eventually(failed, what="the reason")
    assert message.startswith("disks.example.org, the provisioner of StorageClass")
    assert "make this claim again with a StorageClass of provisioner redbox.dev/directory" in message
    assert "nodeName" not in bad["foreign class"].manifest["spec"]


def test_pods_that_are_deleted_while_they_are_submitted_or_end_leave_no_job(pods: SlurmPods) -> None:
    slow_end = pods.run(container("trap 'sleep 1; exit 0' TERM; while :; do sleep 0.2; done"))
    slow_end.reaches("Running")
    slow_end("delete", "pod", slow_end.name, "--wait=false")
    names = [new_name() for _ in range(6)]
    spec = on_slurm(container(FOREVER))
    pods.apply_all(*(manifest("Pod", name, spec=spec) for name in names))
    slow_end.delete("--grace-period=1")
    pods.clean()
    for pod in (slow_end, *map(pods.of, names)):
        pod.has_no_live_job()
        assert len(pod.in_slurm()) <= 1


def pulled(image: str, **fields: Any) -> Object:
    return {"name": "main", "image": image, "imagePullPolicy": "IfNotPresent", **fields}


def test_images_that_cannot_be_pulled_say_why_and_are_tried_again(
    pods: SlurmPods, image: str, pull_secret: list[Object]
) -> None:
    wanted = {
        "manifest unknown: check the image's name and tag": (f"{image}:none", pull_secret),
        "authentication required: if it exists, give imagePullSecrets": (f"{image}:1-without-login", []),
    }
    names = {words: new_name() for words in wanted}
    pods.apply_all(
        *(
            manifest("Pod", names[words], spec=on_slurm(pulled(name), imagePullSecrets=secrets))
            for words, (name, secrets) in wanted.items()
        )
    )
    for words, name in names.items():
        message = pods.of(name).waits("ImagePullBackOff")
        assert f'Back-off pulling image "{wanted[words][0]}"' in message
        assert words in message
        assert pods.of(name).status["phase"] == "Pending"


def test_a_program_of_another_architecture_is_an_end_with_128(
    pods: SlurmPods, image: str, pull_secret: list[Object]
) -> None:
    status = pods.run(pulled(f"{image}:{OTHER}"), imagePullSecrets=pull_secret).ends()
    end = ended(status)
    assert (status["phase"], end["exitCode"], end["reason"]) == ("Failed", 128, "StartError")
    assert "arm64" in end["message"]
    assert "architecture" in end["message"] or "cannot run on" in end["message"]


def test_a_pod_that_is_deleted_while_it_pulls_ends_at_once_and_leaves_no_part_of_the_image(
    pods: SlurmPods, image: str, pull_secret: list[Object], registry: Registry
) -> None:
    with registry.stopped():
        pod = pods.run(pulled(f"{image}:1", imagePullPolicy="Always"), imagePullSecrets=pull_secret)
        assert pod.has_event("Pulling")
        pod.delete()
    eventually(lambda: {state for _, state in pod.in_slurm()} <= {"CANCELLED", "FAILED", "COMPLETED"})
    parts = f"find {HOME}/.cache/redbox -name '*.sif.*.*'"
    eventually(
        lambda: pods.login.run("sh", "-c", parts, user=USER, check=False).stdout == "",
        what="no part of an image",
    )


def test_nothing_is_left_on_the_nodes_in_the_home_or_in_slurm(
    bed: Bed, bad: BadPods, before: set[str]
) -> None:
    bad.pods.clean()
    try:
        eventually(lambda: not left_behind(bed) - before, what="nothing left behind")
    except AssertionError:
        assert left_behind(bed) - before == set()
        raise
