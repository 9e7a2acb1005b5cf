"""What makes pods, on Slurm: Jobs, CronJobs, Deployments, and steps that hand on files in a claim."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from redbox_bed.bed import Bed
from redbox_bed.core.places import CHECKOUT
from redbox_bed.core.progress import Progress
from redbox_bed.delivery import SLURM_CLUSTER
from redbox_bed.kube.cluster_dns import ensure_dns
from tests.e2e.harness.container_image import IMAGE
from tests.e2e.harness.left_behind import NODES, left_behind
from tests.e2e.harness.network_policies import clients
from tests.e2e.harness.slurm_nodes import resume_what_slurm_drained
from tests.e2e.harness.slurm_pods import (
    FOREVER,
    HOME,
    USER,
    SlurmPod,
    SlurmPods,
    condition,
    container,
    ended,
    on_slurm,
    upgrade,
)
from tests.e2e.harness.slurm_settings import configured
from tests.e2e.harness.slurmjobs import SlurmJobs, new_name
from tests.e2e.harness.waiting import eventually
from tests.nightly import NIGHTLY

pytestmark = pytest.mark.timeout(300)
Object = dict[str, Any]
SERVICE = CHECKOUT / "examples/pods/service.yaml"
IGNORES_DISRUPTION = {
    "action": "Ignore",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}
POLICY = {
    "rules": [
        IGNORES_DISRUPTION,
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
    ]
}
CLAIM = {
    "storageClassName": "redbox-directory",
    "accessModes": ["ReadWriteMany"],
    "resources": {"requests": {"storage": "1Gi"}},
}
AT_RESULTS = [{"name": "results", "mountPath": "/results"}]
IN_HOME = [{"name": "home", "hostPath": {"path": HOME, "type": "Directory"}}]
AT_HOME = [{"name": "home", "mountPath": HOME}]


@pytest.fixture(scope="module", autouse=True)
def every_minute(lasting: SlurmPods) -> str:
    """A CronJob that is due while the other tests of this file run."""
    name = new_name()
    template = {"spec": {"template": {"spec": on_slurm(container("echo on time"))}}}
    spec = {"schedule": "* * * * *", "concurrencyPolicy": "Forbid", "jobTemplate": template}
    lasting.apply("CronJob", name, api="batch/v1", spec=spec)
    return name


def apply_job(pods: SlurmPods, script: str, pod: Object | None = None, *, name: str = "", **spec: Any) -> str:
    """A Job whose pods run this; its name. Fields of the pod are in `pod`."""
    name, mounts = name or new_name(), (pod or {}).pop("mounts", [])
    template = {"spec": on_slurm(container(script, volumeMounts=mounts), **(pod or {}))}
    pods.apply("Job", name, api="batch/v1", spec={"podFailurePolicy": POLICY, "template": template, **spec})
    return name


def finished(pods: SlurmPods, name: str, kind: str = "Complete") -> Object:
    """The Job's status once it has this condition."""

    def look() -> Object | None:
        status: Object = pods.kubectl.get("job", name, USER).get("status", {})
        held = {row["type"] for row in status.get("conditions", []) if row["status"] == "True"}
        return status if kind in held else None

    return eventually(look, what=f"{name} being {kind}")


def selected(pods: SlurmPods, selector: str) -> list[Object]:
    return pods.kubectl.list("pods", USER, labels=selector)


def pods_of(pods: SlurmPods, job: str) -> list[Object]:
    return selected(pods, f"batch.kubernetes.io/job-name={job}")


def running_pod(pods: SlurmPods, job: str) -> SlurmPod:
    """The one pod of a Job, once it runs."""

    def look() -> SlurmPod | None:
        running = [pod for pod in pods_of(pods, job) if pod.get("status", {}).get("phase") == "Running"]
        return pods.of(running[0]["metadata"]["name"]) if running else None

    return eventually(look, what=f"a running pod of {job}")


def states_of(pods: SlurmPods, job_id: str) -> set[str]:
    shown = pods.login.run("sacct", "-XnP", "-o", "State", "-j", job_id).stdout
    return {line.split()[0] for line in shown.splitlines()}


def test_a_job_with_three_completions_completes(pods: SlurmPods) -> None:
    script = 'echo "index $JOB_COMPLETION_INDEX"'
    name = apply_job(pods, script, completions=3, parallelism=3, completionMode="Indexed")
    status = finished(pods, name, "Complete")
    assert (status["succeeded"], status.get("failed", 0)) == (3, 0)
    logs = {pods.of(pod["metadata"]["name"]).log() for pod in pods_of(pods, name)}
    assert logs == {f"index {index}\n" for index in range(3)}


def test_an_exit_code_of_the_policy_fails_the_job_at_once(pods: SlurmPods) -> None:
    name = apply_job(pods, "exit 42", completions=3, parallelism=1, backoffLimit=6)
    status = finished(pods, name, "Failed")
    failed = next(row for row in status["conditions"] if row["type"] == "Failed")
    assert failed["reason"] == "PodFailurePolicy"
    assert [ended(pod["status"])["exitCode"] for pod in pods_of(pods, name)] == [42]


def test_a_job_that_is_suspended_ends_its_slurm_job_and_completes_once_it_is_resumed(pods: SlurmPods) -> None:
    mark = f"{HOME}/{new_name()}"
    script = f"[ ! -e {mark} ] || exit 0; : > {mark}; {FOREVER}"
    try:
        name = apply_job(pods, script, {"volumes": IN_HOME, "mounts": AT_HOME})
        first = running_pod(pods, name).job_id
        suspend(pods, name, now=True)
        eventually(lambda: not pods_of(pods, name), what="the end of its pod")
        finished(pods, name, "Suspended")
        eventually(lambda: not states_of(pods, first) & {"RUNNING", "PENDING"}, what="the end of its job")
        suspend(pods, name, now=False)
        status = finished(pods, name)
    finally:
        pods.login.run("rm", "-f", mark)
    assert (status["succeeded"], status.get("failed", 0)) == (1, 0)
    assert pods.of(pods_of(pods, name)[0]["metadata"]["name"]).job_id != first


def suspend(pods: SlurmPods, name: str, *, now: bool) -> None:
    pods.kubectl.patch("job", name, {"spec": {"suspend": now}}, USER)


def test_a_node_lost_under_a_job_makes_another_pod_and_is_no_failure(bed: Bed, pods: SlurmPods) -> None:
    mark = f"{HOME}/{new_name()}"
    script = f"[ ! -e {mark} ] || exit 0; : > {mark}; {FOREVER}"
    annotations = {"redbox.dev/constraint": "gpu"}  # n3 alone has it
    template: Object = {
        "metadata": {"annotations": annotations},
        "spec": on_slurm(container(script, volumeMounts=AT_HOME), volumes=IN_HOME),
    }
    name = new_name()
    policy = {"rules": [IGNORES_DISRUPTION]}
    spec = {"backoffLimit": 0, "podFailurePolicy": policy, "template": template}
    update = ("scontrol", "update", "nodename=n3")
    try:
        pods.apply("Job", name, api="batch/v1", spec=spec)
        lost = running_pod(pods, name)
        pods.login.run(*update, "state=down", "reason=lost")
        status = lost.ends()
        assert (status["phase"], status["reason"]) == ("Failed", "NodeLost")
        assert condition(status, "DisruptionTarget")["reason"] == "NodeLost"
        pods.login.run(*update, "state=resume", check=False)  # it may have come back by itself
        finished(pods, name)
    finally:
        pods.login.run(*update, "state=resume", check=False)
        pods.login.run("rm", "-f", mark)
    eventually(lambda: states_of(pods, lost.job_id) == {"NODE_FAIL"}, what="its row in sacct")
    eventually(lambda: not {row for row in left_behind(bed) if row.startswith("n3")}, what="a clean node")


def test_a_pod_that_its_node_cannot_launch_is_replaced_and_is_no_failure(bed: Bed, pods: SlurmPods) -> None:
    """Its prolog fails there once: slurmd has Slurm cancel what must not be requeued, and drains the node."""
    name = new_name()
    prolog, mark = "/etc/slurm/fails-once", f"{HOME}/{name}"
    is_ours = f'/usr/bin/scontrol -o show job "$SLURM_JOB_ID" | grep -q " JobName={name}-"'
    for node in NODES:
        bed.host(node).write(
            prolog, f"#!/bin/sh\n{is_ours} || exit 0\n! mkdir {mark} 2>/dev/null\n", mode=0o755
        )
    try:
        with configured(bed, f"Prolog={prolog}"):
            policy = {"rules": [IGNORES_DISRUPTION]}
            apply_job(pods, "echo launched", name=name, backoffLimit=0, podFailurePolicy=policy)
            status = finished(pods, name)
    finally:
        pods.login.run("rm", "-rf", mark)
        for node in NODES:
            bed.host(node).run("rm", "-f", prolog)
        resume_what_slurm_drained(bed)
    assert (status["succeeded"], status.get("failed", 0)) == (1, 0)
    ends = {pod["status"]["phase"]: pods.of(pod["metadata"]["name"]) for pod in pods_of(pods, name)}
    failed, succeeded = ends["Failed"].status, ends["Succeeded"]
    assert (failed["reason"], condition(failed, "DisruptionTarget")["status"]) == ("LaunchFailed", "True")
    assert ended(failed)["reason"] == "LaunchFailed"
    eventually(lambda: states_of(pods, ends["Failed"].job_id) == {"CANCELLED"}, what="its row in sacct")
    assert succeeded.log() == "launched\n"


def test_a_job_is_made_from_a_cronjob(pods: SlurmPods, every_minute: str) -> None:
    name = new_name()
    pods.made.append(("Job", name))
    pods.kubectl("create", "job", name, f"--from=cronjob/{every_minute}", f"--namespace={USER}")
    assert finished(pods, name)["succeeded"] == 1
    assert pods.of(pods_of(pods, name)[0]["metadata"]["name"]).log() == "on time\n"


def test_a_deployment_gets_ready_is_scaled_and_rolled_to_another_revision(pods: SlurmPods) -> None:
    name = new_name()
    main = container(
        f": > /tmp/ready; {FOREVER}",
        readinessProbe={"exec": {"command": ["cat", "/tmp/ready"]}, "periodSeconds": 1},
        env=[{"name": "REVISION", "value": "1"}],
    )
    template = {"metadata": {"labels": {"app": name}}, "spec": on_slurm(main, restartPolicy="Always")}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}
    pods.apply("Deployment", name, api="apps/v1", spec=spec)
    is_rolled_out(pods, name)
    (first,) = selected(pods, f"app={name}")
    change = f"--namespace={USER}"
    pods.kubectl("scale", "deployment", name, "--replicas=2", change)
    is_rolled_out(pods, name)
    scaled = selected(pods, f"app={name}")
    assert {ready_of(pod) for pod in scaled} == {"True"}
    assert first["metadata"]["uid"] in {pod["metadata"]["uid"] for pod in scaled}
    pods.kubectl("set", "env", f"deployment/{name}", "REVISION=2", change)
    is_rolled_out(pods, name)
    eventually(lambda: len(selected(pods, f"app={name}")) == len(scaled), what="the end of the old pods")
    rolled = selected(pods, f"app={name}")
    revisions = {pod["spec"]["containers"][0]["env"][0]["value"] for pod in rolled}
    assert (revisions, {ready_of(pod) for pod in rolled}) == ({"2"}, {"True"})
    for pod in scaled:
        assert not pods.of(pod["metadata"]["name"]).manifest
        pods.of(pod["metadata"]["name"]).has_no_live_job()


def test_a_service_leads_to_two_servers_with_one_port_on_one_node(bed: Bed, pods: SlurmPods) -> None:
    """The example, with the tests' image and one node."""
    upgrade(bed, f"slurmClusters.{SLURM_CLUSTER}.pods.routed=true")
    deployment, service = yaml.safe_load_all(SERVICE.read_text())
    template = deployment["spec"]["template"]
    template["metadata"]["annotations"]["redbox.dev/options"] = "--nodelist=n1"
    template["spec"]["containers"][0]["image"] = IMAGE
    for each in (deployment, service):
        each["metadata"]["namespace"] = USER
    pods.apply_all(deployment, service)
    is_rolled_out(pods, "web")
    names = {pod["metadata"]["name"] for pod in pods.kubectl.list("pods", USER, labels="app=web")}
    assert len(names) == 2
    pages = {f"I am {name}" for name in names}
    address = pods.kubectl.get("service", "web", USER)["spec"]["clusterIP"]
    answered: set[str] = set()

    def all_have_answered() -> bool:
        ask = ("curl", "--silent", "--fail", "--max-time", "10", f"http://{address}/")
        answered.add(bed.host("k1").run(*ask, check=False).stdout.strip())
        return answered >= pages

    eventually(all_have_answered, what="both pages")
    if NIGHTLY:  # the usual bed has no DNS
        ensure_dns(bed, Progress.silent())
        with clients(bed, pods.kubectl, new_name()) as inside:
            eventually(lambda: {*inside.pages(f"web.{USER}")} <= pages, what="the pages by name, in pods")
    slices = pods.kubectl.list("endpointslices", USER, labels="kubernetes.io/service-name=web")
    ends = {
        (endpoint["addresses"][0], port["port"])
        for each in slices
        for endpoint in each["endpoints"] or ()
        for port in each["ports"]
    }
    assert len({node for node, _ in ends}) == 1
    assert len(ends) == 2
    for name in names:
        pods.of(name).has_event("PortsChosen", "port 8080 is ")


def is_rolled_out(pods: SlurmPods, name: str) -> None:
    pods.kubectl("rollout", "status", f"deployment/{name}", f"--namespace={USER}", "--timeout=110s")


def ready_of(pod: Object) -> object:
    return condition(pod["status"], "Ready").get("status")


def test_claims_are_shared_by_three_pods_at_once_and_one_is_retained(pods: SlurmPods) -> None:
    """Each pod waits for a file of each other one; of the claim that is retained the folder stays."""
    names = {"results": new_name(), "kept": new_name()}
    for claim in names.values():
        pods.apply("PersistentVolumeClaim", claim, spec=CLAIM)
    volumes = [
        {"name": volume, "persistentVolumeClaim": {"claimName": claim}} for volume, claim in names.items()
    ]
    mounts = [{"name": volume, "mountPath": f"/{volume}"} for volume in names]
    script = (
        ": > /kept/$0; echo $0 > /results/$0; "
        "while [ $(ls /results | busybox wc -l) -lt 3 ]; do sleep 0.2; done; cat /results/*"
    )
    three = [
        pods.run({**container(volumeMounts=mounts), "command": ["sh", "-c", script, letter]}, volumes=volumes)
        for letter in "abc"
    ]
    for pod in three:
        assert pod.ends()["phase"] == "Succeeded"
        assert pod.log() == "a\nb\nc\n"
    bound = {volume: volume_of(pods, claim) for volume, claim in names.items()}
    policy = '{"spec": {"persistentVolumeReclaimPolicy": "Retain"}}'
    pods.kubectl("patch", "persistentvolume", bound["kept"], f"--patch={policy}")
    for pod in three:
        pod.delete()
    pods.kubectl("delete", "pvc", *names.values(), f"--namespace={USER}", "--timeout=90s")
    is_gone(pods, bound["results"])
    assert folders_of(pods, names["results"]) == ""
    assert f"{USER}-{names['kept']}-" in folders_of(pods, names["kept"])
    pods.kubectl("delete", "persistentvolume", bound["kept"], "--wait=false")
    is_gone(pods, bound["kept"])
    kept = folders_of(pods, names["kept"]).split()
    assert pods.login.run("ls", *kept).stdout == "a\nb\nc\n"
    pods.login.run("rm", "-r", *kept, user=USER)


def volume_of(pods: SlurmPods, claim: str) -> str:
    return str(pods.kubectl.get("pvc", claim, USER)["spec"]["volumeName"])


def is_gone(pods: SlurmPods, volume: str) -> None:
    eventually(
        lambda: not pods.kubectl.get("persistentvolume", volume),
        what=f"the end of {volume}",
    )


def folders_of(pods: SlurmPods, claim: str) -> str:
    return pods.login.run("sh", "-c", f"ls -d {HOME}/redbox/volumes/{USER}-{claim}-*", check=False).stdout


def test_a_workflow_of_five_jobs_and_a_slurmjob_hands_on_its_files_in_one_claim(
    pods: SlurmPods, jobs: SlurmJobs
) -> None:
    claim = new_name()
    pods.apply("PersistentVolumeClaim", claim, spec=CLAIM)
    volumes = [{"name": "results", "persistentVolumeClaim": {"claimName": claim}}]

    def step(script: str) -> str:
        return apply_job(pods, f"cd /results; {script}", {"volumes": volumes, "mounts": AT_RESULTS})

    finished(pods, step("busybox seq 1 100 > numbers"))
    halves = [
        step("busybox head -n 50 numbers > low"),
        step("busybox tail -n 50 numbers > high"),
    ]
    for half in halves:
        finished(pods, half)
    uid = pods.kubectl.get("pvc", claim, USER)["metadata"]["uid"]
    folder = f"{HOME}/redbox/volumes/{USER}-{claim}-{uid}"
    both = jobs.apply(f"cd {folder} && cat high low > both && wc -l < both")
    assert both.finishes()["phase"] == "Succeeded"
    finished(pods, step("busybox awk '{ total += $1 } END { print total }' both > total"))
    report = step('echo "the sum is $(cat total)"')
    finished(pods, report)
    assert pods.of(pods_of(pods, report)[0]["metadata"]["name"]).log() == "the sum is 5050\n"


def test_a_cronjob_makes_its_jobs_by_its_schedule(pods: SlurmPods, every_minute: str) -> None:
    def last_success() -> object:
        return pods.kubectl.get("cronjob", every_minute, USER)["status"].get("lastSuccessfulTime")

    assert eventually(last_success, what="a job of the schedule")
