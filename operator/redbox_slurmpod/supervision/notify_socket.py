"""The socket that NOTIFY_SOCKET names: what a daemon reports to its service manager (sd_notify(3)).

A job in slurmd's pod must not be able to name another main process, so the socket is its owner's alone and
the kernel identifies the sender of each message. Newer releases of Slurm wait until the manager closes the
descriptor that came with a message (BARRIER=1).
"""

from __future__ import annotations

import array
import os
import socket
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

_CREDENTIALS = struct.Struct("iII")
_MESSAGE_BYTES = 4096
_MAX_DESCRIPTORS = 8


class NotifySocket:
    """Bound at `path`, whose folder is made for its owner alone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.unlink(missing_ok=True)  # of the container before, whose /run this one has
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        self._socket.bind(str(path))
        path.chmod(0o600)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def messages(self) -> Iterator[Mapping[str, str]]:
        """All that wait, each as its assignments by name."""
        space = socket.CMSG_SPACE(_CREDENTIALS.size) + socket.CMSG_SPACE(
            _MAX_DESCRIPTORS * array.array("i").itemsize
        )
        while True:
            try:
                message, ancillary, _, _ = self._socket.recvmsg(_MESSAGE_BYTES, space)
            except BlockingIOError:
                return
            if _sender(ancillary) in (0, os.geteuid()):
                yield assignments(message.decode(errors="replace"))
            _close_descriptors(ancillary)


def assignments(message: str) -> Mapping[str, str]:
    rows = (line.partition("=") for line in message.splitlines())
    return {name: value for name, _, value in rows}


_Ancillary = list[tuple[int, int, bytes]]


def _sender(ancillary: _Ancillary) -> int | None:
    """The uid that the kernel vouches for."""
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
            _, uid, _ = _CREDENTIALS.unpack(data[: _CREDENTIALS.size])
            return int(uid)
    return None


def _close_descriptors(ancillary: _Ancillary) -> None:
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors = array.array("i")
            descriptors.frombytes(data[: len(data) - len(data) % descriptors.itemsize])
            for descriptor in descriptors:
                os.close(descriptor)
