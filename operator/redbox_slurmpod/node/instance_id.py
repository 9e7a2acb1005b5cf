"""Writes the pod's uid into its node's record, as the instance id that tells a pod from its successor.

slurmd sends it with its registration (--instance-id), but Slurm 26.05 drops it when a node comes out of
POWERING_UP, and all releases clear it at POWERED_DOWN. Started each time slurmd is ready, and when slurmd has
read other keys: the comment says which, since the operator replaces keys only once every slurmd has the new.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass

from redbox_slurmpod.node.record import NodeRecord, SlurmUnavailable, identify, read_node

log = logging.getLogger(__name__)
_KEYS = "redbox-keys:"
_DIGITS = 16


@dataclass(frozen=True)
class AttemptPauses:
    """Doubled from one attempt to the next."""

    first_s: float = 0.5
    longest_s: float = 30


@dataclass(frozen=True)
class OwnRecord:
    """What the record of this pod's node is to have."""

    node: str
    instance_id: str
    address: str
    keys: str = ""
    """The SHA-256 of slurm.jwks; empty where slurmd has another key."""

    @property
    def comment(self) -> str:
        return f"{_KEYS}{self.keys[:_DIGITS]}" if self.keys else ""

    def is_in(self, record: NodeRecord) -> bool:
        return record.instance_id == self.instance_id and self.comment in ("", record.comment)


def ensure_record(own: OwnRecord, pauses: AttemptPauses = AttemptPauses()) -> None:
    """Return when it is there; the record is this pod's once slurmd has registered with its address."""
    pause = pauses.first_s
    while True:
        try:
            record = read_node(own.node)
            if record is not None and own.is_in(record):
                return
            if record is not None and record.address == own.address:
                identify(own.node, own.instance_id, own.comment)
                log.info(
                    "the record of %s has %s and %s", own.node, own.instance_id, own.comment or "no keys"
                )
        except SlurmUnavailable as error:
            log.warning("the record of %s is not written yet: %s", own.node, error)
        time.sleep(pause)
        pause = min(pause * 2, pauses.longest_s)
