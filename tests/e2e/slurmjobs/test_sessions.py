"""Into the job of a SlurmJob by kubectl, and to its ports by a Service, under both ways of delivery."""

from __future__ import annotations

import re
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import yaml

from redbox.agents.transports.sudo import AGENT_PATH
from redbox_bed import login_node
from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from redbox_bed.core.progress import Progress
from redbox_bed.hosts.host import Host
from redbox_bed.kube import kube_cluster
from tests.e2e.harness.container_image import BUILD, IMAGE
from tests.e2e.harness.sessions import set_sessions
from tests.e2e.harness.slurmjobs import Applied, SlurmJobs, kill
from tests.e2e.harness.waiting import WITHIN_S, eventually

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
        assert forwarded(job) == f"of job {job_id}"
        job.change(suspend=True)
        eventually(lambda: not fetched(node, address), what="the end of its endpoints")
    finally:
        job("delete", "service", job.name)


def forwarded(job: Applied) -> str:
    """By kubectl port-forward of the Service."""
    command = job.kubectl.command(
        f"--namespace={job.namespace}", "port-forward", f"service/{job.name}", ":80"
    )
    with subprocess.Popen(command, stdout=subprocess.PIPE) as forward:
        try:
            assert forward.stdout is not None
            port = re.search(rb"127\.0\.0\.1:(\d+)", forward.stdout.readline())
            assert port is not None
            with urllib.request.urlopen(f"http://127.0.0.1:{int(port[1])}/index.html", timeout=10) as answer:
                return bytes(answer.read()).decode().strip()
        finally:
            forward.terminate()


def fetched(node: Host, address: str) -> str:
    ask = ("curl", "--silent", "--fail", "--max-time", "10", f"http://{address}/index.html")
    return node.run(*ask, check=False, timeout=30).stdout.strip()


SESSION = "613.25"
SLURM_NODES = ("n1", "n2", "n3")


def test_what_is_killed_ends_sessions_and_never_the_job(
    bed: Bed, jobs: SlurmJobs, enter: list[str], delivery: str
) -> None:
    """Each part in turn; no process of a session remains, and the next session begins."""
    job = jobs.apply("sleep 600")
    job_id = job.starts()["jobID"]
    eventually(lambda: entered(job, enter), what="a session")
    for part, kill_it in parts_of(bed, delivery).items():
        with running_session(job, enter) as session:
            kill_it()
            if part == "slurmctld":
                time.sleep(3)
                assert session.poll() is None, "the step is not slurmctld's"
                end_on_nodes(bed)
            _, words = session.communicate(timeout=WITHIN_S)
        if part in {"red-box", "agents"}:  # of the others no word can come
            assert session.returncode, part
            assert b"relay" in words or b"red-box" in words, (part, words)
        if part == "API server" and delivery == "Container":
            end_on_nodes(bed)  # a process in a container outlives its kubectl, as in any pod
        eventually(lambda: not left_on_nodes(bed), what=f"the end of all processes after {part}")
        eventually(lambda: entered(job, enter), what=f"a session after {part}")
        assert (job.status["phase"], job.status["jobID"]) == ("Running", job_id), part


def parts_of(bed: Bed, delivery: str) -> dict[str, Callable[[], None]]:
    login, controller = bed.host("login"), bed.host("ctl")

    def kill_redbox() -> None:
        login.kill(login_node.SERVICE)
        login_node.start(login)

    def kill_agents() -> None:
        agents = login.run("pgrep", "--uid=alice", "--full", AGENT_PATH).stdout.split()
        login.run("kill", "-KILL", *agents)

    def kill_slurmctld() -> None:
        controller.kill("slurmctld")
        bed.slurms[0].up()

    def kill_api_server() -> None:
        bed.host("k0").kill("kube-apiserver")
        kube_cluster.up(bed, Progress.silent())

    def kill_companion() -> None:
        for node in ("k1", "k2"):  # not the program of the session
            bed.host(node).run("sh", "-c", "kill -9 $(pgrep -f '[r]edbox-companion$')", check=False)

    return {
        "red-box": kill_redbox,
        "agents": kill_agents,
        "slurmctld": kill_slurmctld,
        **(
            {"resourced": partial(kill, bed, "redbox-resourced")}
            if delivery == "Virtual"
            else {"companion": kill_companion}
        ),
        "API server": kill_api_server,
    }


def entered(job: Applied, enter: list[str]) -> bool:
    try:
        return run(job, enter, "echo", "in").strip() == "in"
    except BedError:
        return False


@contextmanager
def running_session(job: Applied, enter: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    words = ("exec", job.pod, "--", *enter, "sh", "-c", f"echo begun; trap '' HUP; sleep {SESSION}; true")
    command = job.kubectl.command(f"--namespace={job.namespace}", *words)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as session:
        try:
            assert session.stdout is not None
            assert session.stdout.readline() == b"begun\n"
            yield session
        finally:
            session.kill()


def left_on_nodes(bed: Bed) -> str:
    return "".join(on_node(bed, node) for node in SLURM_NODES)


def end_on_nodes(bed: Bed) -> None:
    for node in SLURM_NODES:
        if pids := on_node(bed, node).split():
            bed.host(node).run("kill", "-KILL", *pids, check=False)


def on_node(bed: Bed, node: str) -> str:
    """The processes of the session there."""
    marker = f"[{SESSION[0]}]{SESSION[1:]}"
    return bed.host(node).run("pgrep", "-f", marker, check=False).stdout


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
