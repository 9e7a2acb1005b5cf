"""The node's address and hosts, as the runner finds and names them."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from redbox.runner.program.handlers import request_head, resolve
from redbox.runner.program.starts import HOSTS_HEADER, OF_HOST_NETWORK, PodContext, hosts_file
from redbox.runner.program.volumes import write_once
from redbox.runner.program_source import runner_source

FINDS = """
import sys
names = {"__name__": "runner"}
exec(compile(sys.stdin.read(), "runner", "exec"), names)
print(names["resolve"]("localhost", 2), "unicodedata" in sys.modules)
"""


def test_a_name_is_resolved_without_the_tables_of_unicode() -> None:
    """They are half a MB of the job's own memory."""
    source = runner_source().decode()
    found = subprocess.run(
        [sys.executable, "-IS", "-c", FINDS], input=source, capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["127.0.0.1", "False"]


def test_a_name_that_no_host_can_have_has_no_address() -> None:
    assert resolve("knötchen", socket.AF_INET) is None


@pytest.mark.parametrize(("host", "shown"), [("10.0.0.1", b"10.0.0.1"), ("fd00::5", b"[fd00::5]")])
def test_a_probe_names_its_host_as_urls_do(host: str, shown: bytes) -> None:
    """Servers refuse an IPv6 address without brackets as malformed."""
    head = request_head({}, "/", host, 8080)
    assert b"\r\nHost: " + shown + b":8080\r\n" in head


def test_a_comment_in_the_nodes_hosts_may_be_in_any_encoding(tmp_path: Path) -> None:
    theirs = "10.0.0.1 n1  # Rechner für alle\n".encode("latin-1")
    (tmp_path / "theirs").write_bytes(theirs)
    pod = {"name": "p", "namespace": "n", "uid": "u", "paths": {"logs": "/"}, "hostsFile": "10.0.0.2 é\n"}
    content = hosts_file(PodContext(pod, "/", "n1", "10.0.0.1"), str(tmp_path / "theirs"))
    written = Path(write_once(str(tmp_path), "hosts", content))
    assert written.read_bytes() == OF_HOST_NETWORK.encode() + theirs + "10.0.0.2 é\n".encode()


def test_a_pod_without_the_hosts_network_has_the_header_of_a_managed_file(
    tmp_path: Path,
) -> None:
    (tmp_path / "theirs").write_text("10.0.0.1 n1\n")
    pod = {"name": "p", "namespace": "n", "uid": "u", "paths": {"logs": "/"}, "hostname": "p"}
    content = hosts_file(PodContext(pod, "/", "n1", "10.0.0.1"), str(tmp_path / "theirs"))
    assert content == f"{HOSTS_HEADER}10.0.0.1 n1\n10.0.0.1\tp\n"
