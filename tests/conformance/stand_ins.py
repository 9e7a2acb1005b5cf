"""Images that stand in for those of Kubernetes' suite, which no host of the bed can pull.

agnhost and nonewprivs are Kubernetes' own programs, on Debian's busybox and bash in place of Alpine.
busybox's web server stands in for Apache and nginx. The bed's registry has them by the names of the suite.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from redbox_bed import docker_hub
from redbox_bed.bed import Bed
from redbox_bed.core.progress import Progress
from redbox_bed.hosts.host import Host
from redbox_bed.images.node_images import architecture, busybox_image, pause_image
from redbox_bed.images.oci import Entry, Image, Layer, write_layer
from redbox_bed.images.registry_client import RegistryClient
from redbox_bed.kube.pki import Identity, ensure_pki
from redbox_bed.programs.kubernetes import ensure_programs

REPOSITORY = "kube-e2e"
REGISTRIES = f"promoterE2eRegistry: {REPOSITORY}\ngcRegistry: {REPOSITORY}\n"
"""For --kube-test-repo-list: names without a host, which are Docker Hub's."""
PATH = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
FOLDERS = (
    *("dev", "etc", "home", "mnt", "proc", "root", "run", "sys", "uploads"),
    *("usr/bin", "usr/sbin", "var/log", "var/run", "var/tmp"),
)
PASSWD = b"""\
root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/bin/false
nobody:x:65534:65534:nobody:/home:/bin/false
user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh
"""
GROUP = b"""\
root:x:0:
daemon:x:1:
user-defined-in-image:x:1000:
group-defined-in-image:x:50000:user-defined-in-image
nogroup:x:65534:
"""
WEB_FOLDER = "usr/local/apache2/htdocs"
WEB_SERVER = f"""\
#!/bin/sh
# Stays if port 80 is taken: the network is the node's, and another replica answers there.
httpd -f -p 80 -h /{WEB_FOLDER} &
trap 'exit 0' TERM INT QUIT
while :; do sleep 1 & wait $!; done
"""
PICTURE = b'{"image": "nautilus.jpg"}\n'
"""What a case reads of the image nautilus."""
SETUID = 0o6755


@dataclass(frozen=True)
class StandIns:
    """What images are made of: layers, by the program that they bring."""

    busybox: Layer
    agnhost: Layer
    nonewprivs: Layer
    web_server: Layer
    picture: Layer
    pause: Image

    def of(self, name: str) -> Image | None:
        """The image that is called so, without its tag."""
        busybox = self._image(self.busybox, arguments=["sh"])
        agnhost = self._image(self.busybox, self.agnhost, entrypoint=["/agnhost"], arguments=["pause"])
        nautilus = replace(agnhost, layers=(*agnhost.layers, self.picture), arguments=("test-webserver",))
        web_server = self._image(self.busybox, self.web_server, arguments=["/bin/web-server"])
        images = {
            "agnhost": agnhost,
            "busybox": busybox,
            "httpd": web_server,
            "nginx": web_server,
            "nautilus": nautilus,
            "nonewprivs": self._image(self.busybox, self.nonewprivs, arguments=["nnp"]),
            "nonroot": replace(busybox, user="1234"),
            "pause": self.pause,
        }
        return images.get(name)

    @staticmethod
    def _image(*layers: Layer, entrypoint: Sequence[str] = (), arguments: Sequence[str] = ()) -> Image:
        return Image(
            REPOSITORY,
            architecture(),
            layers,
            tuple(entrypoint),
            arguments=tuple(arguments),
            environment=PATH,
        )


def push(bed: Bed, progress: Progress, programs: Path, repositories: Path) -> None:
    """Everything that the suite asks for and that there is a stand-in of, to the bed's registry."""
    docker_hub.up(bed, progress)
    client = RegistryClient(bed.host(bed.plan.clusters[0].controller), docker_hub.ADDRESS)
    with tempfile.TemporaryDirectory() as folder:
        stand_ins = _make(bed, progress, programs, Path(folder))
        for name in asked_images(programs, repositories):
            image = stand_ins.of(name.partition("/")[2].partition(":")[0])
            if image is not None:
                client.push(name, image)


def asked_images(programs: Path, repositories: Path) -> list[str]:
    """The images of the suite that are to come from the bed's registry, by its own list."""
    command = [str(programs / "e2e.test"), "--list-images", f"--kube-test-repo-list={repositories}"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return sorted({line for line in listed.stdout.split() if line.startswith(f"{REPOSITORY}/")})


def _make(bed: Bed, progress: Progress, programs: Path, folder: Path) -> StandIns:
    users = [Entry("etc/passwd", PASSWD), Entry("etc/group", GROUP), Entry("etc/hosts", b"")]
    users += [Entry("etc/resolv.conf", b""), Entry("etc/hostname", b"")]
    users += _program(bed.host("login"), "/bin/bash")
    home = _bare_tree(busybox_image(bed.places).layers[0].file, folder / "busybox")
    agnhost = [Entry("agnhost", (programs / "agnhost").read_bytes(), 0o755)]
    # A second name of the program, by which a case can say which of them ran.
    agnhost += [replace(agnhost[0], path="agnhost-2"), *_certificate(folder)]
    agnhost += _program(bed.host("login"), "/usr/bin/curl")
    nonewprivs = Entry("usr/local/bin/nnp", (programs / "nonewprivs").read_bytes(), SETUID)
    page = Entry(f"{WEB_FOLDER}/index.html", b"<html><body><h1>It works!</h1></body></html>\n")
    server = Entry("bin/web-server", WEB_SERVER.encode(), 0o755)
    return StandIns(
        busybox=write_layer(folder / "busybox.tar", home, users),
        agnhost=write_layer(folder / "agnhost.tar", entries=agnhost),
        nonewprivs=write_layer(folder / "nonewprivs.tar", entries=[nonewprivs]),
        web_server=write_layer(folder / "web-server.tar", entries=[page, server]),
        picture=write_layer(folder / "picture.tar", entries=[Entry("data.json", PICTURE)]),
        pause=pause_image(bed.places, ensure_programs(bed.places, progress)),
    )


def _bare_tree(busybox: Path, tree: Path) -> Path:
    """Busybox's commands, and the folders that an image has.

    The shell is bash: Debian's busybox keeps variables such as `data-1` from the commands of its shell.
    """
    tree.mkdir()
    shutil.unpack_archive(busybox, tree, "tar", filter="tar")
    for name in FOLDERS:
        (tree / name).mkdir(parents=True, exist_ok=True)
    (tree / "usr/bin/env").symlink_to("../../bin/busybox")
    for name in ("etc/passwd", "etc/group", "bin/sh", "bin/bash"):
        (tree / name).unlink(missing_ok=True)
    (tree / "bin/sh").symlink_to("bash")
    return tree


def _certificate(folder: Path) -> Iterator[Entry]:
    """Of agnhost's servers with TLS."""
    server = Identity("localhost", "agnhost", "localhost", dns_names=("localhost",), usages=("server",))
    ensure_pki(folder / "pki", ["agnhost"], [server], datetime.now(UTC))
    for name in ("localhost.crt", "localhost.key"):
        yield Entry(name, (folder / "pki" / name).read_bytes())


def _program(host: Host, program: str) -> Iterator[Entry]:
    """One of Debian's, with its libraries."""
    root = Path(f"/proc/{host.need_pid()}/root")
    listed = host.run("ldd", program).stdout
    for path in {program, *re.findall(r"(?:=> |^\s+)(/\S+)", listed, re.MULTILINE)}:
        real = host.run("readlink", "-f", path).stdout.strip()
        yield Entry(path.lstrip("/"), (root / real.lstrip("/")).read_bytes(), 0o755)
