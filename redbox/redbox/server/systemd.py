"""Tells systemd (Type=notify), where it started us, that callers are served from now on.

So `systemctl start` ends when they are, and fails where the settings are wrong.
"""

from __future__ import annotations

import contextlib
import os
import socket


def tell_ready() -> None:
    """A word to the socket that it named, as sd_notify(3) says; nothing where there is none."""
    address = os.environ.pop("NOTIFY_SOCKET", "")  # ours alone: no child is to speak for us
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as telling, contextlib.suppress(OSError):
        telling.sendto(b"READY=1", f"\0{address[1:]}" if address[0] == "@" else address)
