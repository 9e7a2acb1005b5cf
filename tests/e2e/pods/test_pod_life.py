"""Pods as Slurm jobs on the bed: what a user sees of containers, logs, restarts and the end."""

from __future__ import annotations

import re

import pytest

from redbox_bed.bed import Bed
from redbox_bed.delivery import SLURM_CLUSTER
from tests.e2e.harness import mpi_image
from tests.e2e.harness.accounting import SINCE
from tests.e2e.harness.slurm_pods import (
    FOREVER,
    HOME,
    NODE,
    SELECTOR,
    USER,
    SlurmPod,
    SlurmPods,
    condition,
    container,
    ended,
    pods_ready,
)
from tests.e2e.harness.slurm_release import skip_without_pmix
from tests.e2e.harness.slurmjobs import new_name
from tests.e2e.harness.waiting import eventually

pytestmark = pytest.mark.timeout(300)
DATA = [{"name": "data", "emptyDir": {}}]
AT_DATA = [{"name": "data", "mountPath": "/data"}]
WAITS = "while [ ! -e /data/done ]; do sleep 0.2; done"


ON_GPUS = {**SELECTOR, "redbox.dev/partition": "GPU_big"}
SHOW_GPUS = 'echo "$CUDA_VISIBLE_DEVICES"; ls /dev/nvidia0'
MOUNTER = "/usr/local/bin/squashfuse_ll"
OLD_MOUNTER = """#!/bin/sh
# As before release 0.2.0, which knows no owner.
[ $# -gt 0 ] || { /usr/bin/squashfuse_ll 2>&1 | grep -v uid=; exit 254; }
exec /usr/bin/squashfuse_ll "$@"
"""
HOST_FOLDERS = ("/usr", "/etc/openmpi")


def slurm_node(pod: SlurmPod) -> str:
    """The node that its job runs on."""
    return pod.login.run("squeue", "--noheader", "--format=%N", f"--jobs={pod.job_id}").stdout.strip()


def test_the_slurmcluster_says_that_pods_run(pods: SlurmPods) -> None:
    ready = pods_ready(pods.kubectl)
    assert (ready["status"], ready["reason"]) == ("True", "Served")
    assert USER in ready["message"]


def test_a_pod_succeeds_with_its_log_and_runs_as_its_user(pods: SlurmPods) -> None:
    pod = pods.run(container("echo out; echo err >&2; id -u"))
    status = pod.ends()
    assert (status["phase"], ended(status)["exitCode"]) == ("Succeeded", 0)
    assert pod.manifest["spec"]["nodeName"] == NODE
    uid = pods.login.run("id", "-u", USER).stdout
    assert sorted(pod.log().splitlines()) == sorted(["out", "err", uid.strip()])


def test_the_root_is_the_users_on_a_node_whose_squashfuse_knows_no_owner(bed: Bed, pods: SlurmPods) -> None:
    node = bed.host("n1")
    node.write(MOUNTER, OLD_MOUNTER, mode=0o755)
    on_node = {"annotations": {"redbox.dev/options": f"--nodelist={node.name}"}}
    script = "busybox rm /bin/head && : > /bin/new && : > /tmp/new && ls -d /bin/new /tmp/new"
    try:
        pod = pods.run(container(script), metadata=on_node)
        pod.ends()
        assert pod.log() == "/bin/new\n/tmp/new\n"
    finally:
        node.run("rm", MOUNTER)


def test_a_container_that_fails_fails_the_pod_with_its_exit_code(pods: SlurmPods) -> None:
    status = pods.run(container("exit 7")).ends()
    assert (status["phase"], ended(status)["exitCode"], ended(status)["reason"]) == ("Failed", 7, "Error")


def test_each_container_has_a_log_of_its_own(pods: SlurmPods) -> None:
    pod = pods.run(container("echo of one", "one"), container("echo of two", "two"))
    assert pod.ends()["phase"] == "Succeeded"
    assert (pod.log("-c", "one"), pod.log("-c", "two")) == ("of one\n", "of two\n")
    assert pod.log("-c", "one", "--since=1h") == "of one\n"


def test_init_containers_run_one_after_the_other_before_the_main_one(pods: SlurmPods) -> None:
    first, second, main = (
        container(script, name, volumeMounts=AT_DATA)
        for script, name in (
            ("sleep 1; echo first >> /data/order", "first"),
            ("echo second >> /data/order", "second"),
            ("cat /data/order", "main"),
        )
    )
    pod = pods.run(main, initContainers=[first, second], volumes=DATA)
    status = pod.ends()
    assert status["phase"] == "Succeeded"
    assert ended(status, "first", "initContainerStatuses")["exitCode"] == 0
    assert pod.log() == "first\nsecond\n"


def test_variables_come_from_configmaps_and_secrets(pods: SlurmPods) -> None:
    plain, secret = new_name(), new_name()
    pods.apply("ConfigMap", plain, data={"PLACE": "a barn", "OTHER": "x"})
    pods.apply("Secret", secret, stringData={"word": 'it\'s "$(moo)"'})
    chosen = {"name": "WORD", "valueFrom": {"secretKeyRef": {"name": secret, "key": "word"}}}
    source = [{"configMapRef": {"name": plain}}]
    odd = {"name": "my.dot-name", "value": "$(WORD) `id` \\"}  # no shell takes the name
    shown = container(name="shown", command=["env"], env=[chosen, odd])  # sh drops what it cannot name
    pod = pods.run(container('echo "$WORD in $PLACE"', env=[chosen], envFrom=source), shown)
    assert pod.ends()["phase"] == "Succeeded"
    assert pod.log("-c", "main") == 'it\'s "$(moo)" in a barn\n'
    variables = pod.log("-c", "shown")
    assert 'my.dot-name=it\'s "$(moo)" `id` \\\n' in variables
    assert "SLURM" not in variables


WAIT_FOR_NEW = """
until grep -q new /all/a && grep -q new /all/word && grep -q new /all/late && grep -q new /all/labels
do sleep 0.2; done
echo "changed: $(cat /all/a /all/word /all/late); as before: $(cat /sub) $A"
"""


def test_files_follow_their_objects_and_a_lowered_deadline_ends_the_pod(pods: SlurmPods) -> None:
    """Names of Kubernetes' own cases: updates should be reflected in volume; activeDeadlineSeconds."""
    plain, secret, late = new_name(), new_name(), new_name()
    pods.apply("ConfigMap", plain, data={"a": "old"})
    pods.apply("Secret", secret, stringData={"word": "old"})
    labels = {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}
    sources = [
        {"configMap": {"name": plain}},
        {"secret": {"name": secret}},
        {"configMap": {"name": late, "optional": True}},
        {"downwardAPI": {"items": [labels]}},
    ]
    mounts = [{"name": "all", "mountPath": "/all"}, {"name": "all", "mountPath": "/sub", "subPath": "a"}]
    env = [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": plain, "key": "a"}}}]
    main = container(WAIT_FOR_NEW + FOREVER, env=env, volumeMounts=mounts)
    volumes = [{"name": "all", "projected": {"sources": sources}}]
    pod = pods.run(main, volumes=volumes, metadata={"labels": {"stage": "old"}})
    pod.reaches("Running")
    pods.apply("ConfigMap", plain, data={"a": "new"})
    pods.apply("Secret", secret, stringData={"word": "new"})
    pods.apply("ConfigMap", late, data={"late": "new"})
    pod("label", "--overwrite", "pod", pod.name, "stage=new")
    eventually(lambda: pod.log() == "changed: newnewnew; as before: old old\n", what="the new files")
    pod("patch", "pod", pod.name, "--patch", '{"spec": {"activeDeadlineSeconds": 1}}')
    assert pod.ends()["reason"] == "DeadlineExceeded"


def test_users_that_a_pod_asks_for_are_shown_inside_and_are_its_own_outside(pods: SlurmPods) -> None:
    """The kernel maps one number: none of them brings a right."""
    script = (
        "id -u; id -g; touch /data/f; stat -c %u:%g /data/f; read -r inside _ count < /proc/self/uid_map; "
        "echo $inside $count; chown 7 /data/f"
    )
    asked = {"runAsUser": 1000, "runAsGroup": 3000, "fsGroup": 2000, "seLinuxOptions": {"level": "s0"}}
    probe = {"exec": {"command": ["sh", "-c", "[ $(id -u) = 0 ] && touch /home/by-root"]}, "periodSeconds": 1}
    folder = f"{HOME}/{new_name()}"
    made = {"name": "home", "hostPath": {"path": folder, "type": "DirectoryOrCreate"}}
    root = container("sleep 3", "root", securityContext={"runAsUser": 0}, readinessProbe=probe)
    root["volumeMounts"] = [{"name": "home", "mountPath": "/home"}]
    cluster = ("slurmcluster", SLURM_CLUSTER, "--type=merge")
    pods.kubectl("patch", *cluster, '--patch={"spec":{"pods":{"users":"map"}}}')
    try:
        pod = pods.run(
            container(script, volumeMounts=AT_DATA), root, securityContext=asked, volumes=[*DATA, made]
        )
        status = pod.ends()
    finally:
        pods.kubectl("patch", *cluster, '--patch={"spec":{"pods":{"users":"refuse"}}}')
    log = pod.log("-c", "main")
    assert log.splitlines()[:4] == ["1000", "3000", "1000:3000", "1000 1"], (log, status)
    assert "Invalid argument" in log  # 7 is nobody here
    shown = pods.login.run("stat", "-c", "%U", f"{folder}/by-root").stdout
    assert shown.strip() == USER


def test_a_missing_secret_is_waited_for(pods: SlurmPods) -> None:
    secret = new_name()
    chosen = {"name": "WORD", "valueFrom": {"secretKeyRef": {"name": secret, "key": "word"}}}
    pod = pods.run(container('echo "$WORD"', env=[chosen]))
    reason = "CreateContainerConfigError"
    pod.until(
        lambda status: any(
            row["state"].get("waiting", {}).get("reason") == reason
            for row in status.get("containerStatuses", [])
        ),
        reason,
    )
    pods.apply("Secret", secret, stringData={"word": "late"})
    assert pod.ends()["phase"] == "Succeeded"
    assert pod.log() == "late\n"


def test_containers_share_an_emptydir(pods: SlurmPods) -> None:
    writer = container("echo shared > /data/text; : > /data/done", "writer", volumeMounts=AT_DATA)
    reader = container(f"{WAITS}; cat /data/text", "reader", volumeMounts=AT_DATA)
    pod = pods.run(reader, writer, volumes=DATA)
    assert pod.ends()["phase"] == "Succeeded"
    assert pod.log("-c", "reader") == "shared\n"


def test_a_container_that_failed_is_started_again_and_its_first_log_stays(pods: SlurmPods) -> None:
    script = "if [ -e /data/again ]; then echo second; exit 0; fi; echo first; : > /data/again; exit 1"
    pod = pods.run(container(script, volumeMounts=AT_DATA), volumes=DATA, restartPolicy="OnFailure")
    status = pod.ends()
    assert (status["phase"], status["containerStatuses"][0]["restartCount"]) == ("Succeeded", 1)
    assert (pod.log(), pod.log("--previous")) == ("second\n", "first\n")


def test_a_readiness_probe_makes_the_pod_ready(pods: SlurmPods) -> None:
    probe = {"exec": {"command": ["cat", "/data/ready"]}, "periodSeconds": 1}
    go = f"{HOME}/{new_name()}"
    script = f"while [ ! -e {go} ]; do sleep 0.2; done; : > /data/ready; sleep 600"
    home = {"name": "home", "hostPath": {"path": HOME, "type": "Directory"}}
    mounts = [*AT_DATA, {"name": "home", "mountPath": HOME}]
    main = container(script, volumeMounts=mounts, readinessProbe=probe)
    pod = pods.run(main, container("sleep 600", "beside"), volumes=[*DATA, home])
    try:
        running = pod.until(lambda status: status.get("phase") == "Running", "Running")
        assert condition(running, "Ready")["status"] == "False"
        pods.login.run("touch", go, user=USER)
        status = pod.is_ready()
    finally:
        pods.login.run("rm", "-f", go)
    assert all(row["ready"] and row["started"] for row in status["containerStatuses"])


def test_a_deletion_runs_prestop_and_leaves_nothing_behind(bed: Bed, pods: SlurmPods) -> None:
    mark = f"{HOME}/{new_name()}"
    hook = {"preStop": {"exec": {"command": ["sh", "-c", f"echo stopped > {mark}"]}}}
    home = [{"name": "home", "hostPath": {"path": HOME, "type": "Directory"}}]
    main = container(
        "trap 'exit 0' TERM; while :; do sleep 0.2; done",
        lifecycle=hook,
        volumeMounts=[{"name": "home", "mountPath": HOME}],
    )
    pod = pods.run(main, volumes=[*home, *DATA])
    pod.reaches("Running")
    job_id, folder, node = pod.job_id, pod.work_dir, bed.host(slurm_node(pod))
    scratch = ("sh", "-c", f"ls -d /tmp/redbox-pod-{job_id}-* /dev/shm/redbox-pod-{job_id}-* 2>/dev/null")
    assert node.run(*scratch, check=False).stdout
    assert ".redbox-" in pods.login.run("ls", "-A", folder).stdout
    try:
        pod.delete()
        assert pods.login.run("cat", mark).stdout == "stopped\n"
    finally:
        pods.login.run("rm", "-f", mark)
    listing = ("squeue", "--noheader", f"--jobs={job_id}")
    eventually(lambda: not pods.login.run(*listing, check=False).stdout.strip(), what="an empty queue")
    eventually(lambda: not node.run(*scratch, check=False).stdout, what="an empty scratch")
    eventually(lambda: ".redbox-" not in pods.login.run("ls", "-A", folder).stdout, what="no private folder")


def test_a_field_that_no_job_can_have_is_refused_by_its_name(pods: SlurmPods) -> None:
    main = container("true", securityContext={"privileged": True})
    pod = pods.run(main)
    status = pod.ends()
    assert (status["phase"], status["reason"]) == ("Failed", "Unsupported")
    assert "privileged" in status["message"]
    assert pods.login.run("sacct", SINCE, "-XnPa", "-o", "JobID", f"--name={pod.name}").stdout == ""


def test_a_pod_without_the_toleration_never_comes_there(pods: SlurmPods) -> None:
    pod = pods.run(container("true"), tolerations=[])
    refused = pod.until(
        lambda status: condition(status, "PodScheduled").get("reason") == "Unschedulable", "Unschedulable"
    )
    assert "untolerated taint" in condition(refused, "PodScheduled")["message"]
    assert "nodeName" not in pod.manifest["spec"]


def test_a_virtual_node_that_is_deleted_comes_back_and_its_pods_run_on(pods: SlurmPods) -> None:
    pod = pods.run(container(f"{WAITS}; echo alive", volumeMounts=AT_DATA), goes_on(), volumes=DATA)
    pod.reaches("Running")
    job_id, uid = pod.job_id, pod.uid
    before = pods.kubectl.get("node", NODE)["metadata"]["uid"]
    pods.kubectl("delete", "node", NODE, "--wait=false")
    eventually(
        lambda: pods.kubectl.get("node", NODE).get("metadata", {}).get("uid", before) != before,
        what="another node of that name",
    )
    status = pod.ends()
    assert (status["phase"], pod.uid, pod.job_id) == ("Succeeded", uid, job_id)
    assert pod.log("-c", "main") == "alive\n"


def goes_on() -> dict[str, object]:
    """A container that lets the main one end after PodGC's 40 s and more."""
    return container("sleep 60; : > /data/done", "goes-on", volumeMounts=AT_DATA)


def test_an_mpi_program_is_one_pod_on_three_nodes(bed: Bed, pods: SlurmPods) -> None:
    skip_without_pmix(bed)
    pods.login.run("sh", "-c", mpi_image.BUILD, user="alice", timeout=120)
    volumes = [
        {"name": f"host{number}", "hostPath": {"path": folder}} for number, folder in enumerate(HOST_FOLDERS)
    ]
    mounts = [
        {"name": f"host{number}", "mountPath": folder, "readOnly": True}
        for number, folder in enumerate(HOST_FOLDERS)
    ]
    main = {
        **container(volumeMounts=mounts),
        "image": mpi_image.IMAGE,
        "command": [mpi_image.PINGPONG],
    }
    annotations = {f"redbox.dev/{name}": value for name, value in (("nodes", "3"), ("mpi", "pmix"))}
    annotations["redbox.dev/tasks-per-node"] = "1"
    once = {**main, "name": "once", "command": ["sh", "-c", "echo once"]}
    pod = pods.run(main, initContainers=[once], volumes=volumes, metadata={"annotations": annotations})
    status = pod.ends()
    log = pod.log()
    assert status["phase"] == "Succeeded", log
    assert set(re.findall(r"rank ([0-9]) of 3 on (n[0-9])", log)) == {("0", "n1"), ("1", "n2"), ("2", "n3")}
    assert set(re.findall(r"0<->([12]) .* a round trip", log)) == {"1", "2"}
    assert pod.log("-c", "once") == "once\n"
    pod.has_in_slurm("COMPLETED")


def test_several_nodes_without_mpi_are_refused_with_the_cure(pods: SlurmPods) -> None:
    pod = pods.run(container("true"), metadata={"annotations": {"redbox.dev/nodes": "2"}})
    status = pod.ends()
    assert (status["phase"], status["reason"]) == ("Failed", "Unsupported")
    assert "add redbox.dev/mpi" in status["message"]


def test_a_pod_that_requests_gpus_has_them_in_slurm_and_in_its_environment(pods: SlurmPods) -> None:
    by_limit = container(SHOW_GPUS, resources={"limits": {"nvidia.com/gpu": "2"}})
    both = pods.run(by_limit, nodeSelector=ON_GPUS)
    annotations = {"redbox.dev/gres": "gpu:tesla:1"}
    single = pods.run(container(SHOW_GPUS), nodeSelector=ON_GPUS, metadata={"annotations": annotations})
    many = container("true", resources={"limits": {"nvidia.com/gpu": "3"}})
    refused = pods.run(many, nodeSelector=ON_GPUS)
    for pod, devices, amount in ((both, {"0,1"}, 2), (single, {"0", "1"}, 1)):
        assert pod.ends()["phase"] == "Succeeded", pod.log()
        shown, device = pod.log().splitlines()[-2:]
        assert (shown in devices, device) == (True, "/dev/nvidia0")
        ask = ("sacct", "-XnP", "-o", "AllocTRES%200", "-j", pod.job_id)
        eventually(lambda ask=ask, gpus=f"gres/gpu={amount}": gpus in pods.login.run(*ask).stdout)  # type: ignore[misc]
    assert refused.ends()["reason"] == "Refused"
    refused.has_in_slurm("FAILED")  # sbatch's row of what it refuses
