"""Which servers a connection may reach: those of the job, by what the kernel says of them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from redbox.node.program import job_processes, listeners
from redbox.relay.program import ports
from redbox.relay.program.ports import find_job_listener
from tests.ports import free_port

Found = Iterator[listeners.PortListener]
WAYS = [listeners.ask_kernel, listeners.read_tables]
JOB = "4714"
SERVE = """\
import socket, sys, time
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print(server.getsockname()[1], flush=True)
time.sleep(600)
"""


@pytest.fixture(autouse=True)
def _this_process_is_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    own = job_processes.environment_of

    def environment_of(pid: int) -> job_processes.Environment:
        return {job_processes.JOB_ID: JOB.encode()} if pid == os.getpid() else own(pid)

    monkeypatch.setattr(job_processes, "environment_of", environment_of)
    monkeypatch.setattr(job_processes, "SOCKETS_OF_JOB", set())


@contextmanager
def server_of(job: str | None) -> Iterator[int]:
    """In a process of its own, that is no child of this one: its port."""
    environment = {"SLURM_JOB_ID": job} if job else {}
    start = ["setsid", "--fork", sys.executable, "-IS", "-c", SERVE, str(free_port())]
    with subprocess.Popen(start, env=environment, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        port = int(started.stdout.readline())
        inodes = [listener.inode for listener in listeners.find_listeners(port)]
        holders = [
            pid
            for pid in job_processes.own_processes()
            if any(job_processes.holds_socket(pid, inode) for inode in inodes)
        ]
        try:
            yield port
        finally:
            for pid in holders:
                os.kill(pid, signal.SIGKILL)


def server(address: str) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, free_port()), family=family)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_a_server_of_this_user_is_found_where_it_listens(way: Callable[[int], Found], address: str) -> None:
    with server(address) as listener:
        port = listener.getsockname()[1]
        inode = os.fstat(listener.fileno()).st_ino
        assert list(way(port)) == [(listener.family, address, os.getuid(), inode)]
        family, found = find_job_listener(port, JOB) or (0, "")
        with socket.socket(family) as client:
            client.connect((found, port))
    assert list(way(port)) == []


@pytest.mark.parametrize("way", WAYS)
def test_a_connection_is_no_server(way: Callable[[int], Found]) -> None:
    with server("127.0.0.1") as listener, socket.create_connection(listener.getsockname()) as client:
        assert list(way(client.getsockname()[1])) == []


def test_a_server_of_another_user_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 123_456)
    with server("127.0.0.1") as listener:
        assert find_job_listener(listener.getsockname()[1], JOB) is None


@pytest.mark.parametrize(("job", "is_found"), [(JOB, True), ("4715", False), (None, False)])
def test_a_server_of_the_same_users_other_job_is_not_reached(job: str | None, is_found: bool) -> None:  # noqa: FBT001
    with server_of(job) as port:
        for _ in range(2):
            assert (find_job_listener(port, JOB) is not None) is is_found


@pytest.mark.parametrize("hidden", ["step_title", "cgroups_of", ""])
@pytest.mark.parametrize(("job", "is_found"), [(JOB, True), ("4715", False)])
def test_a_server_of_another_component_of_a_het_job_is_reached(
    monkeypatch: pytest.MonkeyPatch,
    hidden: str,
    job: str,
    is_found: bool,  # noqa: FBT001
) -> None:
    """Its slurmstepd and its cgroup have the id that the component has to slurmd."""
    monkeypatch.setattr(job_processes, "step_title", lambda pid: "4715.0" if pid == 1 else None)
    monkeypatch.setattr(job_processes, "cgroups_of", lambda _: "0::/slurm/job_4715/step_0/user")
    if hidden:
        monkeypatch.setattr(
            job_processes, hidden, {"step_title": lambda _: None, "cgroups_of": lambda _: ""}[hidden]
        )
    with server_of(job) as port:
        assert (find_job_listener(port, f"{JOB}+1") is not None) is is_found


def test_a_job_is_named_as_the_variable_of_its_step_has_it_and_a_component_as_red_box(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "4719")
    assert job_processes.own_job("4714_3") == "4719"
    assert job_processes.own_job("4719+1") == "4719+1"
    monkeypatch.delenv("SLURM_JOB_ID")
    assert job_processes.own_job("4714") == "4714"


def test_a_server_whose_process_cannot_be_seen_is_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_processes, "holds_socket", lambda *_: False)
    with server("127.0.0.1") as listener:
        assert find_job_listener(listener.getsockname()[1], "4715") is not None


@pytest.mark.parametrize(
    ("cgroup", "is_found"),
    [("0::/system.slice/slurmstepd.scope/job_4714/step_0/user", True), ("0::/job_47145/x", False)],
)
def test_a_process_that_left_all_others_is_of_the_job_by_its_cgroup(
    monkeypatch: pytest.MonkeyPatch,
    cgroup: str,
    is_found: bool,  # noqa: FBT001
) -> None:
    monkeypatch.setattr(job_processes, "cgroups_of", lambda _: cgroup)
    with server_of(None) as port:
        assert (find_job_listener(port, JOB) is not None) is is_found


def test_a_server_of_both_families_is_reached_on_a_node_without_an_address_of_the_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        port = listener.getsockname()[1]
        assert find_job_listener(port, JOB) == (socket.AF_INET6, "::1")
        monkeypatch.setattr(ports, "has_v6_loopback", lambda: False)
        assert find_job_listener(port, JOB) == (socket.AF_INET, "127.0.0.1")
        with socket.create_connection(("127.0.0.1", port)):
            pass


def test_a_strangers_server_is_not_reached_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "has_v6_loopback", lambda: False)
    with server("::") as listener:
        port = listener.getsockname()[1]
        with socket.create_server(("127.0.0.1", port)):
            stranger = [row for row in listeners.find_listeners(port) if row.family == socket.AF_INET]
            own = [row for row in listeners.find_listeners(port) if row.family == socket.AF_INET6]
            found = [*(row._replace(uid=123_456) for row in stranger), *own]
            monkeypatch.setattr(ports, "find_listeners", lambda _: found)
            assert find_job_listener(port, JOB) == (socket.AF_INET6, "::1")


def test_without_sock_diag_the_tables_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "NETLINK_SOCK_DIAG", 999)
    with server("127.0.0.1") as listener:
        port = listener.getsockname()[1]
        with pytest.raises(OSError, match="rotocol"):
            list(listeners.ask_kernel(port))
        assert find_job_listener(port, JOB) == (socket.AF_INET, "127.0.0.1")


def test_an_answer_that_refuses_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "SOCK_DIAG_BY_FAMILY", 199)
    with pytest.raises(OSError, match="refused"):
        list(listeners.ask_kernel(1))
