"""The cluster's hosts at work: configured, their daemons started in order, and waited for.

Their arguments and files are in `control_plane` and `node` (pure), the order of the hosts in `kube_cluster`.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import io
import json
import tarfile
import time
from collections.abc import Iterable, Mapping
from subprocess import CompletedProcess
from typing import Any

from redbox_bed.core.errors import DaemonError
from redbox_bed.core.places import Places
from redbox_bed.hosts.host import Host
from redbox_bed.hosts.waiting import wait_until_serves
from redbox_bed.images.node_images import import_missing
from redbox_bed.images.oci import Image
from redbox_bed.images.unpacked import begin_with_unpacked
from redbox_bed.kube.conf import CONFIGURATION, File, Setup
from redbox_bed.kube.control_plane import AUDIT_LOG, roles

READY_SECONDS = 120
_POLL_SECONDS = 0.2
_DIGEST = f"{CONFIGURATION}/digest"
_NODE_SETTINGS = """
mount --make-rshared /
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables
"""
"""Volumes of pods may propagate mounts; pods are routed; and traffic between pods of one node, which stays on
its bridge, passes kube-proxy's rules too."""


def start_control_plane(host: Host, setup: Setup, programs: str) -> None:
    """All of it, in the order in which it can work, with the roles that a new cluster lacks."""
    configure(host, setup)
    host.run("mkdir", "-p", AUDIT_LOG.rpartition("/")[0])
    etcd, api_server, *others = setup.daemons
    for daemon in (etcd, api_server):
        host.ensure(daemon)
    wait_until_serves(
        host,
        api_server,
        lambda: kubectl(host, programs, "get", "--raw=/readyz").returncode == 0,
        READY_SECONDS,
    )
    for daemon in others:
        host.ensure(daemon)
    applied = kubectl(host, programs, "apply", "--server-side", "--filename=-", stdin=roles())
    if applied.returncode:
        raise DaemonError(f"the API server refused the bed's roles: {applied.stderr.strip()}")


def start_node(host: Host, setup: Setup, places: Places, images: Iterable[Image]) -> dt.datetime | None:
    """All of it; when its kubelet was started, if that was now."""
    configure(host, setup)
    host.run("sh", "-ec", _NODE_SETTINGS)
    begin_with_unpacked(host, places)
    containerd, *others = setup.daemons
    host.ensure(containerd)
    wait_until_serves(
        host, containerd, lambda: host.run("ctr", "version", check=False).returncode == 0, READY_SECONDS
    )
    import_missing(host, images)
    began = dt.datetime.now(dt.UTC)
    started = {daemon.name for daemon in others if host.ensure(daemon)}
    return began if "kubelet" in started else None


def configure(host: Host, setup: Setup) -> None:
    """Write the host's files if they are others than before; what runs by the old ones is ended."""
    digest = digest_of(setup)
    if host.run("cat", _DIGEST, check=False).stdout == digest:
        return
    for daemon in setup.daemons:
        if host.running(daemon.name):
            host.kill(daemon.name)
    # The digest comes last: if this is cut short, all is written again.
    files = (*setup.files, File(_DIGEST, digest))
    host.run("tar", "--extract", "--directory=/", stdin=archive_of(files))


def digest_of(setup: Setup) -> str:
    """Changes with every file and every flag."""
    return hashlib.sha256(archive_of(setup.files) + repr(setup.daemons).encode()).hexdigest()


def archive_of(files: Iterable[File]) -> bytes:
    """The files as one tar file."""
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w") as archive:
        for file in files:
            content = file.content.encode() if isinstance(file.content, str) else file.content
            info = tarfile.TarInfo(file.path.lstrip("/"))
            info.size, info.mode = len(content), file.mode
            archive.addfile(info, io.BytesIO(content))
    return output.getvalue()


def wait_for_nodes(host: Host, programs: str, started: Mapping[str, dt.datetime | None]) -> None:
    """Until every node is Ready, by the word of the kubelet that runs now (`started` is when it was)."""
    missing = list(started)
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline:
        answer = kubectl(host, programs, "get", "nodes", "--output=json")
        if answer.returncode == 0:
            missing = unready_nodes(json.loads(answer.stdout)["items"], started)
            if not missing:
                return
        time.sleep(_POLL_SECONDS)
    raise DaemonError(
        f"not Ready after {READY_SECONDS} s: {', '.join(missing)}; `bed logs kubelet` tells more"
    )


def unready_nodes(nodes: Iterable[Mapping[str, Any]], started: Mapping[str, dt.datetime | None]) -> list[str]:
    """Those that are not Ready, or were last said to be before their kubelet was started."""
    heartbeats = {node["metadata"]["name"]: _ready_heartbeat(node) for node in nodes}
    return [name for name, since in started.items() if not _is_fresh(heartbeats.get(name), since)]


def _ready_heartbeat(node: Mapping[str, Any]) -> dt.datetime | None:
    for condition in node.get("status", {}).get("conditions", ()):
        if condition["type"] == "Ready" and condition["status"] == "True":
            return dt.datetime.fromisoformat(condition["lastHeartbeatTime"])
    return None


def _is_fresh(heartbeat: dt.datetime | None, since: dt.datetime | None) -> bool:
    # Kubernetes' times are in whole seconds.
    return heartbeat is not None and (since is None or heartbeat >= since.replace(microsecond=0))


def kubectl(host: Host, programs: str, *arguments: str, stdin: str | None = None) -> CompletedProcess[str]:
    """Run kubectl as administrator, on the control plane's host."""
    configuration = f"--kubeconfig={CONFIGURATION}/admin.conf"
    return host.run(f"{programs}/kubectl", configuration, *arguments, stdin=stdin, check=False, timeout=60)
