"""Containers as Slurm jobs on the bed: real Apptainer, images from files, by HTTP and from a registry."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import pytest

from redbox.agents.pool import AgentPool
from redbox.core.workload_manager import JobAction, SubmitRejected
from redbox.slurm.slurm_manager import SlurmManager
from redbox.slurm.submit.private_folder import private_folder
from redbox_bed.bed import Bed
from redbox_bed.hosts.host import Host
from tests.e2e.harness.container_image import BUILD, IMAGE, SHOW
from tests.e2e.harness.login_node import ALICE, CAROL, HostTransport
from tests.e2e.harness.slurm_release import skip_without_pmix
from tests.e2e.harness.slurm_submits import Submitted, output, submission, submit


@pytest.fixture
def login(bed: Bed) -> Host:
    return bed.host("login")


@pytest.fixture
def image(login: Host) -> str:
    login.run("sh", "-c", BUILD, user="alice", timeout=120)
    return IMAGE


@pytest.fixture
async def manager(login: Host) -> AsyncIterator[SlurmManager]:
    async with AgentPool(HostTransport(login)) as pool:
        yield SlurmManager(pool, observer=CAROL)


HOSTILE = ["a b", "$(id)", "`id`", "'\"", "\n#SBATCH --wait", "cr\r\nlf", "*", "-c", "", "$HOME", "\\n", "ü€"]


async def run(
    manager: SlurmManager, login: Host, fields: Mapping[str, object], **request: Any
) -> tuple[Submitted, str, str]:
    """Run it to a good end; what it wrote to stdout and to stderr."""
    job = await submit(manager, container=fields, **request)
    end = await job.ended()
    out, err = output(login, job), output(login, job, "slurm-{id}.err")
    assert (end.state, err) == ("COMPLETED", ""), (end, out, err)
    return job, out, err


async def test_what_was_asked_for_arrives_as_argv_in_the_container(
    manager: SlurmManager, login: Host, image: str
) -> None:
    _, out, _ = await run(manager, login, {"image": image, "args": HOSTILE})
    assert out == "".join(f"<{word}>" for word in HOSTILE)
    _, out, _ = await run(
        manager, login, {"image": image, "command": ["sh", "-c", SHOW, "sh"], "args": HOSTILE}
    )
    assert out == "".join(f"<{word}>" for word in HOSTILE)


async def test_env_arrives_exactly_also_with_a_clean_environment(
    manager: SlurmManager, login: Host, image: str
) -> None:
    env = {"PATH": "/mine:/bin", "TRICKY": "a,b\nc'\"$(id)`id`\\ü ", "EMPTY": ""}
    show = 'printf "%s|%s|%s|%s" "$PATH" "$TRICKY" "${EMPTY-unset}" "${SLURM_JOB_ID:+set}"'
    for options, slurm in (({}, "set"), ({"cleanEnv": True}, "")):
        container = {"image": image, "command": ["/bin/sh", "-c", show], "options": options}
        _, out, _ = await run(manager, login, container, env=env)
        assert out == f"{env['PATH']}|{env['TRICKY']}||{slurm}"


async def test_the_containers_exit_code_is_the_jobs(manager: SlurmManager, image: str) -> None:
    job = await submit(manager, container={"image": image, "command": ["sh", "-c", "exit 42"]})
    end = await job.ended()
    assert (end.state, end.exit_code) == ("FAILED", 42)


@pytest.mark.parametrize(
    ("options", "command", "shown"),
    [
        ({"fakeRoot": True}, "id -u", "0\n"),
        ({"pid": True}, "[ $$ -lt 100 ] && echo alone", "alone\n"),
        ({"ipc": True, "noPrivs": True}, "echo ok", "ok\n"),
        ({"hostName": "box", "fakeRoot": True}, "hostname", "box\n"),
        ({"contain": True}, "ls -A /tmp", ""),
        ({"binds": ["/home/alice/redbox-tests:/mnt:ro"]}, "ls /mnt/image.sif", "/mnt/image.sif\n"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
@pytest.mark.usefixtures("image")
async def test_the_switches_do_what_they_say(
    manager: SlurmManager, login: Host, options: dict[str, object], command: str, shown: str
) -> None:
    container = {"image": IMAGE, "command": ["sh", "-c", command], "options": options}
    job = await submit(manager, container=container)
    end = await job.ended()
    assert (end.state, output(login, job)) == ("COMPLETED", shown), output(login, job, "slurm-{id}.err")


@pytest.mark.parametrize(
    ("options", "env", "shown"),
    [
        ({}, {}, "0 none\n"),
        ({"gpus": "nvidia"}, {}, "0 nvidia0 nvidia1\n"),
        ({"gpus": "nvidia", "cleanEnv": True}, {}, "0 nvidia0 nvidia1\n"),
        ({"gpus": "nvidia", "cleanEnv": True}, {"CUDA_VISIBLE_DEVICES": "own"}, "own nvidia0 nvidia1\n"),
    ],
    ids=["not asked for", "asked for", "with a clean environment", "with an env that says which"],
)
@pytest.mark.usefixtures("image")
async def test_gpus_that_slurm_gave_are_seen_where_they_are_asked_for(
    manager: SlurmManager, login: Host, options: dict[str, object], env: dict[str, str], shown: str
) -> None:
    # No driver is here: the devices are, and which of them may be opened is Slurm's business.
    show = (
        'cd /dev; [ ! -e nvidia0 ] || there=$(echo nvidia[0-9]); echo "$CUDA_VISIBLE_DEVICES ${there:-none}"'
    )
    container = {"image": IMAGE, "command": ["sh", "-c", show], "options": {"contain": True, **options}}
    job = await submit(
        manager, container=container, env=env, partition="GPU_big", resources={"gpusPerNode": "1"}
    )
    end = await job.ended()
    assert (end.state, output(login, job)) == ("COMPLETED", shown), output(login, job, "slurm-{id}.err")


async def test_tasks_are_started_by_srun_each_with_its_rank(
    manager: SlurmManager, login: Host, image: str
) -> None:
    container = {"image": image, "command": ["sh", "-c", 'echo "rank $SLURM_PROCID of $SLURM_NTASKS"']}
    _, out, _ = await run(manager, login, container, resources={"tasks": 3, "nodes": 3})
    assert sorted(out.splitlines()) == [f"rank {rank} of 3" for rank in range(3)]


async def test_mpi_ranks_get_what_they_find_each_other_by(
    manager: SlurmManager, bed: Bed, login: Host, image: str
) -> None:
    skip_without_pmix(bed)
    container = {
        "image": image,
        "command": ["sh", "-c", 'echo "$PMIX_RANK ${PMIX_NAMESPACE:+together}"'],
        "options": {"mpi": "pmix"},
    }
    _, out, _ = await run(manager, login, container, resources={"tasks": 3})
    assert sorted(out.splitlines()) == ["0 together", "1 together", "2 together"]


@pytest.mark.parametrize("kind", ["pmi2", "none", "nonsense"])
async def test_a_kind_of_mpi_that_starts_singletons_is_refused(
    manager: SlurmManager, bed: Bed, image: str, kind: str
) -> None:
    outcome = await manager.submit(ALICE, submission(container={"image": image, "options": {"mpi": kind}}))
    assert isinstance(outcome, SubmitRejected)
    assert ("pmix" if bed.plan.options.release.has_pmix else "none") in outcome.detail


# ------------------------------------------------------------------------------------------ pulled images
REGISTRY = r"""
import base64, hashlib, http.server, json, sys
sif = open(sys.argv[1], "rb").read()
config = b"{}"
digest = lambda data: "sha256:" + hashlib.sha256(data).hexdigest()
manifest = json.dumps({
    "schemaVersion": 2,
    "mediaType": "application/vnd.oci.image.manifest.v1+json",
    "config": {
        "mediaType": "application/vnd.sylabs.sif.config.v1+json",
        "digest": digest(config), "size": len(config),
    },
    "layers": [{
        "mediaType": "application/vnd.sylabs.sif.layer.v1.sif", "digest": digest(sif), "size": len(sif),
        "annotations": {"org.opencontainers.image.title": "image.sif"},
    }],
}).encode()
blobs = {digest(sif): sif, digest(config): config}
wanted = "Basic " + base64.b64encode(b"alice:" + sys.argv[2].encode()).decode()

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self, body=True):
        print(self.command, self.path, flush=True)
        if self.path.startswith("/plain/"):
            return self.send(200, sif, "application/octet-stream", body)
        if self.headers.get("Authorization") != wanted:
            return self.send(401, b"{}", "application/json", body, {"WWW-Authenticate": 'Basic realm="bed"'})
        if self.path == "/v2/":
            return self.send(200, b"{}", "application/json", body)
        if "/manifests/" in self.path:
            extra = {"Docker-Content-Digest": digest(manifest)}
            return self.send(200, manifest, "application/vnd.oci.image.manifest.v1+json", body, extra)
        blob = blobs.get(self.path.rpartition("/")[2])
        return self.send(200 if blob is not None else 404, blob or b"{}", "application/octet-stream", body)
    def do_HEAD(self):
        self.do_GET(body=False)
    def send(self, status, data, kind, body, extra={}):
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **extra}.items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(data)
    def log_message(self, *arguments):
        pass
http.server.ThreadingHTTPServer(("10.77.0.10", 5000), Handler).serve_forever()
"""
PASSWORD = "p'a$(id) \"s"


@pytest.fixture
def registry(login: Host, image: str) -> Iterator[str]:
    """A registry on the login host that wants a password; the file that it writes its requests to."""
    log = "/home/alice/redbox-tests/registry.log"
    login.write("/tmp/registry.py", REGISTRY)
    with login.popen(
        "sh", "-c", f"exec python3 /tmp/registry.py {image} {shlex.quote(PASSWORD)} >{log}"
    ) as server:
        login.run("sh", "-c", "until curl -s -o /dev/null http://10.77.0.10:5000/plain/; do sleep 0.1; done")
        login.run("sh", "-c", f": >{log}; rm -rf /home/alice/.cache/redbox /home/alice/.apptainer/cache")
        yield log
        os.killpg(server.pid, signal.SIGKILL)


async def test_an_image_of_a_url_is_pulled_once_by_all_tasks(
    manager: SlurmManager, login: Host, registry: str
) -> None:
    container = {"image": "http://10.77.0.10:5000/plain/image.sif", "args": ["here"]}
    job = await submit(manager, container=container, array="0-5")
    end = await job.ended()
    assert {task.exit_code for task in end.tasks} == {0}
    assert login.run("grep", "-c", "GET", registry).stdout == "1\n"


@pytest.mark.usefixtures("registry")
async def test_a_registrys_password_is_in_no_script_no_log_and_no_file_afterwards(
    manager: SlurmManager, login: Host
) -> None:
    container = {
        "image": "oras://10.77.0.10:5000/app:1",
        "args": ["here"],
        "registry": {"username": "alice", "password": PASSWORD},
    }
    job = await submit(manager, container=container, env={"APPTAINER_NOHTTPS": "1"}, hold=True)
    directory = str(job.accepted.working_directory)
    hidden = private_folder(directory, job.submission.mark)
    assert (
        login.run("stat", "-c", "%a %U", hidden, f"{hidden}/registry.sh").stdout == "700 alice\n600 alice\n"
    )
    script = login.run("scontrol", "write", "batch_script", job.id, "-", user="alice").stdout
    shown = login.run("scontrol", "show", "job", job.id).stdout
    assert PASSWORD not in script + shown
    await manager.act(job.handle, JobAction.RELEASE)
    end = await job.ended()
    assert (end.state, output(login, job)) == ("COMPLETED", "<here>"), output(login, job, "slurm-{id}.err")
    assert login.run("sh", "-c", f"grep -rlF {shlex.quote(PASSWORD)} {directory} || true").stdout == ""
    assert not login.run("ls", "-A", hidden, check=False).stdout


async def test_a_job_that_is_cancelled_before_it_starts_leaves_no_password_behind(
    manager: SlurmManager, login: Host
) -> None:
    container = {"image": "oras://10.77.0.10:5000/app:3", "registry": {"username": "a", "password": PASSWORD}}
    job = await submit(manager, container=container, hold=True)
    directory = str(job.accepted.working_directory)
    login.run("scancel", job.id)
    await manager.tidy(ALICE, job.submission.mark, directory)
    assert login.run("ls", "-A", directory).stdout == ""


@pytest.mark.usefixtures("registry")
async def test_a_wrong_password_is_the_registrys_own_refusal(manager: SlurmManager, login: Host) -> None:
    container = {
        "image": "oras://10.77.0.10:5000/app:2",
        "registry": {"username": "alice", "password": "wrong"},
    }
    job = await submit(manager, container=container, env={"APPTAINER_NOHTTPS": "1"})
    end = await job.ended()
    assert (end.state, end.exit_code) == ("FAILED", 125)
    assert "oras://10.77.0.10:5000/app:2 could not be pulled" in output(login, job, "slurm-{id}.err")
