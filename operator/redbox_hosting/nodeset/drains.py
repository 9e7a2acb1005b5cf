"""Who owns a drain, by its reason. The operator lifts its own and Slurm's, and never an administrator's."""

from __future__ import annotations

import re
from enum import StrEnum

from redbox_hosting.api.names import REASON_PREFIX
from redbox_hosting.slurm.answers import RestNode
from redbox_hosting.slurm.old_reasons import NOT_RESPONDING, REBOOTED
from redbox_shared.printable import printable

RESUME_TIMEOUT = "ResumeTimeout reached"
RESUMABLE = frozenset({REBOOTED, RESUME_TIMEOUT})
"""Matched exactly: Slurm has other reasons, such as `Low RealMemory`, that need somebody."""
SLURMS_OWN = RESUMABLE | {NOT_RESPONDING}
"""Of a node that does not respond Slurm lifts it itself, when the node registers."""
SET_BY = re.compile(r"\s*\[[^\[\]]*@[^\[\]]*\]$")
"""scontrol appends who set it, and when."""
LONGEST_REASON = 200


class DrainOwner(StrEnum):
    """Who took a node out of service."""

    NOBODY = "Nobody"
    OPERATOR = "Operator"
    SLURM = "Slurm"
    ADMINISTRATOR = "Administrator"


def is_out_of_service(node: RestNode) -> bool:
    """Whether no job can start there until somebody acts."""
    return bool(node.state & {"DRAIN", "DOWN", "FAIL"})


def drain_owner(node: RestNode) -> DrainOwner:
    """Of a node that is in service its old reason does not count: RESUME may leave it there."""
    if not is_out_of_service(node):
        return DrainOwner.NOBODY
    reason = plain_reason(node.reason)
    if reason.startswith(REASON_PREFIX.rstrip()):
        return DrainOwner.OPERATOR
    if reason in SLURMS_OWN:
        return DrainOwner.SLURM
    return DrainOwner.ADMINISTRATOR


def plain_reason(reason: str) -> str:
    """Without the name and the time of the author."""
    return SET_BY.sub("", reason).strip()


def our_reason(words: str) -> str:
    """A reason of the operator's, in one printable line: parts of it are written by others."""
    return (REASON_PREFIX + " ".join(printable(words).split()))[:LONGEST_REASON]
