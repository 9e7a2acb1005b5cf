"""A registry of container images on the bed: distribution, with TLS, and a password that it asks for.

It runs on the controller's host, away from those that pull, and writes down each request. Every host trusts
its certificate as an administrator would have it: by the system's own list.
"""

from __future__ import annotations

import json
import os
import re
import signal
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from redbox.server.certificates import issue_server, make_authority
from redbox_bed.bed import Bed
from redbox_bed.core.progress import Progress
from redbox_bed.hosts.host import Daemon, Host
from redbox_bed.hosts.waiting import wait_until
from redbox_bed.images.node_images import architecture
from redbox_bed.images.oci import Entry, Image, write_layer
from redbox_bed.images.registry_client import RegistryClient
from redbox_bed.programs.registry import ensure_registry
from tests.e2e.harness.slurmjobs import Applied, SlurmJobs, new_name

NAME = "image-registry"
PORT = 5000
USER = "puller"
SECRET = "not-for-other-eyes"
PASSWORD = f"p'a$(id) \"s\\{SECRET}"
FOLDER = "/opt/image-registry"
TRUSTED = "/usr/local/share/ca-certificates/image-registry.crt"
STARTS_WITHIN_S = 60
ELF_MACHINE = 18  # of the header
SETTINGS = """\
version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {folder}/images}}}}
auth: {{htpasswd: {{realm: bed, path: {folder}/htpasswd}}}}
http:
  addr: {address}:{port}
  tls: {{certificate: {folder}/server.crt, key: {folder}/server.key}}
"""
BCRYPT = "print crypt($ENV{PASSWORD}, q($2b$05$abcdefghijklmnopqrstuu))"


@dataclass(frozen=True)
class Registry:
    """One that runs."""

    host: Host

    @property
    def address(self) -> str:
        return f"{self.host.spec.address}:{PORT}"

    def push(self, name: str, image: Image) -> str:
        """The image's digest; `name` is as `app:1`."""
        return RegistryClient(self.host, self.address, f"{USER}:{PASSWORD}").push(name, image)

    def pulls(self, repository: str) -> int:
        """How often somebody was given a manifest of the repository."""
        log = self.host.log_path(NAME).read_text(errors="replace")
        return len(re.findall(rf'"GET /v2/{repository}/manifests/\S+ HTTP/[\d.]+" 200 ', log))

    def askers(self, repository: str) -> set[str]:
        """The addresses that have asked for anything of it, but for this host's own pushes."""
        log = self.host.log_path(NAME).read_text(errors="replace")
        asked = re.findall(rf'^([\d.]+) .*"GET /v2/{repository}/', log, re.MULTILINE)
        return set(asked) - {self.host.spec.address}

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Its process stands still: what it was asked for does not come."""
        process = self.host.daemon_process(NAME)
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(process.pid, signal.SIGCONT)


def busybox_image(folder: Path, host: Host, name: str, machine: int | None = None) -> Image:
    """One that says its name and its arguments; with programs for another machine if one is given."""
    busybox = host.read("/bin/busybox")
    if machine is not None:
        busybox = busybox[:ELF_MACHINE] + struct.pack("=H", machine) + busybox[ELF_MACHINE + 2 :]
    entries = [Entry(f"bin/{tool}", busybox, 0o755) for tool in ("sh", "cat", "id")]
    entries += [Entry(f"etc/{file}", b"") for file in ("passwd", "group", "resolv.conf", "hosts")]
    entries += [Entry("etc/name", name.encode())]
    layer = write_layer(folder / f"{name}.tar", entries=entries)
    greets = ("/bin/sh", "-c", 'echo "$(cat /etc/name) $*"', "sh")
    return Image(name, architecture(), (layer,), entrypoint=greets)


def apply_with_login(jobs: SlurmJobs, image: str, password: str = PASSWORD) -> Applied:
    """A SlurmJob of alice with that image, whose registry is given this password."""
    name = new_name()
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/basic-auth",
        "metadata": {"name": name, "namespace": "alice", "labels": {"app": "redbox-test"}},
        "stringData": {"username": USER, "password": password},
    }
    jobs.kubectl.apply(json.dumps(secret))
    return jobs.apply(container={"image": image, "args": ["moo"], "registrySecret": name})


@contextmanager
def running(bed: Bed) -> Iterator[Registry]:
    """A registry, for as long as tests need one."""
    registry = Registry(bed.host("ctl"))
    program = ensure_registry(bed.places, Progress.silent())
    try:
        _lay_ready(registry, program)
        registry.host.ensure(Daemon(NAME, (f"{FOLDER}/registry", "serve", f"{FOLDER}/settings.yaml")))
        wait_until(
            lambda: _answers(registry),
            STARTS_WITHIN_S,
            "the registry did not begin to serve",
            log=registry.host.log_path(NAME),
        )
        yield registry
    finally:
        if registry.host.running(NAME):
            registry.host.kill(NAME)
        registry.host.run("rm", "-rf", FOLDER, TRUSTED)
        registry.host.run("update-ca-certificates", "--fresh")


def _lay_ready(registry: Registry, program: Path) -> None:
    """Files in the tree that all hosts of the cluster have as their root, so that each trusts it."""
    host, now = registry.host, datetime.now(UTC)
    authority = make_authority(NAME, now)
    server = issue_server(authority, [], [host.spec.address], now)
    password = host.run("perl", "-e", BCRYPT, env={"PASSWORD": PASSWORD}).stdout
    files: dict[str, str | bytes] = {
        "settings.yaml": SETTINGS.format(folder=FOLDER, address=host.spec.address, port=PORT),
        "htpasswd": f"{USER}:{password}\n",
        "server.crt": server.certificate,
        "server.key": server.key,
    }
    for name, content in files.items():
        host.write(f"{FOLDER}/{name}", content, mode=0o600)
    host.write(f"{FOLDER}/registry", program.read_bytes(), mode=0o755)
    host.write(TRUSTED, authority.certificate)
    host.run("update-ca-certificates")


def _answers(registry: Registry) -> bool:
    asked = registry.host.run("curl", "--silent", f"https://{registry.address}/v2/", check=False)
    return asked.returncode == 0
