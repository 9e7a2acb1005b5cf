"""What a daemon reports to its service manager, and who may report it."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from redbox_slurmpod.supervision.notify_socket import NotifySocket, assignments

NOBODY = 65534
SEND = """
import socket, sys
socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).sendto(b"MAINPID=4711", sys.argv[1])
"""


def test_all_messages_that_wait_are_read_in_order(tmp_path: Path) -> None:
    notifications = NotifySocket(tmp_path / "run/notify.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        for message in (b"READY=1\nMAINPID=17", b"STATUS=a=b", b"\xff\n=\n"):
            sender.sendto(message, str(notifications.path))
    read = list(notifications.messages())
    assert read[:2] == [{"READY": "1", "MAINPID": "17"}, {"STATUS": "a=b"}]
    assert len(read) == 3
    assert list(notifications.messages()) == []


def test_the_socket_of_a_container_that_has_ended_is_replaced(tmp_path: Path) -> None:
    NotifySocket(tmp_path / "notify.sock").close()
    notifications = NotifySocket(tmp_path / "notify.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(b"READY=1", str(notifications.path))
    assert list(notifications.messages()) == [{"READY": "1"}]


def test_only_its_owner_reaches_the_socket(tmp_path: Path) -> None:
    path = NotifySocket(tmp_path / "run/notify.sock").path
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_a_message_of_another_user_is_ignored_even_where_it_reaches_the_socket() -> None:
    folder = Path(subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True).stdout.strip())
    notifications = NotifySocket(folder / "notify.sock")
    folder.chmod(0o755)
    notifications.path.chmod(0o777)
    python = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable
    subprocess.run([python, "-I", "-c", SEND, str(notifications.path)], user=NOBODY, check=True, cwd="/")
    assert list(notifications.messages()) == []
    subprocess.run([python, "-I", "-c", SEND, str(notifications.path)], check=True)
    assert list(notifications.messages()) == [{"MAINPID": "4711"}]


def test_a_line_without_an_assignment_has_no_value() -> None:
    assert assignments("READY=1\nnonsense\n") == {"READY": "1", "nonsense": ""}
