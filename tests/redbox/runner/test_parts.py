"""The runner's parts: probes' thresholds, reports, volumes, command lines, listeners."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from redbox.node.program.atomic_files import VolumeFiles
from redbox.runner.program.command_lines import (
    container_command,
    job_has_memory,
    mount_option,
    plain_variables,
    runtime_environment,
    step_command,
    step_environment,
)
from redbox.runner.program.entry import search_path, settles
from redbox.runner.program.handlers import ProbeCounter, has_job_listener, parse_head
from redbox.runner.program.reports import MAX_FILE, ReportFile, StatusReport, running, terminated
from redbox.runner.program.rules import ConfigRefused
from redbox.runner.program.steps import WRAPPER, find_rank_folders
from redbox.runner.program.volumes import (
    Mount,
    MountFailed,
    NodeVolume,
    Scratch,
    ScratchFailed,
    VolumeSet,
    check_host_path,
    find_sub_path,
    remove_tree,
    used_bytes,
)
from redbox_api.pod_report import PodReport


def test_a_probe_counts_results_in_a_row() -> None:
    counter = ProbeCounter(success_threshold=2, failure_threshold=3)
    results = [True, True, False, False, True, False, False, False, False]
    found = [counter.add(result) for result in results]
    assert found == [None, True, None, None, None, None, None, False, False]


def test_a_report_is_what_the_contract_says() -> None:
    report = StatusReport([("a", "init"), ("b", "main")], {"nodeName": "n1", "hostIP": "10.0.0.1"})
    report.change("b", state=terminated(137, "OOMKilled", "a\x00b" * 5000, 1.5), restartCount=2)
    for number in range(40):
        report.event("Pulled", f"event {number}", "b")
    report.explain("Evicted", "first")
    report.explain("DeadlineExceeded", "second")
    line = report.take_line()
    assert line is not None
    read = PodReport.model_validate_json(line)
    assert (read.reason, read.message, read.done) == ("Evicted", "first", False)
    assert [event.number for event in read.events] == list(range(9, 41))
    assert read.containers[0].state.waiting is not None
    assert read.containers[0].state.waiting.reason == "PodInitializing"
    assert report.take_line() is None


def test_a_report_file_is_replaced_when_it_has_grown_long(tmp_path: Path) -> None:
    path = tmp_path / "report.jsonl"
    file = ReportFile(str(path))
    line = b"x" * 1023 + b"\n"
    for _ in range(MAX_FILE // len(line)):
        file.write(line)
    before = path.stat()
    file.write(b"last\n")
    assert (before.st_size, path.read_bytes()) == (MAX_FILE, b"last\n")
    assert path.stat().st_ino != before.st_ino
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_line_after_a_broken_one_begins_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "report.jsonl"
    path.write_bytes(b'{"broken"')
    ReportFile(str(path)).write(b"{}\n")
    assert path.read_bytes().splitlines()[-1] == b"{}"


def test_mounts_take_any_path() -> None:
    mount = Mount('/a,b:"c', "/d e", read_only=True)
    assert mount_option(mount) == 'type=bind,"source=/a,b:""c","destination=/d e",ro'


def test_no_value_is_in_a_command_line() -> None:
    values = {"SECRET": "hidden", "HOME": "/root"}
    host = {"PATH": "/bin", "APPTAINERENV_X": "1", "https_proxy": "p", "CUDA_VISIBLE_DEVICES": "1"}
    environment = runtime_environment(host, values, "nvidia")
    assert environment == {
        "PATH": "/bin",
        "CUDA_VISIBLE_DEVICES": "1",
        "APPTAINERENV_SECRET": "hidden",
        "APPTAINERENV_CUDA_VISIBLE_DEVICES": "1",
    }
    command = container_command(
        "/bin/apptainer",
        "/i.sif",
        ["-x"],
        overlay=None,
        cwd="/",
        home="/root",
        hostname="web",
        mounts=[],
        gpus="nvidia",
    )
    assert command[-3:] == ["--nv", "/i.sif", "-x"]
    assert "--containall" in command
    assert "--overlay" not in command


@pytest.mark.parametrize("isolated", [True, False])
def test_a_container_has_a_user_namespace_also_where_apptainer_is_setuid(isolated: bool) -> None:  # noqa: FBT001
    places: dict[str, Any] = dict.fromkeys(("overlay", "gpus"))
    places |= {"cwd": "/", "home": "/", "hostname": ""}
    for clean in (True, False):
        command = container_command(
            "apptainer", "/a.sif", ["true"], **places, mounts=[], isolated=isolated, clean=clean
        )
        assert "--userns" in command
        assert ("--containall" in command or "--cleanenv" in command) is clean
        assert clean or not isolated or {"--contain", "--ipc", "--pid"} <= {*command}


def test_a_name_that_no_shell_takes_is_passed_as_it_is_and_nothing_of_the_node_beside_it() -> None:
    host = {"PATH": "/bin", "HOME": "/home/alice", "SLURM_JOB_ID": "7", "BASH_FUNC_ml%%": "() { :; }"}
    values = {"my.dot": "$(id)", "A": "1"}
    assert plain_variables(values) == {"my.dot": "$(id)"}
    assert runtime_environment(host, values, None) == {
        "PATH": "/bin",
        "HOME": "/home/alice",
        "my.dot": "$(id)",
        "APPTAINERENV_A": "1",
    }


def test_a_step_has_the_containers_memory_and_apptainers() -> None:
    command = step_command(["program"], "n1", "web", 64 * 1024 * 1024)
    assert "--mem=94M" in command
    assert command[-1] == "program"
    kept = step_environment({"SLURM_MEM_PER_NODE": "1", "SLURM_NTASKS_PER_NODE": "1", "SLURM_JOB_ID": "7"})
    assert kept == {"SLURM_JOB_ID": "7"}


@pytest.mark.parametrize(
    ("host", "has"),
    [
        ({"SLURM_MEM_PER_NODE": "94"}, True),
        ({"SLURM_MEM_PER_NODE": "93"}, False),
        ({"SLURM_MEM_PER_CPU": "47", "SLURM_CPUS_ON_NODE": "2"}, True),
        ({"SLURM_MEM_PER_CPU": "46", "SLURM_CPUS_ON_NODE": "2"}, False),
        ({"SLURM_MEM_PER_NODE": "0"}, True),
        ({}, True),
    ],
)
def test_a_limit_above_the_jobs_own_is_no_step(host: dict[str, str], *, has: bool) -> None:
    """Where another container names no memory, the job has Slurm's default; srun refuses a step with more."""
    assert job_has_memory(64 << 20, host) is has


def test_a_sub_path_stays_in_its_volume(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    volume = NodeVolume("v", str(tmp_path / "volume"))
    (tmp_path / "volume/out").symlink_to("/etc")
    assert find_sub_path(volume, "a/b") == str(tmp_path / "volume/a/b")
    assert (tmp_path / "volume/a/b").is_dir()
    for bad in ("../x", "a/../../x", "out", "out/passwd", "/etc"):
        with pytest.raises(ConfigRefused, match="is not below the volume"):
            find_sub_path(volume, bad)
    files = VolumeFiles(str(tmp_path / "files"))
    with pytest.raises(ConfigRefused, match="is not in the volume"):
        find_sub_path(NodeVolume("v", files.path, files=files), "none")


def test_types_of_host_paths_are_checked(tmp_path: Path) -> None:
    check_host_path("v", str(tmp_path / "made"), "DirectoryOrCreate")
    check_host_path("v", str(tmp_path / "file"), "FileOrCreate")
    check_host_path("v", "/dev/null", "CharDevice")
    with pytest.raises(MountFailed, match=r"hostPath type check failed: .* is not a directory"):
        check_host_path("v", str(tmp_path / "file"), "Directory")
    with pytest.raises(MountFailed, match=r"No such file or directory on node .*: give a path that Slurm"):
        check_host_path("v", str(tmp_path / "none"), "File")


def test_files_have_their_content_and_mode(tmp_path: Path) -> None:
    scratch = Scratch(str(tmp_path), "1")
    spec = {"name": "v", "files": {"files": [{"path": "d/f", "content": "c2VjcmV0\n", "mode": 0o400}]}}
    volume = VolumeSet([spec], str(tmp_path / "private"), scratch).by_name["v"]
    file = Path(volume.path, "d/f")
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"secret", 0o400)
    mounts = VolumeSet([], "", scratch)
    mounts.by_name["v"] = volume
    found = mounts.mounts({"mounts": [{"volume": "v", "mountPath": "/x/"}]}, {})
    assert [(mount.source, mount.destination, mount.read_only) for mount in found] == [
        (volume.path, "/x", True)
    ]
    scratch.remove()
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_leaves_its_volume_is_not_written(tmp_path: Path) -> None:
    scratch = Scratch(str(tmp_path), "1")
    with pytest.raises(ScratchFailed, match="is not a path in a volume"):
        VolumeSet([{"name": "v", "files": {"files": [{"path": "../f"}]}}], "", scratch)


def test_no_scratch_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ScratchFailed, match=r"none could be made: No such file .* pods\.scratch\."):
        Scratch(str(tmp_path / "none"), "1")


def test_what_a_killed_runner_has_left_is_removed_and_what_a_live_one_has_is_not(tmp_path: Path) -> None:
    abandoned = tmp_path / "redbox-pod-1-abc"
    (abandoned / "closed").mkdir(parents=True)
    (abandoned / "closed/f").write_text("")
    (abandoned / "closed").chmod(0)
    live = Scratch(str(tmp_path), "2")
    for folder in (abandoned, Path(live.path)):
        os.utime(folder, (1, 1))
    third = Scratch(str(tmp_path), "3")
    assert sorted(map(str, tmp_path.iterdir())) == sorted([live.path, third.path])


def test_a_tree_with_closed_folders_is_removed(tmp_path: Path) -> None:
    (tmp_path / "t/a/b").mkdir(parents=True)
    (tmp_path / "t/a/b/f").write_text("")
    (tmp_path / "t/a/b").chmod(0o500)
    (tmp_path / "t/a").chmod(0)
    remove_tree(str(tmp_path / "t"))
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("closed", [0o700, 0o500])
def test_a_tree_that_is_deeper_than_paths_go_is_measured_and_removed(tmp_path: Path, closed: int) -> None:
    top = tmp_path / "deep"
    top.mkdir()
    folder = os.open(top, os.O_RDONLY)
    for _ in range(3000):
        os.mkdir("nested", dir_fd=folder)
        below = os.open("nested", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=folder))
    os.fchmod(folder, closed)
    os.close(folder)
    assert used_bytes(str(top)) >= 0
    remove_tree(str(top))
    assert not top.exists()


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_only_a_listener_of_this_job_is_reached(
    family: socket.AddressFamily, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with socket.socket(family) as listener:
        listener.bind((address, 0))
        port = listener.getsockname()[1]
        assert not has_job_listener(port, address)
        listener.listen()
        assert has_job_listener(port, address)
        assert not has_job_listener(port, "192.0.2.9")
        monkeypatch.setenv("SLURM_JOB_ID", "4715")
        assert not has_job_listener(port, address)


def test_the_head_of_a_response_is_read() -> None:
    assert parse_head(b"HTTP/1.1 302 Found\r\nLocation: /x\r\n\r\nbody") == (302, "/x")
    with pytest.raises(OSError, match="not HTTP"):
        parse_head(b"SSH-2.0-OpenSSH\r\n")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"restartPolicy": "OnFailure"}, False),
        ({"containers": [{"name": "a"}, {"name": "b"}]}, False),
        ({"containers": [{"name": "a", "readinessProbe": {"tcpPort": 80}}]}, False),
        ({"containers": [{"name": "a", "postStart": {"sleepS": 1}}]}, False),
        ({"initContainers": [{"name": "side", "alwaysRestarts": True}]}, False),
        ({"initContainers": [{"name": "first"}]}, True),
    ],
)
def test_a_pod_settles_where_only_its_end_can_follow(changes: dict[str, Any], expected: bool) -> None:  # noqa: FBT001
    assert settles({"restartPolicy": "Never", "containers": [{"name": "a"}], **changes}) is expected


def test_a_report_is_settled_once_all_have_started() -> None:
    report = StatusReport([("first", "init"), ("main", "main")], {}, settles=True)
    assert not json.loads(report.take_line() or b"")["settled"]
    report.change("first", state=terminated(0, "Completed", "", 1.0))
    assert not json.loads(report.take_line() or b"")["settled"]
    report.change("main", state=running(2.0))
    assert json.loads(report.take_line() or b"")["settled"]


def test_ranks_share_the_folders_of_their_own_step_alone(tmp_path: Path) -> None:
    for name in ("spmix_appdir_2001_98.0", "spmix_appdir_2001_198.0", "spmix_appdir_2001_98.1"):
        (tmp_path / name).mkdir()
    environment = {
        "PMIX_SERVER_TMPDIR": "/var/spool/slurmd/pmix.98.0/",
        "PMIX_SYSTEM_TMPDIR": str(tmp_path),
        "SLURM_JOB_ID": "98",
        "SLURM_STEP_ID": "0",
    }
    assert find_rank_folders(environment) == [
        "/var/spool/slurmd/pmix.98.0/",
        str(tmp_path / "spmix_appdir_2001_98.0"),
    ]


def test_reports_are_json_lines() -> None:
    line = StatusReport([("a", "main")], {}).take_line()
    assert line is not None
    assert line.endswith(b"\n")
    assert json.loads(line)["containers"][0]["state"]["waiting"]["reason"] == "ContainerCreating"


SAYS_ITS_WORDS = 'printf "%s " "${0##*/}" "$@"'
OLD, NEW = "usage: squashfuse_ll ARCHIVE MOUNTPOINT", "    -o uid=N               set file owner to uid N"


@pytest.fixture
def mounters(tmp_path: Path) -> Path:
    """A folder in PATH, and its two programs: squashfuse_ll is not there yet."""
    program(tmp_path / "node/squashfuse", SAYS_ITS_WORDS)
    return tmp_path / "node"


def program(path: Path, script: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def search(mounters: Path) -> str:
    return search_path({"PATH": f"{mounters}:/usr/bin:/bin"}, str(mounters.parent / "own folder"))


def test_an_image_is_mounted_by_a_program_that_can_name_an_owner(mounters: Path) -> None:
    program(mounters / "squashfuse_ll", f"echo '{OLD}' >&2; exit 254")
    found = shutil.which("squashfuse_ll", path=search(mounters))
    assert found is not None
    shown = [
        subprocess.run([found, *words], capture_output=True, text=True, check=True).stdout
        for words in ([], ["-f", "-o", "ro,uid=7", "/an image", "/there"])
    ]
    assert shown == ["    -o uid=N\nsquashfuse ", "squashfuse -f -o ro,uid=7 /an image /there "]


@pytest.mark.parametrize("lacks", ["nothing", "squashfuse_ll", "squashfuse"])
def test_a_node_with_nothing_better_keeps_its_path(mounters: Path, lacks: str) -> None:
    shows = OLD if lacks == "squashfuse" else NEW
    program(mounters / "squashfuse_ll", f"echo '{shows}' >&2; exit 254")
    if lacks != "nothing":
        (mounters / lacks).unlink()
    assert search(mounters) == f"{mounters}:/usr/bin:/bin"


@pytest.mark.parametrize("first", ["secret", "memory"])
def test_an_empty_dir_in_memory_may_have_any_name(tmp_path: Path, first: str) -> None:
    scratch = Scratch(str(tmp_path), "4711")
    file = {"path": "password", "content": "eA=="}
    given = {
        "secret": {"name": "login", "files": {"files": [file], "secret": True}},
        "memory": {"name": "files-login", "emptyDir": {"inMemory": True}},
    }
    try:
        order = sorted(given.values(), key=lambda spec: spec is not given[first])
        volumes = VolumeSet(order, str(tmp_path), scratch).by_name
        assert list(Path(volumes["files-login"].path).iterdir()) == []
        assert Path(volumes["login"].path, "password").read_bytes() == b"x"
    finally:
        scratch.remove()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
def test_a_signal_to_all_of_a_step_is_its_programs(tmp_path: Path, number: signal.Signals) -> None:
    """As by sbatch --signal=USR1@300: the step's shell outlives it, to say how the program has ended."""
    script = f"until [ -e {tmp_path}/go ]; do sleep 0.02; done; exit 7"
    step = subprocess.Popen(["/bin/sh", "-c", WRAPPER, f"{tmp_path}/a-0", "", "sh", "-c", script])
    until = time.monotonic() + 60
    while not (tmp_path / "a-0.pid").exists() and time.monotonic() < until:
        time.sleep(0.02)
    step.send_signal(number)
    (tmp_path / "go").touch()
    assert step.wait(60) == 7
    assert (tmp_path / "a-0.end").read_text() == "7 0\n"
