"""How a runner and a relay of one user talk: at a socket, by messages.

Sockets are files below the runner's own folder on the node, which only its user can enter: `attach/NAME` is
of a container's main process, `attach/.runner` takes orders, each a document whose answer is the end. A
relay finds them by the runner's open files, so that no path is exchanged. The kernel keeps the bounds of
messages (SOCK_SEQPACKET); the first byte of each says what it is.
"""

import os
import socket
import struct
from contextlib import suppress
from typing import Tuple

SCRATCH_PREFIX = "redbox-pod-"
"""Of the names of a runner's folders."""
ATTACH_FOLDER = "attach"
ORDERS = ".runner"
"""No container can have this name."""
ATTACH_INPUT = b"\0"  # to the container; without content: this client sends no more
ATTACH_STDOUT, ATTACH_STDERR = b"\1", b"\2"
ATTACH_END = b"\3"  # the last message: JSON, as a relay's status
ATTACH_SIZE = b"\4"  # of the terminal: JSON, columns and rows
ATTACH_HELLO = b"\5"  # the client's first message: JSON, whether it has input, and its terminal's size
ATTACH_BYTES = 16 * 1024
"""Of a message, at most, beside its first byte."""
MOST_ATTACHED = 64
PEER_CREDENTIALS = struct.Struct("3i")


def peer_of(connection: "socket.socket") -> Tuple[int, int]:
    """Process and user of the other side, by the kernel's word."""
    answer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER_CREDENTIALS.size)
    pid, uid, _ = PEER_CREDENTIALS.unpack(answer)
    return pid, uid


def is_own_peer(connection: "socket.socket") -> bool:
    return peer_of(connection)[1] == os.getuid()


def listen_for_clients(folder: str, name: str) -> "socket.socket":
    """By the open folder: a socket's path has 107 bytes at most."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, name))
    inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        listener.bind("/proc/self/fd/{}/{}".format(inside, name))
        os.chmod(os.path.join(folder, name), 0o600)
        listener.listen(MOST_ATTACHED)
        listener.settimeout(0)
    except OSError as error:
        listener.close()
        raise OSError(error.errno, error.strerror, os.path.join(folder, name)) from error
    finally:
        os.close(inside)
    return listener


def receive_input(connection: "socket.socket", limit: int) -> bytes:
    """All input of a client, until it says that nothing follows; ValueError for anything else."""
    content = b""
    while True:
        message = connection.recv(ATTACH_BYTES + 1)
        if message == ATTACH_INPUT:
            return content
        if message[:1] == ATTACH_INPUT and len(content) < limit:
            content += message[1:]
        elif message[:1] != ATTACH_HELLO:
            raise ValueError("not an order")
