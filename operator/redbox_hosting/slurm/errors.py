"""Errors of requests to slurmrestd.

SlurmrestdError
├── SlurmUnknown          no whole answer in time, or nonsense: what Slurm did is unknown
│   └── SlurmUnreachable  502 and 504: slurmrestd answers for a slurmctld that does not
└── SlurmRefusal          Slurm's own error, with its number
    ├── TokenRefused      the token has ended, or its key has changed
    ├── NodesBusy         2016: a job is on the node
    ├── NoSuchNode        2018: Slurm has no record of the node
    ├── BadNodeState      2028, 2180: the node is not in a state that allows it
    └── NotServed         404: slurmrestd has no such path, such as new/node before 25.11
"""

from __future__ import annotations

from http import HTTPStatus

from redbox_kube.controller.steps import StepFailed
from redbox_shared.printable import printable

LONGEST_SENTENCE = 1024
NODES_BUSY, INVALID_NODE_NAME, AUTHENTICATION = 2016, 2018, 1007
BAD_NODE_STATE, BAD_NODE_TRANSITION = 2028, 2180
"""24.11 and 26.05 on the same request."""
NETWORK_AUTHENTICATION_REQUIRED = 511
REFUSES_TOKENS = frozenset({HTTPStatus.UNAUTHORIZED, NETWORK_AUTHENTICATION_REQUIRED})
NO_SLURMCTLD = frozenset({HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT})


class SlurmrestdError(StepFailed):
    """Base of all errors of this client; a step that does not handle one fails with its sentence."""


class SlurmUnknown(SlurmrestdError):
    """No answer that can be relied on. A write may have happened."""


class SlurmUnreachable(SlurmUnknown):
    """slurmctld is away, or it reads a new configuration."""


class SlurmRefusal(SlurmrestdError):
    """Slurm refused the request."""

    def __init__(self, sentence: str, number: int = 0) -> None:
        super().__init__(printable(sentence[:LONGEST_SENTENCE], lines=False))
        self.number = number


class TokenRefused(SlurmRefusal):
    """Slurm does not accept the operator's token."""


class NodesBusy(SlurmRefusal):
    """A job is on the node."""


class NoSuchNode(SlurmRefusal):
    """Slurm has no record of the node."""


class BadNodeState(SlurmRefusal):
    """The node is not in a state that allows it; of RESUME: there was nothing to resume."""


class NotServed(SlurmRefusal):
    """This release has no such path."""


BY_NUMBER: dict[int, type[SlurmRefusal]] = {
    NODES_BUSY: NodesBusy,
    INVALID_NODE_NAME: NoSuchNode,
    BAD_NODE_STATE: BadNodeState,
    BAD_NODE_TRANSITION: BadNodeState,
    AUTHENTICATION: TokenRefused,
}
