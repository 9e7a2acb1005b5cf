"""Ports for servers that are started later, or by another program."""

import random
import socket

NEVER_GIVEN = range(20_000, 30_000)
"""Below those that the kernel gives to whoever asks for any, or connects."""


def free_port(address: str = "127.0.0.1") -> int:
    while True:
        port = random.choice(NEVER_GIVEN)
        with socket.socket() as listener:
            try:
                listener.bind((address, port))
            except OSError:
                continue
        return port
