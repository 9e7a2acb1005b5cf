"""Notifies systemd (Type=notify) that red-box serves.

So `systemctl start` returns when it does, and fails if the settings are invalid.
"""

from __future__ import annotations

import contextlib
import os
import socket


def notify_ready() -> None:
    """Send READY=1 as sd_notify(3) does; without a NOTIFY_SOCKET do nothing."""
    address = os.environ.pop("NOTIFY_SOCKET", "")  # removed, so that no child notifies in red-box's place
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier, contextlib.suppress(OSError):
        notifier.sendto(b"READY=1", f"\0{address[1:]}" if address[0] == "@" else address)
