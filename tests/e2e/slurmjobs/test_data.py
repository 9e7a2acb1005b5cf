"""What goes into a SlurmJob and comes out: values of Secrets, long scripts, images, results, two clusters."""

from __future__ import annotations

import json
from collections.abc import Iterator
from hashlib import sha256

import pytest
import yaml

from redbox_bed import login_node
from redbox_bed.bed import Bed
from redbox_bed.core.places import CHECKOUT
from redbox_bed.delivery import KUBERNETES_NAME
from redbox_bed.hosts.host import Host
from redbox_bed.images.node_images import BUSYBOX
from redbox_bed.login_node import Rule
from tests.e2e.harness.container_image import BUILD, IMAGE
from tests.e2e.harness.slurmjobs import SlurmJobs, new_name
from tests.e2e.harness.volumes import CLAIM, FOLDER, VOLUME, volume_of
from tests.e2e.harness.waiting import eventually

DATABASE = CHECKOUT / "examples/database.yaml"
SERVER = """\
read -r user password statement
test "$user $password" = "postgres $POSTGRES_PASSWORD" && echo "ran $statement"
"""
CLIENT = """\
psql() {
    exec 3<>"/dev/tcp/$PGHOST/$PGPORT"
    echo "$PGUSER $PGPASSWORD ${*: -1}" >&3
    grep '^ran' <&3
}
"""
pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.usefixtures("delivery"),
    pytest.mark.nightly(delivery="Virtual"),
]


@pytest.fixture
def jobs(jobs: SlurmJobs) -> Iterator[SlurmJobs]:
    """And whatever Secrets and ConfigMaps they need."""
    yield jobs
    jobs.kubectl("delete", "secret,configmap", "--selector=app=redbox-test", "--namespace=alice")


def give(jobs: SlurmJobs, kind: str, **data: str) -> str:
    """A Secret or ConfigMap of alice's, for as long as the test runs."""
    name = new_name()
    create(jobs, kind, name, **data)
    return name


def create(jobs: SlurmJobs, kind: str, name: str, **data: str) -> None:
    metadata = {"name": name, "namespace": "alice", "labels": {"app": "redbox-test"}}
    field = "stringData" if kind == "Secret" else "data"
    jobs.kubectl.apply(json.dumps({"apiVersion": "v1", "kind": kind, "metadata": metadata, field: data}))


def into(folder: str, *sources: str, **more: str) -> dict[str, object]:
    claim = {"persistentVolumeClaim": {"claimName": CLAIM}}
    return {"from": list(sources), "volume": claim, "folder": folder, **more}


def test_results_come_into_the_volume_as_they_were(jobs: SlurmJobs, volume: Host) -> None:
    job = jobs.apply(
        "mkdir -p out/deep; echo 1 > out/a.dat; echo 2 > out/deep/b; chmod 750 out/deep/b\n"
        "ln -s a.dat out/link; echo no > out/a.txt",
        results=into("good/run", "out/*.dat", "out/deep"),
    )
    status = job.finishes()
    status = job.comes_to(results=eventually(lambda: job.status.get("results")))
    assert (status["phase"], status["results"]["outcome"]) == ("Succeeded", "Collected")
    found = volume.run("find", f"{VOLUME}/good/run", "-type", "f", "-printf", "%P %m\n").stdout.split("\n")
    assert {line.split()[0].rpartition("/")[2] for line in found if line} == {"a.dat", "b"}
    assert any(line.endswith("b 750") for line in found)


def test_results_come_into_a_volume_that_is_made_for_the_job_alone(jobs: SlurmJobs, bed: Bed) -> None:
    """The bed has nobody who makes volumes when they are asked for: one is there, of a class of its own."""
    name = new_name()
    node = volume_of(bed, name, storageClassName=name)
    template = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": name,
        "resources": {"requests": {"storage": "1Gi"}},
    }
    volume = {"ephemeral": {"volumeClaimTemplate": {"spec": template}}}
    try:
        job = jobs.apply("echo moo > moo.txt", results={"from": ["moo.txt"], "volume": volume})
        job.wait("condition=ResultsCollected")
        assert node.read(f"{FOLDER}/{name}/moo.txt") == b"moo\n"
        job.delete()
        eventually(lambda: not job.get("pvc", f"{job.pod}-results"), what="the end of its claim")
    finally:
        jobs.kubectl("delete", "persistentvolume", name, "--wait=false")


def test_results_of_a_failure_come_too_and_do_not_change_its_outcome(jobs: SlurmJobs, volume: Host) -> None:
    job = jobs.apply("echo why > core.txt; exit 4", results=into("bad", "core.txt", when="Failed"))
    status = job.finishes()
    assert (status["phase"], status["exitCode"]) == ("Failed", 4)
    assert eventually(lambda: job.status.get("results"))["outcome"] == "Collected"
    assert volume.read(f"{VOLUME}/bad/core.txt") == b"why\n"


@pytest.mark.usefixtures("volume")
def test_results_that_are_not_there_are_told_and_the_job_has_succeeded(jobs: SlurmJobs) -> None:
    job = jobs.apply("true", results=into("none", "never-written"))
    assert job.finishes()["phase"] == "Succeeded"
    results = eventually(lambda: job.status.get("results"))
    assert results["outcome"] == "Failed"
    assert "never-written" in results["message"]
    eventually(lambda: "ResultsFailed" in job.events(), what="an event that tells of it")
    assert job.conditions["ResultsCollected"] == ("False", "ResultsFailed")


def test_a_secret_reaches_the_job_and_no_object(jobs: SlurmJobs) -> None:
    value = "pass word$(x)'\""
    secret = give(jobs, "Secret", token=value)
    job = jobs.apply(
        'printf %s "$TOKEN" | sha256sum; printf "<%s>\\n" "$PLAIN" "$POD"',
        env=[
            {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": secret, "key": "token"}}},
            {"name": "PLAIN", "value": "$(TOKEN)"},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
    )
    job.finishes()
    digest, plain, pod = job.log().splitlines()
    assert digest.split()[0] == sha256(value.encode()).hexdigest()
    assert (plain, pod) == ("<$(TOKEN)>", f"<{job.pod}>")
    everything = job("get", "slurmjob,pod,configmap,event", "--output=json")
    assert "pass word" not in everything


def test_a_secret_that_is_missing_is_said_and_the_job_goes_on_once_it_is_there(jobs: SlurmJobs) -> None:
    name = new_name()
    job = jobs.apply(
        "echo $TOKEN", env=[{"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": name, "key": "token"}}}]
    )
    eventually(lambda: name in job.status.get("message", ""))
    create(jobs, "Secret", name, token="moo")
    assert job.finishes()["phase"] == "Succeeded"
    assert job.log() == "moo\n"


def test_a_script_of_900_kib_comes_from_a_config_map(jobs: SlurmJobs) -> None:
    script = "#!/bin/bash\necho moo\n" + ("#" * 79 + "\n") * (900 * 1024 // 80 - 3) + "echo end\n"
    scripts = give(jobs, "ConfigMap", script=script)
    job = jobs.apply(batchFrom={"configMapKeyRef": {"name": scripts, "key": "script"}})
    assert job.finishes()["phase"] == "Succeeded"
    assert job.log() == "moo\nend\n"


def test_a_container_runs_with_its_arguments_exactly(jobs: SlurmJobs, bed: Bed) -> None:
    bed.host("login").run("sh", "-c", BUILD, user="alice", timeout=120)
    arguments = ["a b", "$HOME", "'\"", "*", ""]
    job = jobs.apply(container={"image": IMAGE, "args": arguments})
    status = job.finishes()
    assert status["phase"] == "Succeeded"
    assert job.log() == "".join(f"<{word}>" for word in arguments)


def test_two_clusters_with_a_partition_of_one_name_are_two(jobs: SlurmJobs, bed: Bed) -> None:
    if "login2" not in {host.name for host in bed.plan.hosts}:
        pytest.skip("this bed has one Slurm cluster: `deploy/local/bed up --hpc2` makes two")
    login2 = bed.host("login2")
    login_node.install(login2, bed.places)
    manifest = login_node.introduce(
        login2,
        name="hpc2",
        cluster=KUBERNETES_NAME,
        issuer=jobs.kubectl.issuer(),
        keys=jobs.kubectl.keys(),
        rules=[Rule(namespace="alice", user="alice")],
    )
    login_node.restart(login2)
    jobs.kubectl.apply(manifest)
    try:
        one, two, open_ = (
            jobs.apply("hostname", cluster=cluster, partition="debug") for cluster in ("hpc1", "hpc2", None)
        )
        assert one.finishes()["cluster"] == "hpc1"
        assert two.finishes()["cluster"] == "hpc2"
        assert (one.log()[:1], two.log()) == ("n", "m1\n")
        message = eventually(lambda: open_.status.get("message"))
        assert "hpc1, hpc2" in message
    finally:
        jobs.clean()
        jobs.kubectl("delete", "slurmcluster", "hpc2", "--timeout=60s")


def test_a_job_uses_a_database_in_kubernetes_at_the_port_of_a_node(jobs: SlurmJobs, bed: Bed) -> None:
    """The example as it is, but for what the bed has not: a name of its node, and PostgreSQL at both ends."""
    first, service, database = yaml.safe_load_all(DATABASE.read_text())
    create(jobs, "Secret", "measurements", password=new_name())
    container = database["spec"]["template"]["spec"]["containers"][0]
    container |= {"image": BUSYBOX, "command": ["nc", "-ll", "-p", "5432", "-e", "sh", "-c", SERVER]}
    spec = first["spec"]
    spec["env"][0]["value"] = bed.host("k1").spec.address
    spec["batch"] = spec["batch"].replace("set -e\n", f"set -e\n{CLIENT}")
    with jobs.kubectl.applied("alice", service, database):
        jobs.kubectl(*("rollout", "status", "deployment/measurements", "--namespace=alice", "--timeout=110s"))
        job = jobs.apply(name=first["metadata"]["name"], **spec)
        assert job.finishes()["phase"] == "Succeeded"
        answers = job.log().splitlines()
    assert len(answers) == 12
    asked = f"SELECT count(*), min(loss) FROM losses WHERE job = '{job.status['jobID']}'"
    assert answers[-1] == f"ran {asked}"
