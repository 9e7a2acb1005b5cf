"""Writes the pod's uid into its node's record, as the instance id that tells a pod from its successor.

slurmd sends it with its registration (--instance-id), but Slurm 26.05 drops it when a node comes out of
POWERING_UP, and all releases clear it at POWERED_DOWN. Started each time slurmd is ready.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from redbox_slurmpod.node.record import SlurmUnavailable, read_node, set_instance_id

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AttemptPauses:
    """Doubled from one attempt to the next."""

    first_s: float = 0.5
    longest_s: float = 30


def ensure_instance_id(
    node: str, instance_id: str, address: str, pauses: AttemptPauses = AttemptPauses()
) -> None:
    """Return when the record has it; the record is this pod's once slurmd has registered with its address."""
    pause = pauses.first_s
    while True:
        try:
            record = read_node(node)
            if record is not None and record.instance_id == instance_id:
                return
            if record is not None and record.address == address:
                set_instance_id(node, instance_id)
                log.info("the instance id of %s is set to %s", node, instance_id)
        except SlurmUnavailable as error:
            log.warning("the instance id of %s is not set yet: %s", node, error)
        time.sleep(pause)
        pause = min(pause * 2, pauses.longest_s)
