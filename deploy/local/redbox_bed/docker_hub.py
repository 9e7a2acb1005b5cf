"""A registry in the bed that stands in for Docker Hub, which hosts cannot reach, with the examples' images.

Hosts find it under Docker Hub's own names, so that `busybox:1.37` is pulled as it is anywhere else. Its
busybox is Debian's.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import replace

from redbox_bed.bed import Bed
from redbox_bed.core.build_cache import ensure_built, key_of
from redbox_bed.core.places import Places
from redbox_bed.core.plan import Role, Source
from redbox_bed.core.progress import Progress
from redbox_bed.hosts.host import Daemon, Host
from redbox_bed.hosts.waiting import wait_until_serves
from redbox_bed.images.node_images import architecture, busybox_image
from redbox_bed.images.oci import Entry, Image, read_layer, write_layer
from redbox_bed.images.registry_client import RegistryClient
from redbox_bed.kube.pki import Identity, ensure_pki
from redbox_bed.programs.registry import ensure_registry

NAME = "docker-hub"
ADDRESS = "registry-1.docker.io"
NAMES = (ADDRESS, "index.docker.io")
"""That of Docker and containerd, and the one that Apptainer asks."""
FOLDER = "/opt/docker-hub"
TRUSTED = "/usr/local/share/ca-certificates/docker-hub.crt"
BUSYBOX_TAGS = ("1.37", "latest")
STARTS_WITHIN_S = 60
SETTINGS = {
    "version": 0.1,
    "log": {"level": "error"},
    "storage": {"filesystem": {"rootdirectory": f"{FOLDER}/images"}},
    "http": {"addr": ":443", "tls": {"certificate": f"{FOLDER}/server.crt", "key": f"{FOLDER}/server.key"}},
}
DAEMON = Daemon(NAME, (f"{FOLDER}/registry", "serve", f"{FOLDER}/settings.json"))


def up(bed: Bed, progress: Progress) -> None:
    """Start it, unless it runs, on the controller's host, away from those that pull."""
    host = bed.host(bed.plan.clusters[0].controller)
    if host.running(NAME):
        return
    program = ensure_registry(bed.places, progress)
    folder = bed.places.state / NAME
    server = Identity("server", NAME, ADDRESS, dns_names=NAMES, usages=("server",))
    ensure_pki(folder, [NAME], [server], dt.datetime.now(dt.UTC))
    host.write(f"{FOLDER}/settings.json", json.dumps(SETTINGS))  # JSON is YAML
    for file in ("server.crt", "server.key"):
        host.write(f"{FOLDER}/{file}", (folder / file).read_bytes(), mode=0o600)
    host.write(f"{FOLDER}/registry", program.read_bytes(), mode=0o755)
    for puller in _pullers(bed):
        _introduce(puller, host.spec.address, (folder / f"{NAME}-ca.crt").read_bytes())
    host.ensure(DAEMON)
    wait_until_serves(host, DAEMON, lambda: _answers(host), STARTS_WITHIN_S)
    client = RegistryClient(host, ADDRESS)
    for name, image in _images(bed.places):
        client.push(name, image)


def down(bed: Bed) -> None:
    """Docker Hub is out of reach again."""
    host = bed.host(bed.plan.clusters[0].controller)
    if host.running(NAME):
        host.kill(NAME)
    host.run("rm", "-rf", FOLDER)
    for puller in _pullers(bed):
        # Not replaced as a file: it may be mounted.
        puller.run(
            "sh", "-c", f'hosts=$(grep -v {ADDRESS} /etc/hosts); echo "$hosts" >/etc/hosts; rm -f {TRUSTED}'
        )
        puller.run("update-ca-certificates", "--fresh")


def _pullers(bed: Bed) -> Iterator[Host]:
    """The hosts that pull; those of the Slurm cluster share the files of one."""
    yield bed.host(bed.plan.clusters[0].controller)
    if bed.plan.options.kube is Source.OWN:
        yield from (bed.host(spec.name) for spec in bed.plan.of_role(Role.NODE))


def _introduce(puller: Host, address: str, authority: bytes) -> None:
    puller.run("sh", "-c", f"grep -q {ADDRESS} /etc/hosts || echo {address} {' '.join(NAMES)} >>/etc/hosts")
    puller.write(TRUSTED, authority)
    puller.run("update-ca-certificates")


def _answers(host: Host) -> bool:
    return host.run("curl", "--silent", "--fail", f"https://{ADDRESS}/v2/", check=False).returncode == 0


def _images(places: Places) -> Iterator[tuple[str, Image]]:
    """Each with its name, as `repository:tag`."""
    busybox = replace(busybox_image(places), entrypoint=(), arguments=("sh",))
    yield from ((f"library/busybox:{tag}", busybox) for tag in BUSYBOX_TAGS)
    yield "alpine/kubectl:latest", kubectl_image(places)


def kubectl_image(places: Places, name: str = "alpine/kubectl") -> Image:
    """The cluster's own kubectl, as the image of that name has it."""
    program = (places.state / "bin/kubectl").read_bytes()
    folder = ensure_built(
        places.cache / "images" / f"kubectl-{key_of(program)}",
        lambda unfinished: write_layer(unfinished / "layer.tar", entries=[Entry("kubectl", program, 0o755)]),
    )
    return Image(name, architecture(), (read_layer(folder / "layer.tar"),), ("/kubectl",), user="65532:65532")
