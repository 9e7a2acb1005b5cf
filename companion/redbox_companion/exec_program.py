"""`redbox-companion exec` and `shell`: hand this process's streams to the container's companion, and wait.

The companion does the work. This imports little: there is one process of it for each session.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import socket
import sys
import termios
import tty
from typing import TYPE_CHECKING, Any

from redbox_shared.pod_contract import COMPANION_PROGRAM, EXEC, LOGIN_SHELL, SHELL, sessions_address
from redbox_shared.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CANNOT_START = 125
"""As `docker run` and `env` exit where it was not the command that failed."""


def main(arguments: Sequence[str]) -> int:
    options = _parse(arguments)
    is_terminal = sys.stdin.isatty()
    request = {
        "command": options.command or LOGIN_SHELL,
        "tty": is_terminal,
        "stdin": True,
        "node": options.node,
        "task": options.task,
        **({"size": _size(), "term": os.environ.get("TERM") or "xterm"} if is_terminal else {}),
    }
    try:
        with socket.socket(socket.AF_UNIX) as companion:
            companion.connect(sessions_address(os.environ))
            # The first byte takes the streams along; the rest may need many messages.
            line = json.dumps(request).encode() + b"\n"
            socket.send_fds(companion, [line[:1]], [0, 1, 2])
            companion.sendall(line[1:])
            with _raw_terminal() if is_terminal else contextlib.nullcontext():
                _pass_on_sizes(companion)
                end = _wait(companion)
    except ConnectionRefusedError:
        end = {
            "message": "no session is possible before Slurm shows the job: retry",
            "code": CANNOT_START,
        }
    except OSError as error:
        end = {"message": f"the companion has ended: {error}", "code": CANNOT_START}
    if message := end.get("message"):
        sys.stderr.write(f"{COMPANION_PROGRAM}: {printable(message)}\n")
    return int(end.get("code", CANNOT_START))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=COMPANION_PROGRAM)
    programs = parser.add_subparsers(dest="program", required=True)
    for name, text in ((EXEC, "Run a command in the job."), (SHELL, "Open a shell in the job.")):
        program = programs.add_parser(name, help=text, description=text)
        program.add_argument("--node", help="on this node of the job; by default its first")
        program.add_argument("--task", type=int, help="the task of a job array")
        if name == EXEC:
            program.add_argument("command", nargs="+", metavar="COMMAND", help="after --: the program")
        else:
            program.set_defaults(command=())
    return parser.parse_args(arguments)


def _size() -> dict[str, int]:
    columns, rows = os.get_terminal_size(0)
    return {"columns": columns or 80, "rows": rows or 24}


def _pass_on_sizes(companion: socket.socket) -> None:
    def send(*_: object) -> None:
        with contextlib.suppress(OSError):
            companion.sendall(json.dumps({"size": _size()}).encode() + b"\n")

    signal.signal(signal.SIGWINCH, send)


@contextlib.contextmanager
def _raw_terminal() -> Iterator[None]:
    before = termios.tcgetattr(0)
    try:
        tty.setraw(0)
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


def _wait(companion: socket.socket) -> dict[str, Any]:
    answer = b""
    while data := companion.recv(65536):
        answer += data
    if not answer:
        return {"message": "the companion has ended, and this session with it", "code": CANNOT_START}
    document: dict[str, Any] = json.loads(answer)
    return document
