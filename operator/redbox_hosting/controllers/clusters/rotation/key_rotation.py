"""The rotation of a cluster's keys: one move after the other, each a write of the Secret that has them. Pure.

    move      slurm.jwks, the first signs
    Done      k1
    Added     k1, k2        k1 signs; all daemons read both
    Signs     k2, k1        k2 signs; all daemons read that
    Signed    k2, k1        what k1 has signed ends
    Replaced  k2            jwt.key is another one; the former signs tokens until slurmctld has read it
    Done      k2

The Secret says which move was the last one, in the same write: an operator that ends goes on there.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from redbox_hosting.controllers.clusters.keys import (
    FORMER_JWT,
    JWKS,
    JWT,
    KEY_BYTES,
    ROTATION,
    jwks_of,
    keys_in,
    new_slurm_key,
)
from redbox_kube.controller.steps import StepFailed

LONGEST_CREDENTIAL = timedelta(seconds=150)
"""slurmd verifies a job's credential for 120 s after slurmctld has signed it."""
AGAIN_S = 2.0
LONGEST_ASKED = 256
MOST_NAMED = 4


class RotationMove(StrEnum):
    """The last one that was made."""

    DONE = "Done"
    ADDED = "Added"
    SIGNS = "Signs"
    SIGNED = "Signed"
    REPLACED = "Replaced"


WAITS = {
    RotationMove.ADDED: "1 of 4: all daemons to read the new key beside the old one",
    RotationMove.SIGNS: "2 of 4: all daemons to sign with the new key",
    RotationMove.SIGNED: "3 of 4: the end of what the old key has signed",
    RotationMove.REPLACED: "4 of 4: all daemons to read the new key alone, and the new jwt.key",
}


@dataclass(frozen=True, slots=True)
class Rotation:
    """What the Secret says of it: `value` is the annotation that asked for it."""

    value: str = ""
    move: RotationMove = RotationMove.DONE
    since: datetime | None = None

    @classmethod
    def read(cls, files: Mapping[str, bytes]) -> Rotation:
        """Raises StepFailed."""
        if not files.get(ROTATION):
            return cls()
        try:
            found = json.loads(files[ROTATION])
            since = datetime.fromisoformat(found["since"]) if found["since"] else None
            return cls(str(found["value"]), RotationMove(found["move"]), since)
        except (ValueError, KeyError, TypeError) as error:
            raise StepFailed(
                f"{ROTATION} in the Secret of the keys cannot be read, remove it: {error}"
            ) from error

    @property
    def text(self) -> bytes:
        since = self.since.isoformat() if self.since else None
        return json.dumps({"value": self.value, "move": self.move, "since": since}).encode()


@dataclass(frozen=True, slots=True)
class NextMove:
    """`files` are to be written; without any there is nothing to do but wait, if for anything."""

    files: Mapping[str, bytes] | None = None
    waits_for: str = ""
    again_in_s: float = AGAIN_S


def asked_value(text: str) -> str:
    return text[:LONGEST_ASKED]


def is_rotating(rotation: Rotation, asked: str) -> bool:
    """Without the annotation a rotation that has begun is ended, and none begins."""
    return rotation.move is not RotationMove.DONE or bool(asked and asked != rotation.value)


def jwks_digest(files: Mapping[str, bytes]) -> str:
    """As daemons report what they have read."""
    return hashlib.sha256(files.get(JWKS, b"")).hexdigest()


def next_move(
    files: Mapping[str, bytes], asked: str, unread: Sequence[str], now: datetime, *, owns_jwt: bool
) -> NextMove:
    """`unread`: the daemons that are not seen to have read these keys, with the cure. Raises StepFailed.

    `owns_jwt`: whether jwt.key is the operator's to replace.
    """
    rotation = Rotation.read(files)
    if not is_rotating(rotation, asked):
        return NextMove()
    listed = named(unread)
    if rotation.move is RotationMove.DONE and unread:
        raise StepFailed(f"the keys are not rotated: {listed}")
    if unread:
        return NextMove(waits_for=f"{WAITS[rotation.move]}: {listed}")
    if rotation.move is RotationMove.SIGNED and rotation.since and now < rotation.since + LONGEST_CREDENTIAL:
        left_s = (rotation.since + LONGEST_CREDENTIAL - now).total_seconds()
        return NextMove(waits_for=WAITS[rotation.move], again_in_s=max(left_s, AGAIN_S))
    return NextMove(_after(rotation.move, files, asked or rotation.value, now, owns_jwt=owns_jwt))


def without_former_jwt(files: Mapping[str, bytes]) -> Mapping[str, bytes] | None:
    """What is to be written once slurmctld has read the new jwt.key; None: it was, or is not due.

    slurmctld alone accepts tokens, and those of the former key no more: nobody else is waited for.
    """
    is_due = Rotation.read(files).move is RotationMove.REPLACED and files.get(FORMER_JWT)
    return {**files, FORMER_JWT: b""} if is_due else None


def named(unread: Sequence[str]) -> str:
    more = len(unread) - MOST_NAMED
    return "; ".join([*unread[:MOST_NAMED], *([f"and {more} more"] if more > 0 else [])])


def _after(
    move: RotationMove, files: Mapping[str, bytes], asked: str, now: datetime, *, owns_jwt: bool
) -> Mapping[str, bytes]:
    rotation, keys = Rotation.read(files), keys_in(files)
    if move is RotationMove.DONE:
        changed = {JWKS: jwks_of([*keys, new_slurm_key(keys)])}
        made = Rotation(asked, RotationMove.ADDED, now)
    elif move is RotationMove.ADDED:
        changed = {JWKS: jwks_of([*keys[1:], keys[0]])}
        made = Rotation(rotation.value, RotationMove.SIGNS, now)
    elif move is RotationMove.SIGNS:
        changed = {}
        made = Rotation(rotation.value, RotationMove.SIGNED, now)
    elif move is RotationMove.SIGNED:
        changed = {JWKS: jwks_of(keys[:1])}
        if owns_jwt:
            changed |= {JWT: secrets.token_bytes(KEY_BYTES), FORMER_JWT: files.get(JWT, b"")}
        made = Rotation(rotation.value, RotationMove.REPLACED, now)
    else:
        changed = {FORMER_JWT: b""}  # a file that is left out would stay
        made = Rotation(rotation.value, RotationMove.DONE, now)
    return {**files, **changed, ROTATION: made.text}
