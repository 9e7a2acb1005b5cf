"""Every target, by name."""

from __future__ import annotations

from tests.fuzz.target import Target
from tests.fuzz.targets import (
    agents,
    archives,
    client,
    companion,
    images,
    journal,
    kubelet,
    redbox_requests,
    redbox_streams,
    relays,
    slurm_text,
)

MODULES = (
    agents, archives, client, companion, images, journal, kubelet, redbox_requests, redbox_streams, relays,
    slurm_text,
)  # fmt: skip
TARGETS: dict[str, Target] = {target.name: target for module in MODULES for target in module.TARGETS}
