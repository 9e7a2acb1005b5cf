"""This pod, from the downward API. Without a uid there is no instance id."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass


@dataclass(frozen=True)
class ThisPod:
    """Its host name is the node's name."""

    node: str
    uid: str = ""
    address: str = ""


def this_pod() -> ThisPod:
    return ThisPod(socket.gethostname(), os.environ.get("POD_UID", ""), os.environ.get("POD_IP", ""))
