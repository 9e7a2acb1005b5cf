"""Into the job of a SlurmJob by kubectl, and to its ports by a Service, under both ways of delivery."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
import yaml

from redbox_bed.bed import Bed
from redbox_bed.core.errors import BedError
from redbox_bed.core.places import CHECKOUT
from redbox_bed.core.progress import Progress
from redbox_bed.hosts.host import Host
from redbox_bed.images.node_images import BUSYBOX
from redbox_bed.kube.cluster_dns import ensure_dns
from tests.e2e.harness.container_image import BUILD, IMAGE
from tests.e2e.harness.ingress import controller
from tests.e2e.harness.network_policies import clients, enforced
from tests.e2e.harness.port_forward import PortForward, port_forward
from tests.e2e.harness.session_parts import Part, parts
from tests.e2e.harness.sessions import Processes, processes_on_nodes, sessions
from tests.e2e.harness.slurmjobs import Applied, SlurmJobs, new_name
from tests.e2e.harness.waiting import WITHIN_S, eventually

NOTEBOOK = "notebook"
EXAMPLES = CHECKOUT / "examples"
HOST_NAME = "notebook.example.org"
PORT = 18888
ON_TWO_NODES = f"""#SBATCH --nodes=2 --nodelist=n1,n2 --ntasks-per-node=1
srun sh -c 'cd $(mktemp -d); hostname >index.html; exec python3 -m http.server {PORT}'
"""
FIRST, SECOND = 8080, 8081
PORTS_OF_BOTH = [
    {"name": "first", "port": FIRST, "targetPort": PORT},
    {"name": "second", "port": SECOND, "targetPort": PORT, "node": "n2"},
]


@pytest.fixture(scope="module", autouse=True)
def _sessions_are_allowed(delivery: str, bed: Bed) -> Iterator[None]:
    assert delivery
    with sessions(bed.host("login"), enabled=True):
        yield


@pytest.fixture(autouse=True)
def _no_process_stays_on_a_node(bed: Bed) -> Iterator[None]:
    """Set up before the test's jobs, and so looked at after their end."""
    before = processes_on_nodes(bed).keys()
    yield
    eventually(
        lambda: not processes_on_nodes(bed).keys() - before, what="the end of all of alice's processes"
    )


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


def test_a_service_and_an_ingress_reach_the_job_while_it_runs(
    bed: Bed, jobs: SlurmJobs, delivery: str
) -> None:
    """The examples of a notebook as they are; nginx is what an Ingress controller runs."""
    first, service = yaml.safe_load_all((EXAMPLES / "notebook.yaml").read_text())
    ingress, policy = yaml.safe_load_all((EXAMPLES / "notebook-ingress.yaml").read_text())
    job = jobs.apply(name=NOTEBOOK, **first["spec"])
    with job.kubectl.applied(job.namespace, service, ingress, policy):
        running = job.starts()
        page = f"I am alice, job {running['jobID']} on {running['nodes'][0]}"
        address = job("get", "service", NOTEBOOK, "--output=jsonpath={.spec.clusterIP}")
        node = bed.host("k1")
        eventually(lambda: fetched(node, address) == page, what="the page")
        with port_forward(job, f"service/{NOTEBOOK}", 80) as forward:
            eventually(lambda: forward.get() == page, what="the page through kubectl")
        with controller(node, bed.host("login"), job, NOTEBOOK) as entrance:
            eventually(lambda: entrance.get(HOST_NAME) == (200, page), what="the page by its name")
            assert entrance.get("other.example.org")[0] == 404
            assert entrance.speak(HOST_NAME, "typed") == ["101", "TYPED"]
            assert selected(job) == [f"{NOTEBOOK}-helper" if delivery == "Virtual" else job.pod]
            job.change(suspend=True)
            eventually(lambda: not fetched(node, address), what="the end of its endpoints")
            assert entrance.get(HOST_NAME)[0] == 502


@pytest.mark.nightly
def test_a_pod_reaches_the_job_by_the_name_of_its_service(bed: Bed, jobs: SlurmJobs) -> None:
    """`wget http://notebook`, as the example has it: the usual bed has no DNS."""
    ensure_dns(bed, Progress.silent())
    first, service = yaml.safe_load_all((EXAMPLES / "notebook.yaml").read_text())
    job = jobs.apply(name=NOTEBOOK, **first["spec"])
    with job.kubectl.applied(job.namespace, service), clients(bed, job.kubectl, new_name()) as inside:
        running = job.starts()
        pages = [f"I am alice, job {running['jobID']} on {running['nodes'][0]}"] * len(inside.pods)
        eventually(lambda: inside.pages(f"{NOTEBOOK}.{job.namespace}") == pages, what="the page by its name")


@pytest.mark.nightly(delivery="Virtual")
def test_a_dashboard_in_kubernetes_shows_what_a_job_measures(jobs: SlurmJobs) -> None:
    """The example as it is, but for what the bed has not: DNS, and a registry with busybox."""
    first, service, dashboard = yaml.safe_load_all((EXAMPLES / "dashboard.yaml").read_text())
    name = first["metadata"]["name"]
    job = jobs.apply(name=name, **first["spec"])
    with job.kubectl.applied(job.namespace, service):
        address = job("get", "service", name, "--output=jsonpath={.spec.clusterIP}")
        pod = dashboard["spec"]["template"]["spec"]
        pod["hostAliases"] = [{"ip": address, "hostnames": [name]}]
        pod["containers"][0]["image"] = BUSYBOX
        with job.kubectl.applied(job.namespace, dashboard):
            job("rollout", "status", "deployment/dashboard", "--timeout=110s")
            with port_forward(job, "deployment/dashboard", 8000) as forward:
                eventually(lambda: "step 3 loss 0.997" in forward.get(), what="the job's losses")


@pytest.mark.timeout(600)
@pytest.mark.skipif(
    not os.environ.get("NETWORK_POLICIES"), reason="NETWORK_POLICIES=1 builds and runs what enforces them"
)
def test_a_policy_lets_the_pods_of_one_namespace_into_the_job(bed: Bed, jobs: SlurmJobs) -> None:
    """The examples as they are, from both nodes of the cluster."""
    first, service = yaml.safe_load_all((EXAMPLES / "notebook.yaml").read_text())
    _, policy = yaml.safe_load_all((EXAMPLES / "notebook-ingress.yaml").read_text())
    (source,) = policy["spec"]["ingress"][0]["from"]
    let_in = source["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"]
    job = jobs.apply(name=NOTEBOOK, **first["spec"])
    with (
        enforced(bed, job.kubectl),
        clients(bed, job.kubectl, let_in) as inside,
        clients(bed, job.kubectl, new_name()) as outside,
        job.kubectl.applied(job.namespace, service),
    ):
        running = job.starts()
        pages = [f"I am alice, job {running['jobID']} on {running['nodes'][0]}"] * len(outside.pods)
        address = job("get", "service", NOTEBOOK, "--output=jsonpath={.spec.clusterIP}")
        eventually(lambda: outside.pages(address) == pages, what="the page, without a policy")
        with job.kubectl.applied(job.namespace, policy):
            eventually(lambda: not any(outside.pages(address)), what="the end of the others' way in")
            assert inside.pages(address) == pages
            assert not any(outside.pages(address))


def selected(job: Applied) -> list[str]:
    """The pods that the NetworkPolicy is for, by names of theirs that have its port.

    Nothing enforces it here: which pods and ports one means is all that can be seen.
    """
    policy = job.get("networkpolicy", NOTEBOOK)["spec"]
    labels = ",".join(f"{name}={value}" for name, value in policy["podSelector"]["matchLabels"].items())
    wanted = {port["port"] for rule in policy["ingress"] for port in rule["ports"]}
    pods = yaml.safe_load(job("get", "pods", f"--selector={labels}", "--output=yaml"))["items"]
    return [
        pod["metadata"]["name"]
        for pod in pods
        if wanted <= {port["name"] for port in pod["spec"]["containers"][0].get("ports", ())}
    ]


def fetched(node: Host, address: str, port: int = 80) -> str:
    ask = ("curl", "--silent", "--fail", "--max-time", "10", f"http://{address}:{port}/")
    return node.run(*ask, check=False, timeout=60).stdout.strip()


@pytest.mark.timeout(600)
def test_what_is_killed_ends_sessions_and_forwards_and_never_the_job(
    bed: Bed, jobs: SlurmJobs, enter: list[str], delivery: str
) -> None:
    """Each part in turn: no process of a session stays, and what begins afterwards works on both nodes."""
    job = jobs.apply(ON_TWO_NODES, ports=PORTS_OF_BOTH)
    ports = [
        {"port": port["port"], "name": port["name"], "targetPort": port["name"]} for port in PORTS_OF_BOTH
    ]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": job.name},
        "spec": {"selector": {"redbox.dev/slurmjob": job.name}, "ports": ports},
    }
    with job.kubectl.applied(job.namespace, service):
        job_id = job.starts()["jobID"]
        address = job("get", "service", job.name, "--output=jsonpath={.spec.clusterIP}")

        def works() -> bool:
            pages = [fetched(bed.host("k1"), address, port) for port in (FIRST, SECOND)]
            return pages == ["n1", "n2"] and entered(job, enter)

        eventually(works, what="a session and both ports")
        of_job = commands(processes_on_nodes(bed))
        for name, part in parts(bed, job, delivery).items():
            with running_session(job, enter) as session, forward_of(job, delivery) as forward:
                eventually(lambda: forward.get() == "n1", what=f"a forward before {name}")
                part.kill()
                check_end(bed, session, part, of_job, name)
                eventually(lambda: forward.has_ended or forward.get() == "n1", what=f"a forward after {name}")
            eventually(lambda: commands(processes_on_nodes(bed)) <= of_job, what=f"nothing left after {name}")
            eventually(works, what=f"a session and both ports after {name}")
            assert (job.status["phase"], job.status["jobID"]) == ("Running", job_id), name


def commands(processes: Processes) -> set[tuple[str, str]]:
    """What runs on which node: after a kill the same commands may have other pids."""
    return {(node, words) for (node, _), words in processes.items()}


def check_end(
    bed: Bed, session: subprocess.Popen[bytes], part: Part, of_job: set[tuple[str, str]], name: str
) -> None:
    """That the session of a part that was killed ends, or goes on, as it has to."""
    if part.session_goes_on:
        assert session.poll() is None, name
        end_session(bed, of_job)
    _, words = session.communicate(timeout=WITHIN_S)
    if part.says_why:
        assert session.returncode, name
        assert b"relay" in words or b"red-box" in words, (name, words)
    if part.is_kubectls:
        end_session(bed, of_job)  # a process in a container outlives its kubectl, as in any pod


def end_session(bed: Bed, of_job: set[tuple[str, str]]) -> None:
    for (node, pid), words in processes_on_nodes(bed).items():
        if (node, words) not in of_job:
            bed.host(node).run("kill", "-KILL", str(pid), check=False)


def forward_of(job: Applied, delivery: str) -> AbstractContextManager[PortForward]:
    """Under virtual delivery the pod's ports are those of the job's node."""
    return port_forward(job, job.pod, PORT if delivery == "Virtual" else FIRST)


def entered(job: Applied, enter: list[str]) -> bool:
    try:
        return run(job, enter, "echo", "in").strip() == "in"
    except BedError:
        return False


@contextmanager
def running_session(job: Applied, enter: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    words = ("exec", job.pod, "--", *enter, "sh", "-c", "echo begun; trap '' HUP; sleep 613; true")
    command = job.kubectl.command(f"--namespace={job.namespace}", *words)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as session:
        try:
            assert session.stdout is not None
            assert session.stdout.readline() == b"begun\n"
            yield session
        finally:
            session.kill()


def test_where_sessions_are_turned_off_each_way_says_so(
    bed: Bed, jobs: SlurmJobs, enter: list[str], delivery: str
) -> None:
    login = bed.host("login")
    job = jobs.apply("sleep 600", ports=PORTS_OF_BOTH[:1])
    job.starts()
    with sessions(login, enabled=False):
        eventually(lambda: "turned off" in refusal(job, enter) or None, what="the sentence")
        serving = f"{job.name}-helper" if delivery == "Virtual" else job.pod
        eventually(lambda: "turned off" in log_of(job, serving), what="the sentence in its log")
        if delivery == "Virtual":
            with port_forward(job, job.pod, PORT) as forward:
                assert not forward.get()
                assert "turned off" in forward.words()
        for words in (("exec", "any", "--", "true"), ("shell", "any"), ("forward", "any", str(PORT))):
            refused = login.run("redbox", *words, user="alice", check=False)
            assert refused.returncode, words
            assert "turned off" in refused.stderr, words


def log_of(job: Applied, pod: str) -> str:
    """Nothing while its container is only created."""
    try:
        return job("logs", pod)
    except BedError:
        return ""


def refusal(job: Applied, enter: list[str]) -> str:
    with pytest.raises(BedError) as raised:
        run(job, enter, "true")
    return str(raised.value)
