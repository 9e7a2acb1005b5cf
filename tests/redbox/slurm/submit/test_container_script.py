"""The script of a container request, run by a real sh with a runtime that writes down how it was called."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from redbox.runner.program.images import PULLS_LOCK
from redbox.slurm.errors import RequestRefused
from redbox.slurm.submit import container_script
from redbox.slurm.submit.container_script import (
    NO_IMAGE,
    NO_RUNTIME,
    ContainerPaths,
    build_container_script,
    container_environment,
    pulls_always,
)
from redbox_api.models import JobRequest
from redbox_bed.hosts.waiting import wait_until
from tests.redbox.slurm.submit.container_node import Node


def request(
    image: str = "/images/a.sif", resources: Mapping[str, object] | None = None, **container: object
) -> JobRequest:
    asked = {"container": {"image": image, **container}, "resources": resources or {}}
    return JobRequest.model_validate(asked)


def last_argv(node: Node) -> list[str]:
    argv = node.calls()[-1]["argv"]
    assert isinstance(argv, list)
    return argv


words = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(words, min_size=1, max_size=4), st.lists(words, max_size=4))
def test_what_was_asked_for_arrives_as_argv_in_the_container(
    node: Node, command: list[str], args: list[str]
) -> None:
    script = build_container_script(request(command=command, args=args), node.places)
    assert "\r\n" not in script
    done = node.run(script)
    assert (done.returncode, done.stderr) == (0, "")
    assert last_argv(node) == ["-q", "exec", "/images/a.sif", *command, *args]


HOSTILE = [
    "$(touch /tmp/x)",
    "`id`",
    "a'b\"c",
    "\n#SBATCH --wait\n",
    "\r\n",
    "*",
    "~",
    "-c",
    "",
    "$HOME",
    "\\",
    "ü€",
]


def test_hostile_words_are_words(node: Node) -> None:
    script = build_container_script(request(command=["run me"], args=HOSTILE), node.places)
    assert "\r" not in script  # with CR LF anywhere sbatch takes it for a DOS file
    node.run(script)
    assert last_argv(node)[3:] == ["run me", *HOSTILE]


def test_without_a_command_the_image_runs_what_it_is_made_for(node: Node) -> None:
    node.run(build_container_script(request(args=["x"]), node.places))
    assert last_argv(node) == ["-q", "run", "/images/a.sif", "x"]


def test_every_option_becomes_its_switch(node: Node) -> None:
    options = {
        "cleanEnv": True,
        "contain": True,
        "fakeRoot": True,
        "ipc": True,
        "pid": True,
        "noPrivs": True,
        "writable": True,
        "app": "foo",
        "hostName": "box",
        "binds": ["/data:/mnt:ro", "/a b,/c"],
        "gpus": "nvidia",
    }
    node.run(build_container_script(request(options=options), node.places))
    assert last_argv(node) == [
        *("-q", "run", "--cleanenv", "--contain", "--fakeroot", "--ipc", "--pid", "--no-privs", "--writable"),
        *("--nv", "--app=foo", "--hostname=box", "--bind=/data:/mnt:ro", "--bind=/a b,/c", "/images/a.sif"),
    ]
    node.run(build_container_script(request(options={"gpus": "rocm"}), node.places))
    assert "--rocm" in last_argv(node)


def test_the_exit_code_is_the_containers(node: Node) -> None:
    assert node.run(build_container_script(request(), node.places), EXIT="42").returncode == 42


def test_a_node_without_a_runtime_says_so(node: Node) -> None:
    (node.folder / "bin" / "apptainer").unlink()
    done = node.run(build_container_script(request(), node.places))
    assert done.returncode == NO_RUNTIME
    assert "neither apptainer nor singularity is in PATH" in done.stderr


def test_singularity_does_where_there_is_no_apptainer(node: Node) -> None:
    (node.folder / "bin" / "apptainer").rename(node.folder / "bin" / "singularity")
    assert node.run(build_container_script(request(), node.places)).returncode == 0
    assert last_argv(node)[:2] == ["-q", "run"]


def test_the_administrators_lines_come_first(node: Node) -> None:
    (node.folder / "bin").rename(node.folder / "elsewhere")
    places = ContainerPaths("/c", setup=f"PATH={node.folder}/elsewhere:$PATH\n")
    assert node.run(build_container_script(request(), places)).returncode == 0


def test_more_than_one_task_is_started_by_srun_and_mpi_by_its_kind(node: Node) -> None:
    node.run(build_container_script(request(resources={"tasks": 4, "cpusPerTask": 2}), node.places))
    assert node.calls()[0]["srun"] == ["--cpus-per-task=2", f"{node.folder}/bin/apptainer"]
    node.run(build_container_script(request(options={"mpi": "pmix"}), node.places))
    assert node.calls()[0]["srun"] == ["--mpi=pmix", f"{node.folder}/bin/apptainer"]
    assert "srun" not in build_container_script(request(resources={"tasks": 1, "nodes": 1}), node.places)


def pulls(node: Node) -> list[list[str]]:
    found = [call["argv"] for call in node.calls()]
    return [argv for argv in found if isinstance(argv, list) and argv[:2] == ["-q", "pull"]]


def test_an_image_is_pulled_once_into_the_cache_and_run_from_there(node: Node) -> None:
    script = build_container_script(request("docker://registry/app:1.2"), node.places)
    for expected in (1, 0):
        assert node.run(script).returncode == 0
        assert len(pulls(node)) == expected
    cached = [path for path in (node.folder / "cache dir").iterdir() if path.suffix == ".sif"]
    assert [path.read_text() for path in cached] == ["docker://registry/app:1.2"]
    assert (node.folder / "cache dir").stat().st_mode & 0o077 == 0


def run_at_once(node: Node, scripts: list[str]) -> list[int]:
    env = {"PATH": f"{node.folder}/bin:/usr/bin:/bin", "CALLS": str(node.folder / "calls")}
    jobs = [
        subprocess.Popen(["/bin/sh", "-c", script], env=env, stdout=subprocess.DEVNULL) for script in scripts
    ]
    return [job.wait(timeout=60) for job in jobs]


def test_many_tasks_that_start_at_once_pull_one_image(node: Node) -> None:
    script = build_container_script(request("docker://registry/app:1.2"), node.places)
    assert run_at_once(node, [script] * 6) == [0] * 6
    assert len(pulls(node)) == 1


def test_pulls_of_several_images_run_one_after_another(node: Node) -> None:
    images = [f"docker://registry/app:1.{n}" for n in range(6)]
    scripts = [build_container_script(request(image), node.places) for image in images]
    assert run_at_once(node, scripts) == [0] * 6
    assert sorted(argv[-1] for argv in pulls(node)) == images


def test_a_pull_that_hangs_does_not_hold_up_other_images_for_ever(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_script, "SILENT_WAIT_S", 0.1)
    monkeypatch.setattr(container_script, "WAIT_FOR_PULLS_S", 0.1)
    (node.folder / "cache dir").mkdir()
    with (node.folder / "cache dir" / PULLS_LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        script = build_container_script(request("docker://registry/app:1.2"), node.places)
        done = node.run(script)
        waits = "red-box: docker://registry/app:1.2: waiting for another pull of yours\n"
        assert (done.returncode, done.stderr) == (0, waits)
        assert node.run(script).stderr == ""  # it is there


def test_jobs_wait_for_a_pull_that_hangs_beside_one_another(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As tasks of an array do, each of which pulls the tag latest: not ten minutes after ten minutes."""
    monkeypatch.setattr(container_script, "WAIT_FOR_PULLS_S", 3600)
    (node.folder / "cache dir").mkdir()
    script = build_container_script(request("docker://registry/app:latest"), node.places)
    with (node.folder / "cache dir" / PULLS_LOCK).open("w") as lock, ThreadPoolExecutor() as pool:
        fcntl.flock(lock, fcntl.LOCK_EX)
        tasks = pool.submit(run_at_once, node, [script] * 3)
        wait_until(lambda: len(waiting_for(lock.fileno())) == 3, 60, "not all wait")
        fcntl.flock(lock, fcntl.LOCK_UN)
        assert tasks.result() == [0] * 3
    assert len(pulls(node)) == 3


def waiting_for(descriptor: int) -> list[str]:
    """The lines of /proc/locks of those who wait for the lock of an open file."""
    place = f":{os.fstat(descriptor).st_ino} "
    lines = Path("/proc/locks").read_text().splitlines()
    return [line for line in lines if "->" in line and place in line]


def test_a_node_without_flock_pulls_all_the_same(node: Node) -> None:
    for tool in ("sh", "mkdir", "mv", "rm", "find", "touch", "uname"):
        (node.folder / "bin" / tool).symlink_to(f"/bin/{tool}")
    script = build_container_script(request("docker://registry/app:1.2"), node.places)
    done = node.run(script, PATH=f"{node.folder}/bin")
    assert (done.returncode, done.stderr) == (0, "")


def test_a_pull_takes_away_what_was_unused_for_a_month(node: Node) -> None:
    cache = node.folder / "cache dir"
    cache.mkdir()
    month_ago = time.time() - 40 * 86400
    for name in ("old.sif", "old.sif.lock", "broken.sif.17.4", "new.sif"):
        (cache / name).touch()
        if name != "new.sif":
            os.utime(cache / name, (month_ago, month_ago))
    places = replace(node.places, keep_days=30)
    script = build_container_script(request(image="docker://app:1"), places)
    assert node.run(script).returncode == 0
    image = next(path for path in cache.glob("*.sif") if path.name != "new.sif")
    os.utime(image, (month_ago, month_ago))
    assert node.run(script).returncode == 0  # it is used, not pulled
    assert sorted(path.name for path in cache.iterdir()) == sorted(
        [image.name, f"{image.name}.lock", "new.sif", "old.sif.lock", PULLS_LOCK]
    )


def test_a_pull_that_fails_says_so_and_leaves_nothing(node: Node) -> None:
    script = build_container_script(request("docker://registry/app:1.2"), node.places)
    done = node.run(script, PULL_FAILS="1")
    assert done.returncode == NO_IMAGE
    assert "docker://registry/app:1.2 could not be pulled" in done.stderr
    assert {path.suffix for path in (node.folder / "cache dir").iterdir()} == {".lock"}
    assert node.run(script).returncode == 0


@pytest.mark.parametrize("keep_days", [0, 30])
def test_what_a_killed_pull_has_left_is_gone_a_day_later(node: Node, keep_days: int) -> None:
    cache = node.folder / "cache dir"
    cache.mkdir()
    two_days_ago = time.time() - 2 * 86400
    for name in ("image.sif", "image.sif.17.4", "image.sif.18.5"):
        (cache / name).touch()
        if name != "image.sif.18.5":  # another job may be at it
            os.utime(cache / name, (two_days_ago, two_days_ago))
    places = replace(node.places, keep_days=keep_days)
    assert node.run(build_container_script(request(image="docker://app:1"), places)).returncode == 0
    left = {path.name for path in cache.glob("image.*")}
    assert left == {"image.sif", "image.sif.18.5"}


def test_a_job_that_is_cancelled_while_it_pulls_leaves_no_half_image(node: Node) -> None:
    script = build_container_script(request("docker://registry/app:1.2"), node.places)
    cache = node.folder / "cache dir"
    path = f"{node.folder}/bin:/usr/bin:/bin"
    env = {"PATH": path, "CALLS": str(node.folder / "calls"), "PULL_HANGS": "60"}
    with subprocess.Popen(["/bin/sh", "-c", script], env=env, start_new_session=True) as job:
        wait_until(lambda: any(cache.glob("*.sif.*.*")), 60, "the pull did not begin")
        os.killpg(job.pid, signal.SIGTERM)  # as Slurm does: to each of the job's processes
    wait_until(lambda: not any(cache.glob("*.sif.*.*")), 60, "half an image was left")
    assert not any(cache.glob("*.sif"))
    assert node.run(script).returncode == 0


@pytest.mark.parametrize(
    ("image", "always"),
    [
        ("docker://ubuntu", True),
        ("docker://ubuntu:latest", True),
        ("docker://localhost:5000/ubuntu", True),
        ("docker://localhost:5000/ubuntu:22.04", False),
        ("docker://ubuntu@sha256:abc", False),
        ("library://user/coll/image:latest", True),
        ("https://host/image.sif", False),
        ("/images/a.sif", False),
    ],
)
def test_images_without_a_lasting_tag_are_asked_for_again_as_kubernetes_does(
    image: str,
    always: bool,  # noqa: FBT001 (pytest gives it by name)
) -> None:
    assert pulls_always(image) is always


def test_unsigned_images_are_allowed_where_the_runtime_has_the_option(node: Node) -> None:
    node.run(
        build_container_script(request("library://a/b/c:1", options={"allowUnsigned": True}), node.places)
    )
    assert "--allow-unsigned" in pulls(node)[0]


REGISTRY = {"username": "me", "password": "secret"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"image": "ubuntu:22.04"}, "perhaps docker://ubuntu:22.04"),
        ({"image": "images/a.sif"}, "neither an absolute path"),
        ({"image": "shub://a/b"}, "perhaps docker://..."),
        (
            {"image": "/a.sif", "registry": {"username": "me", "password": "secret"}},
            "credentials can only be used",
        ),
        ({"image": "/a.sif", "options": {"cleanEnv": True, "mpi": "pmix"}}, "rank 0 of 1"),
    ],
)
def test_what_cannot_work_is_refused_in_words(fields: dict[str, object], words: str) -> None:
    with pytest.raises(RequestRefused, match="container") as caught:
        build_container_script(request(**fields), ContainerPaths("/cache"))  # type: ignore[arg-type]
    assert words in caught.value.detail


def test_env_is_handed_to_the_container_and_settings_to_the_runtime() -> None:
    env = container_environment({"PATH": "/mine", "A": "$(id)", "APPTAINER_NOHTTPS": "1"})
    assert env == {
        "APPTAINER_NO_EVAL": "1",
        "SINGULARITY_NO_EVAL": "1",
        "APPTAINERENV_PATH": "/mine",
        "SINGULARITYENV_PATH": "/mine",
        "APPTAINERENV_A": "$(id)",
        "SINGULARITYENV_A": "$(id)",
        "APPTAINER_NOHTTPS": "1",
    }
