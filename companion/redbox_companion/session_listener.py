"""Where the companion takes sessions. What carries them is imported with the first: most jobs have none."""

from __future__ import annotations

import os
import socket
import threading
import time

from redbox_shared.pod_contract import sessions_address

TYPE_CHECKING = False
if TYPE_CHECKING:
    from redbox_companion.redbox_client import BlockingClient

STACK_BYTES = 256 << 10
FULL_S = 0.5


def listen_for_sessions(redbox: BlockingClient, path: str, attempt: int) -> None:
    """In a thread of its own, until the process ends."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(sessions_address(os.environ))
    listener.listen()
    threading.stack_size(STACK_BYTES)
    threading.Thread(target=_accept, args=(listener, redbox, path, attempt), daemon=True).start()
    threading.stack_size(0)


def _accept(listener: socket.socket, redbox: BlockingClient, path: str, attempt: int) -> None:
    clients = [listener.accept()[0]]
    from redbox_companion.streams.sessions import SessionServer  # noqa: PLC0415

    server = SessionServer(redbox, path, attempt)
    while True:
        try:
            server.take(clients.pop() if clients else listener.accept()[0])
        except (OSError, RuntimeError):  # no more descriptors or threads: the next may fit
            time.sleep(FULL_S)
