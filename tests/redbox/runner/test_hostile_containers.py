"""What a container's program leaves for the runner to read leads out of the container nowhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from redbox.relay.program import places
from redbox.runner.program import processes
from redbox.runner.program.command_lines import split_environment
from redbox.runner.program.processes import DeviceMessage, read_end, read_text
from redbox.runner.program.reports import MAX_EVENTS, ReportFile, StatusReport, terminated, waiting
from redbox.runner.program.volumes import make_below
from redbox_api.pod_report import LONGEST_REPORT, PodReport
from tests.redbox.runner.harness import BOX, LIMIT_S, Node, container, end_of, reasons


def test_a_probe_runs_no_program_of_the_containers_path_on_the_node(node: Node, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    for name in ("nsenter", "setpriv"):
        (tmp_path / "own" / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/outside\nexit 1\n")
        (tmp_path / "own" / name).chmod(0o755)
    env = [
        {"name": "PATH", "value": f"{tmp_path}/own:{os.environ['PATH']}"},
        {"name": "LD_LIBRARY_PATH", "value": f"{tmp_path}/own"},
    ]
    seen = f'test "$LD_LIBRARY_PATH" = {tmp_path}/own && touch {tmp_path}/inside'
    waits = f"until test -e {tmp_path}/inside -o -e {tmp_path}/outside; do sleep .05; done"
    probe = {"exec": ["sh", "-c", seen], "periodS": 1, "timeoutS": LIMIT_S}
    report = node.run(containers=[container("a", waits, env=env, readinessProbe=probe)])
    assert end_of(report, "a") == (0, "Completed")
    assert not (tmp_path / "outside").exists()


SECRETS = {
    "PASSWORD": "hidden/",
    "LD_SDK_KEY": "hidden/",
    "LANGCHAIN_API_KEY": "hidden/",
    "LC_KEY": "hidden/",
}
"""Variables that no loader knows, whatever their names begin with: others on the node read command lines."""


def test_nsenter_gets_no_variable_by_which_it_loads_code() -> None:
    loading = {
        "LD_PRELOAD": "/volume/x.so",
        "LD_AUDIT": "/volume/x.so",
        "GCONV_PATH": "/volume",
        "LOCPATH": "/volume",
        "LC_ALL": "../volume",
        "LANGUAGE": "../volume",
    }
    kept = {"PATH": "/volume", "LANG": "C.UTF-8", **SECRETS}
    assert split_environment({**loading, **kept}) == (kept, loading)


def test_a_sessions_command_line_has_the_loaders_variables_and_no_others() -> None:
    secrets = {name.encode(): value.encode() for name, value in SECRETS.items()}
    place = places.enter(os.getpid(), {b"LD_PRELOAD": b"/volume/x.so", **secrets})
    assert place.enter[-2:] == [b"env", b"LD_PRELOAD=/volume/x.so"]
    assert not any(b"hidden" in word for word in place.enter)
    assert place.environment == secrets


@pytest.mark.parametrize("path", ["/dev/log", "/dev/sub/log"])
def test_a_message_that_is_a_link_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    secret = tmp_path / "home"
    secret.mkdir()
    (secret / "log").write_text("key")
    devices = tmp_path / "dev"
    devices.mkdir()
    monkeypatch.setattr(processes, "open_devices", lambda _: os.open(devices, os.O_RDONLY))
    message = DeviceMessage(path)
    (devices / "sub").symlink_to(secret)
    message.find(1)
    (devices / "log").unlink(missing_ok=True)
    (devices / "log").symlink_to(secret / "log")
    assert message.read(4096) == ""


def test_a_message_below_a_folder_of_dev_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.setattr(processes, "open_devices", lambda _: os.open(tmp_path, os.O_RDONLY))
    message = DeviceMessage("/dev/sub/log")
    message.find(1)
    (tmp_path / "sub/log").write_text("first why")
    assert message.read(3) == "why"


def test_only_the_wanted_part_of_a_regular_file_is_read(tmp_path: Path) -> None:
    huge = tmp_path / "huge"
    huge.write_bytes(b"begin")
    os.truncate(huge, 1 << 40)
    assert read_text(str(huge), 5) == "begin"
    assert len(read_end(str(huge), 4096)) == 4096
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(huge)
    for name in ("pipe", "link", "missing"):
        assert read_text(str(tmp_path / name)) == read_end(str(tmp_path / name), 5) == ""


def test_a_pipe_in_the_place_of_the_report_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "report.jsonl")
    with pytest.raises(OSError, match="No such device"):
        ReportFile(str(tmp_path / "report.jsonl")).write(b"{}\n")


def test_a_pipe_in_the_place_of_a_log_is_not_waited_for(node: Node) -> None:
    plant = 'for folder; do :; done; mkdir "$folder/logs"; mkfifo "$folder/logs/a-0.log"; exec "$@"'
    node.start_by = ["sh", "-c", plant, "sh"]
    assert end_of(node.run(containers=[container("a", "true")]), "a") == (128, "StartError")


def test_a_working_directory_is_made_in_its_volume_only(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume/out").symlink_to(tmp_path)
    for below in ("a/b", "out/c", "../d"):
        make_below(str(tmp_path / "volume"), below)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["volume"]
    assert (tmp_path / "volume/a/b").is_dir()


@pytest.mark.parametrize("config", [{"Env": [5]}, {"Env": 5}, {"Entrypoint": 5}])
def test_an_image_with_another_kind_of_configuration_is_named(node: Node, config: dict[str, object]) -> None:
    node.serve({BOX: config})
    run = node.start(containers=[container("a", "true")])
    report = run.wait_for(lambda report: "Failed" in reasons(report, "a"))
    run.delete()
    run.wait()
    assert any("its oci-config.json is not an image's" in event.message for event in report.events)


def test_a_report_of_the_longest_messages_is_one_that_red_box_reads() -> None:
    names = [f"c{number}" for number in range(128)]
    report = StatusReport([(name, "main") for name in names], {"nodeName": "n1", "hostIP": "10.0.0.1"})
    for name in names:
        report.change(name, lastState=terminated(1, "Error", "\U0001f600" * 5000, None))
        report.change(name, state=waiting("ErrImagePull", '"\n' * 5000))
    for _ in range(2 * MAX_EVENTS):
        report.event("Unhealthy", "\U0001f600" * 5000, "c1", warning=True)
    line = report.take_line()
    assert line is not None
    assert len(line) <= LONGEST_REPORT
    read = PodReport.model_validate_json(line)
    assert len(read.containers) == 128
    assert reasons(read, "c1") == ["Unhealthy"] * MAX_EVENTS


def test_a_report_of_ordinary_messages_keeps_them_whole() -> None:
    report = StatusReport([("a", "main")], {"nodeName": "n1", "hostIP": "10.0.0.1"})
    for _ in range(MAX_EVENTS):
        report.event("Unhealthy", "\U0001f600" * 1024, "a", warning=True)
    line = report.take_line()
    assert line is not None
    assert {event.message for event in PodReport.model_validate_json(line).events} == {"\U0001f600" * 1024}
