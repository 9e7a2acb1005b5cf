"""The images that the bed's nodes have: made from what is in the cache, and put into containerd if missing.

Pods name them `bed.local/...` with `imagePullPolicy: Never`: no registry is ever asked. What is in the
project's own images is in `project_images`.
"""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Collection, Iterable
from pathlib import Path

from redbox_bed.core.build_cache import ensure_built, key_of
from redbox_bed.core.errors import BedError
from redbox_bed.core.places import Places
from redbox_bed.hosts.host import Host
from redbox_bed.hosts.roots import root_path
from redbox_bed.images.oci import Entry, Image, image_digest, read_layer, write_archive, write_layer

REGISTRY = "bed.local"
PAUSE = f"{REGISTRY}/pause:1"
BUSYBOX = f"{REGISTRY}/busybox:1"
COREDNS = f"{REGISTRY}/coredns:1"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_IMPORT_SECONDS = 300


def architecture() -> str:
    """This machine's, as images name it."""
    return _ARCHITECTURES.get(platform.machine(), platform.machine())


def pause_image(places: Places, programs: Path) -> Image:
    """What holds a pod's namespaces open; the nodes cannot start a pod without it."""
    program = (programs / "pause").read_bytes()
    folder = ensure_built(
        places.cache / "images" / f"pause-{key_of(program)}",
        lambda unfinished: write_layer(unfinished / "layer.tar", entries=[Entry("pause", program, 0o755)]),
    )
    return Image(PAUSE, architecture(), (read_layer(folder / "layer.tar"),), ("/pause",), user="65535:65535")


def coredns_image(places: Places, program: Path) -> Image:
    """The cluster's DNS, alone: it needs no files but those that Kubernetes mounts."""
    content = program.read_bytes()
    folder = ensure_built(
        places.cache / "images" / f"coredns-{key_of(content)}",
        lambda unfinished: write_layer(unfinished / "layer.tar", entries=[Entry("coredns", content, 0o755)]),
    )
    layer = read_layer(folder / "layer.tar")
    return Image(COREDNS, architecture(), (layer,), ("/coredns",), user="65532:65532")


def busybox_image(places: Places) -> Image:
    """Debian's busybox with a link for each of its commands: what tests' pods run."""
    program = root_path(places, "node") / "usr/bin/busybox"
    folder = ensure_built(
        places.cache / "images" / f"busybox-{key_of(program.read_bytes())}",
        lambda unfinished: _write_busybox(program, unfinished),
    )
    return Image(BUSYBOX, architecture(), (read_layer(folder / "layer.tar"),), ("/bin/sh",))


def _write_busybox(program: Path, folder: Path) -> None:
    commands = folder / "tree" / "bin"
    commands.mkdir(parents=True)
    (folder / "tree" / "tmp").mkdir(mode=0o1777)
    (folder / "tree" / "tmp").chmod(0o1777)
    (commands / "busybox").write_bytes(program.read_bytes())
    (commands / "busybox").chmod(0o755)
    listing = subprocess.run([program, "--list"], capture_output=True, text=True, check=True, timeout=30)
    for command in listing.stdout.split():
        if command != "busybox":
            (commands / command).symlink_to("busybox")
    users = [Entry("etc/passwd", b"root:x:0:0:root:/:/bin/sh\n"), Entry("etc/group", b"root:x:0:\n")]
    write_layer(folder / "layer.tar", folder / "tree", users)


def import_missing(node: Host, images: Iterable[Image]) -> list[str]:
    """Put the images into a node's containerd that are not there in this very version; their names."""
    present = present_images(node.run(*_ctr("images", "list"), timeout=60).stdout)
    missing = [image for image in images if present.get(image.name) != image_digest(image)]
    for image in missing:
        _import(node, image, set(node.run(*_ctr("content", "list", "--quiet")).stdout.split()))
    return [image.name for image in missing]


def present_images(listing: str) -> dict[str, str]:
    """From the table of `ctr images list`: digests by name."""
    rows = (line.split() for line in listing.splitlines()[1:])
    return {row[0]: row[2] for row in rows if len(row) > 2}  # noqa: PLR2004


def _import(node: Host, image: Image, present: Collection[str]) -> None:
    command = _ctr("images", "import", "-")
    pipe = subprocess.PIPE
    with node.popen(*command, stdin=pipe, stdout=subprocess.DEVNULL, stderr=pipe) as importing:
        try:
            if importing.stdin is not None:
                write_archive(image, importing.stdin, present)
        except BrokenPipeError:
            pass  # it ended early, and says why
        _, errors = importing.communicate(timeout=_IMPORT_SECONDS)
    if importing.returncode:
        reason = errors.decode(errors="replace").strip()
        raise BedError(f"{image.name} could not be imported on {node.name}: {reason}")


def _ctr(*arguments: str) -> tuple[str, ...]:
    return ("ctr", "--namespace", "k8s.io", *arguments)
