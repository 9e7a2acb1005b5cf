"""From a pod's request to the files that its runner reads and the sbatch that starts it."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from redbox.agents.errors import SystemCallFailed
from redbox.agents.pool import AgentPool
from redbox.core.workload_manager import (
    Submission,
    SubmitAccepted,
    SubmitOutcome,
    SubmitRejected,
    SubmitUnavailable,
    SubmitUnknown,
)
from redbox.slurm.settings import SlurmSettings
from redbox.slurm.slurm_manager import SlurmManager
from redbox.slurm.submit import pod_files
from redbox.slurm.submit.pod_script import CANNOT_RUN, build_pod_script
from redbox.slurm.submit.private_folder import private_folder
from redbox_api.models import JobRequest
from tests.redbox.agents import harness
from tests.redbox.slurm.captured import output
from tests.redbox.slurm.fakes import ALICE, REDBOX, ScriptedAgents, done, late
from tests.redbox.slurm.submit.factories import container, files, request

MARK = "rb1.mark"
FOLDER = private_folder("/home/alice/work", MARK)
CACHE = "/home/alice/.cache/redbox/images"
RUNNER = b"# the runner\n"
SECRET_FILES = {"path": "d/password", "content": base64.b64encode(b"word").decode(), "mode": 0o755}


@pytest.fixture(autouse=True)
def _runner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_files, "runner_source", lambda: RUNNER)


def submission(asked: JobRequest, *, held: bool = False) -> Submission:
    return Submission(asked, MARK, "pod", "{home}/work", held=held)


async def submit(agents: ScriptedAgents, asked: JobRequest, *, held: bool = False) -> SubmitOutcome:
    manager = SlurmManager(agents, REDBOX, SlurmSettings(container_setup="module load apptainer"))
    return await manager.submit(ALICE, submission(asked, held=held))


# ------------------------------------------------------------------------------------------- the files


WITH_FILES = {
    "volumes": [
        {"name": "s", "files": {"secret": True, "files": [SECRET_FILES]}},
        {"name": "c", "files": {"files": [{"path": "run.sh", "content": "Og==", "mode": 0o555}]}},
        {"name": "e", "emptyDir": {}},
    ],
    "containers": [container(env=[{"name": "A", "value": "1"}, {"name": "IP", "fromNode": "podIP"}])],
    "registries": {"ghcr.io": {"username": "me", "password": "pass"}},
}


async def test_a_pods_files_are_where_only_its_user_reads_them() -> None:
    agents = ScriptedAgents({"sbatch": done("7\n")})
    outcome = await submit(agents, request(WITH_FILES))
    assert isinstance(outcome, SubmitAccepted)
    assert outcome.stdout == outcome.stderr == "/home/alice/work/runner-7.log"
    laid = {path.removeprefix(FOLDER + "/"): mode for path, mode in agents.modes.items()}
    assert laid == {"files/s/d/password": 0o600, "files/c/run.sh": 0o555, "pod.json": 0o600}
    assert agents.files[f"{FOLDER}/files/s/d/password"] == b"word"
    assert [path for path, _ in agents.directories] == [FOLDER, CACHE]


async def test_the_program_has_all_but_the_contents_of_files() -> None:
    agents = ScriptedAgents({"sbatch": done("7\n")})
    await submit(agents, request(WITH_FILES))
    program = json.loads(agents.files[f"{FOLDER}/pod.json"])
    assert program["registries"]["ghcr.io"]["password"] == "pass"
    assert program["volumes"][0]["files"] == {
        "secret": True,
        "files": [{"path": "d/password", "mode": 0o755, "source": 0}],
    }
    assert program["containers"][0]["env"] == [
        {"name": "A", "value": "1", "fromNode": None, "fromPort": None},
        {"name": "IP", "value": None, "fromNode": "podIP", "fromPort": None},
    ]
    assert program["paths"] == {
        "logs": "/home/alice/work",
        "cache": CACHE,
        "keepDays": 30,
        "imagesWithinS": 600.0,
        "inputs": "",
    }


async def test_nothing_secret_is_in_the_script_or_in_an_argument() -> None:
    agents = ScriptedAgents({"sbatch": done("7\n")})
    await submit(agents, request(WITH_FILES))
    seen = b"".join(script + " ".join(argv).encode() for _, argv, script, _ in agents.calls)
    assert b"word" not in seen
    assert b"pass" not in seen


async def test_the_runner_is_written_once_for_a_user() -> None:
    agents = ScriptedAgents({"sbatch": [done("7\n"), done("8\n")]})
    await submit(agents, request())
    (runner,) = [path for path in agents.files if path.startswith(f"{CACHE}/runner-")]
    assert agents.files[runner] == RUNNER
    agents.files[runner] = b"as it was written"
    agents.kept.clear()
    await submit(agents, request())
    assert agents.files[runner] == b"as it was written"
    assert f"runner={runner}" in agents.calls[-1][2].decode()


async def test_sbatch_starts_a_runner_that_is_never_requeued_and_says_where_it_writes() -> None:
    agents = ScriptedAgents({"sbatch": done("7\n")})
    await submit(agents, request(resources={"cpusPerTask": 2, "memPerNode": "1G", "time": "10"}))
    (argv,) = agents.called("sbatch")
    wanted = {"--no-requeue", "--output=runner-%j.log", "--cpus-per-task=2", "--mem=1G", "--time=10"}
    assert wanted <= {*argv}
    assert "--chdir=/home/alice/work" in argv


async def test_a_script_of_the_users_own_is_still_requeued_as_slurm_has_it() -> None:
    agents = ScriptedAgents({"sbatch": done("7\n")})
    await SlurmManager(agents, REDBOX).submit(
        ALICE, submission(JobRequest.model_validate({"batch": "#!/bin/sh\n"}))
    )
    assert "--no-requeue" not in agents.called("sbatch")[0]


async def test_where_the_output_is_named_the_runner_writes_there() -> None:
    agents = ScriptedAgents({"sbatch": done("7\n")})
    outcome = await submit(agents, request(output="mine-%j"))
    assert isinstance(outcome, SubmitAccepted)
    assert outcome.stdout == "/home/alice/work/mine-7"


REFUSED = done("", "sbatch: error: Invalid qos specification\n", 1)
DOWN = done("", "sbatch: error: Batch job submission failed: Unable to contact slurm controller\n", 1)


@pytest.mark.parametrize(
    ("answer", "held", "outcome", "removed"),
    [
        (REFUSED, False, SubmitRejected, [FOLDER]),
        (DOWN, False, SubmitUnavailable, [FOLDER]),
        (late(), False, SubmitUnknown, []),
        (
            REFUSED,
            True,
            SubmitRejected,
            [],
        ),  # the first submit, which may have made a job, has the same folder
    ],
)
async def test_the_files_of_a_pod_that_certainly_has_no_job_are_removed(
    answer: Any,
    held: bool,  # noqa: FBT001
    outcome: type,
    removed: list[str],
) -> None:
    agents = ScriptedAgents({"sbatch": answer})
    assert isinstance(await submit(agents, request(), held=held), outcome)
    assert agents.removed == removed


async def test_what_was_laid_out_in_part_is_removed() -> None:
    agents = ScriptedAgents(no_directory=SystemCallFailed(13, "Permission denied", "/home/alice/work"))
    refused = await submit(agents, request())
    assert isinstance(refused, SubmitRejected)
    assert "workingDirectory" in refused.detail
    assert agents.removed == [FOLDER]


async def test_a_kind_of_mpi_is_checked_against_what_the_cluster_has() -> None:
    agents = ScriptedAgents({"srun --mpi=list": done(output("24.11", "mpi.txt")), "sbatch": done("7\n")})
    assert isinstance(await submit(agents, request({"mpi": "pmix"})), SubmitAccepted)
    agents.kept.clear()
    refused = await submit(agents, request({"mpi": "pmi2"}))
    assert isinstance(refused, SubmitRejected)
    assert refused.detail.startswith("pod.mpi: ")


async def test_a_check_lays_nothing_out() -> None:
    words = "sbatch: Job 1 to start at 1795257600 using 1 processors on nodes n1 in partition debug\n"
    agents = ScriptedAgents({"sbatch": done("", words)})
    check = await SlurmManager(agents, REDBOX).check(ALICE, submission(request()))
    assert check.valid
    assert (agents.files, agents.directories) == ({}, [])
    assert "--test-only" in agents.called("sbatch")[0]


async def test_a_refused_pod_reaches_neither_agent_nor_slurm() -> None:
    agents = ScriptedAgents()
    refused = await submit(agents, request(array="0-3"))
    assert isinstance(refused, SubmitRejected)
    assert (agents.files, agents.called("sbatch")) == ({}, [])


# ------------------------------------------------------------------------------------------ the script


def run(script: str, *become: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*become, "/bin/sh"],
        input=script,
        env={"PATH": "/usr/bin:/bin", **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_script_becomes_the_runner_in_an_isolated_python(tmp_path: Path) -> None:
    runner = tmp_path / "it's a runner.py"
    runner.write_text(
        "import os, sys; print(os.getpid(), sys.argv[1], sys.flags.isolated, sys.flags.no_site)"
    )
    folder = tmp_path / "a folder with $(words)"
    folder.mkdir()
    script = build_pod_script(str(runner), str(folder), "export SET=up; echo $$\n")
    shell, words = run(script).stdout.splitlines()
    assert words == f"{shell} {folder} 1 1"


def test_the_administrators_lines_may_bring_a_python_along(tmp_path: Path) -> None:
    own = tmp_path / "python3"
    own.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
    own.chmod(0o755)
    runner = tmp_path / "runner.py"
    runner.write_text("import sys; print(sys.executable)")
    ended = run(
        build_pod_script(str(runner), str(tmp_path), f"PATH={shlex.quote(str(tmp_path))}:/usr/bin:/bin")
    )
    assert ended.stdout.strip() == sys.executable


def test_a_node_without_python_says_so_in_one_sentence(tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    (tmp_path / "uname").symlink_to("/usr/bin/uname")
    script = build_pod_script("/runner", "/f").replace("/usr/bin/python3", str(old))
    ended = run(script.replace("/usr/libexec/platform-python", str(old)), PATH=str(tmp_path))
    assert ended.returncode == CANNOT_RUN
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"red-box: on {os.uname().nodename} there is no Python 3.6 or newer")


@pytest.mark.parametrize("missing", ["runner", "folder"])
def test_a_node_that_lacks_a_file_system_says_which_folder_is_missing(tmp_path: Path, missing: str) -> None:
    there = tmp_path / "there"
    there.write_text("print('started')")
    paths = {"runner": str(there), "folder": str(tmp_path), missing: f"/nowhere/{missing}"}
    ended = run(build_pod_script(paths["runner"], paths["folder"]))
    assert (ended.returncode, ended.stdout) == (CANNOT_RUN, "")
    assert f"/nowhere/{missing} is missing" in ended.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file to another user")
@pytest.mark.parametrize("planted", ["runner", "folder"])
def test_what_another_user_has_planted_is_not_run(tmp_path: Path, planted: str) -> None:
    runner, folder = tmp_path / "runner", tmp_path / "folder"
    runner.write_text("print('started')")
    folder.mkdir()
    os.chown(tmp_path / planted, 65534, 65534)
    ended = run(build_pod_script(str(runner), str(folder)))
    assert (ended.returncode, ended.stdout) == (CANNOT_RUN, "")


@pytest.mark.parametrize("planted", ["runner", "folder"])
def test_a_link_to_something_of_the_users_own_is_not_followed(tmp_path: Path, planted: str) -> None:
    paths = {"runner": tmp_path / "runner", "folder": tmp_path / "folder"}
    paths["runner"].write_text("print('started')")
    paths["folder"].mkdir()
    link = tmp_path / "link"
    link.symlink_to(paths[planted])
    paths[planted] = link
    ended = run(build_pod_script(str(paths["runner"]), str(paths["folder"])))
    assert (ended.returncode, ended.stdout) == (CANNOT_RUN, "")


SHOWING = b"""import json, sys
folder = sys.argv[1]
pod = json.load(open(folder + "/pod.json"))
print(pod["name"], open(folder + "/files/v/d/x").read(), pod["paths"]["logs"])
"""


async def test_a_real_shell_starts_what_a_real_agent_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_files, "runner_source", lambda: SHOWING)
    user, transport = harness.tests_user(), harness.LaunchedTransport()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as home:
        os.chown(home, user.uid, -1)
        folder, runner = private_folder(f"{home}/work", MARK), pod_files.runner_path(f"{home}/cache/images")
        pod = request(files("d/x", content=b"content")).pod
        assert pod is not None
        archive = pod_files.pack(pod, pod_files.PodPaths(f"{home}/work", f"{home}/cache"))
        async with AgentPool(transport) as agents:
            agent = await agents.agent(user, "files")
            await pod_files.lay_out(agent, folder, archive, runner)
            written = Path(runner).stat()
            await pod_files.lay_out(agent, folder, archive, runner)
            assert Path(runner).stat().st_ino == written.st_ino
        become = ["setpriv", f"--reuid={user.uid}", "--clear-groups"] if os.geteuid() == 0 else []
        script = build_pod_script(runner, folder)
        ended = await asyncio.to_thread(run, script, *become)
        assert (ended.stdout, ended.stderr) == (f"pod content {home}/work\n", "")
