"""An image in the bed's registry for pods, and the Secret with the registry's password."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from redbox_bed.hosts.host import Host
from redbox_bed.images.node_images import architecture
from tests.e2e.harness.image_registry import PASSWORD, USER, Registry, busybox_image
from tests.e2e.harness.slurm_pods import SlurmPods
from tests.e2e.harness.slurmjobs import new_name

ARGUMENTS = ("default", "arguments")
OTHER = "other"
"""The tag of the image whose programs are of a machine that no node is."""
ARM64, AMD64 = 0xB7, 0x3E  # as ELF has them


def push_image(registry: Registry, host: Host, folder: Path) -> str:
    """The name of an image without its tag: 1 says its name and its arguments."""
    name = new_name()
    image = replace(busybox_image(folder, host, name), arguments=ARGUMENTS)
    registry.push(f"{name}:1", image)
    machine = ARM64 if architecture() != "arm64" else AMD64
    foreign = busybox_image(folder, host, f"{name}-{OTHER}", machine)
    registry.push(f"{name}:{OTHER}", foreign)
    return f"{registry.address}/{name}"


def make_pull_secret(pods: SlurmPods, registry: Registry) -> list[dict[str, Any]]:
    """The imagePullSecrets of a pod."""
    name = new_name()
    login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
    config = json.dumps({"auths": {registry.address: {"auth": login}}})
    pods.apply(
        "Secret", name, type="kubernetes.io/dockerconfigjson", stringData={".dockerconfigjson": config}
    )
    return [{"name": name}]
