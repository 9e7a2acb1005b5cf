"""The part of an Ingress controller, on a node of the bed: nginx, by the rules that an Ingress has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from redbox_bed.hosts.host import Daemon, Host
from tests.e2e.harness.slurmjobs import Applied

PORT = 8880
FILE = "/etc/nginx/ingress.conf"
NGINX = Daemon("ingress", ("/usr/sbin/nginx", "-e", "stderr", "-c", FILE))
AROUND = """\
daemon off;
master_process off;
pid /run/ingress.pid;
events {{}}
http {{
  access_log off;
  map $http_upgrade $connection_header {{ default upgrade; "" close; }}
  server {{ listen {port} default_server; return 404; }}
  {servers}
}}
"""
SERVER = """server {{ listen {port}; server_name {name}; {locations} }}
"""
LOCATION = """location {path} {{
  proxy_pass http://{service};
  proxy_http_version 1.1;
  proxy_set_header Host $host;
  proxy_set_header Upgrade $http_upgrade;
  proxy_set_header Connection $connection_header;
}}
"""
SPEAKS = r"""
import socket, sys
name, address, port, text = sys.argv[1:]
asks = f"GET / HTTP/1.1\r\nHost: {name}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
asks += "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
with socket.create_connection((address, int(port)), timeout=20) as client:
    client.sendall(asks.encode())
    answers = client.makefile("rb")
    print(answers.readline().split()[1].decode())
    while answers.readline().strip():
        pass
    client.sendall(bytes([0x81, 0x80 | len(text)]) + bytes(4) + text.encode())
    print(answers.read(answers.read(2)[1]).decode())
"""


@dataclass(frozen=True)
class Controller:
    """One that serves, and a host from which it is asked."""

    address: str
    client: Host

    def get(self, name: str) -> tuple[int, str]:
        """The HTTP status and the body; a status of 0 while nobody answers."""
        known = f"{name}:{PORT}:{self.address}"
        ask = ("curl", "--silent", "--max-time", "15", "--resolve", known, "--write-out", "\\n%{http_code}")
        shown = self.client.run(*ask, f"http://{name}:{PORT}/", check=False, timeout=30).stdout
        body, _, status = shown.rpartition("\n")
        return int(status), body.strip()

    def speak(self, name: str, text: str) -> list[str]:
        """By a WebSocket: the HTTP status, and what is answered to the text."""
        words = ("python3", "-c", SPEAKS, name, self.address, str(PORT), text)
        return self.client.run(*words, timeout=60).stdout.split()


@contextmanager
def controller(node: Host, client: Host, job: Applied, ingress: str) -> Iterator[Controller]:
    """Serve what this Ingress of the job's namespace asks for."""
    node.write(FILE, configuration(job, ingress))
    node.ensure(NGINX)
    try:
        yield Controller(node.spec.address, client)
    finally:
        node.kill(NGINX.name)


def configuration(job: Applied, ingress: str) -> str:
    servers = ""
    for rule in job.get("ingress", ingress)["spec"]["rules"]:
        locations = "".join(
            LOCATION.format(path=path["path"], service=service_address(job, path["backend"]["service"]))
            for path in rule["http"]["paths"]
        )
        servers += SERVER.format(port=PORT, name=rule["host"], locations=locations)
    return AROUND.format(port=PORT, servers=servers)


def service_address(job: Applied, backend: dict[str, dict[str, str]]) -> str:
    spec = job.get("service", str(backend["name"]))["spec"]
    port = next(port["port"] for port in spec["ports"] if port["name"] == backend["port"]["name"])
    return f"{spec['clusterIP']}:{port}"
