"""Into the job of a SlurmJob by kubectl, and to its ports by a Service, under both ways of delivery."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from redbox_bed.hosts.host import Host
from tests.e2e.harness.container_image import BUILD, IMAGE
from tests.e2e.harness.sessions import set_sessions
from tests.e2e.harness.slurmjobs import Applied, SlurmJobs, eventually

SERVES = "cd $(mktemp -d); echo of job $SLURM_JOB_ID > index.html; exec python3 -m http.server 18888"
PORTS = [{"name": "http", "port": 8080, "targetPort": 18888}]


@pytest.fixture(scope="module", autouse=True)
def _sessions_are_allowed(delivery: str, bed: Bed) -> Iterator[None]:
    assert delivery
    set_sessions(bed.host("login"), enabled=True)
    yield
    set_sessions(bed.host("login"), enabled=False)


@pytest.fixture
def enter(delivery: str) -> list[str]:
    """What stands before a command: a companion's container is not the job, a pod on a virtual node is."""
    return [] if delivery == "Virtual" else ["redbox-companion", "exec", "--"]


def run(job: Applied, enter: list[str], *command: str) -> str:
    return job("exec", job.pod, "--", *enter, *command)


def test_a_command_runs_in_the_job_as_its_user(jobs: SlurmJobs, enter: list[str]) -> None:
    job = jobs.apply("export HERE=1; cd /tmp; sleep 600")
    job_id = job.starts()["jobID"]
    shown = eventually(lambda: run(job, enter, "sh", "-c", "echo $SLURM_JOB_ID; id -un; hostname; pwd"))
    assert shown.split()[:2] == [job_id, "alice"]
    assert shown.split()[2] in {"n1", "n2", "n3"}
    with pytest.raises(BedError, match="exit code 7"):
        run(job, enter, "sh", "-c", "exit 7")
    assert job.status["phase"] == "Running"


def test_a_session_of_a_container_job_is_in_its_container(
    bed: Bed, jobs: SlurmJobs, enter: list[str]
) -> None:
    bed.host("login").run("sh", "-c", BUILD, user="alice", timeout=120)
    job = jobs.apply(container={"image": IMAGE, "command": ["sleep"], "args": ["600"]})
    job.starts()
    assert eventually(lambda: inside(job, enter)) == "/bin/busybox"


def inside(job: Applied, enter: list[str]) -> str:
    """The container's own file system; nothing while Apptainer only begins."""
    try:
        return run(job, enter, "sh", "-c", "[ -e /usr ] || echo /bin/busybox").strip()
    except BedError:
        return ""


def test_a_service_reaches_the_job_while_it_runs(bed: Bed, jobs: SlurmJobs) -> None:
    job = jobs.apply(SERVES, ports=PORTS)
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": job.name, "namespace": "alice"},
        "spec": {
            "selector": {"redbox.dev/slurmjob": job.name},
            "ports": [{"port": 80, "targetPort": "http"}],
        },
    }
    job.kubectl("apply", "--filename=-", stdin=yaml.safe_dump(service))
    try:
        job_id = job.starts()["jobID"]
        address = job("get", "service", job.name, "--output=jsonpath={.spec.clusterIP}")
        node = bed.host("k1")
        assert eventually(lambda: fetched(node, address), what="an answer") == f"of job {job_id}"
        job.change(suspend=True)
        eventually(lambda: not fetched(node, address), what="the end of its endpoints")
    finally:
        job("delete", "service", job.name)


def fetched(node: Host, address: str) -> str:
    ask = ("curl", "--silent", "--fail", "--max-time", "10", f"http://{address}/index.html")
    return node.run(*ask, check=False, timeout=30).stdout.strip()


def test_where_sessions_are_turned_off_the_sentence_says_so(
    bed: Bed, jobs: SlurmJobs, enter: list[str]
) -> None:
    job = jobs.apply("sleep 600")
    job.starts()
    set_sessions(bed.host("login"), enabled=False)
    try:
        eventually(lambda: "turned off" in refusal(job, enter) or None, what="the sentence")
    finally:
        set_sessions(bed.host("login"), enabled=True)


def refusal(job: Applied, enter: list[str]) -> str:
    with pytest.raises(BedError) as raised:
        run(job, enter, "true")
    return str(raised.value)
