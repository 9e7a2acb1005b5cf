"""Marks: the text that a job carries in Slurm and that identifies it.

`rb1.<key>.<attempt>.<cluster id>.<owner id>.<body id>.<mac>`, about 110 characters of `[A-Za-z0-9.-]`,
which comment fields, submit lines and accounting carry unharmed. The ids are keyed hashes, which reveal
no names. The MAC also covers Slurm's cluster name and the numeric uid: a mark copied to another
user's job, or made up, does not verify. Two jobs of one user may carry the same mark, because callers that
share a Unix user share everything.

The secret lives in a file of its own, outside the journal, so that a lost journal can be rebuilt and a
standby knows the marks. `queue_snapshot` decides which record a mark belongs to.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from redbox.core.domain import JobKey, Owner
from redbox.core.secret_files import is_private
from redbox.jobs.errors import JobsError
from redbox_api.models import JobRequest

PREFIX = "rb1."
SECRET_BYTES = 32
NAMES_LENGTH, ACCOUNT_UID_LENGTH, BODY_LENGTH, CLUSTER_LENGTH, MAC_LENGTH = 12, 8, 16, 8, 20
PATTERN = re.compile(
    r"rb1\.(?P<key>[A-Za-z0-9-]{1,64})\.(?P<attempt>[1-9][0-9]{0,8})\.(?P<cluster>[a-z2-7]{8})"
    r"\.(?P<owner>[a-z2-7]{20})\.(?P<body>[a-z2-7]{16})\.(?P<mac>[a-z2-7]{20})"
)


class SecretUnusable(JobsError):
    """The secret's file is missing, readable by others, or malformed."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A parsed mark; trusted only after `Marks.verify`."""

    key: str
    attempt: int
    cluster_id: str
    owner_id: str
    body_id: str

    @property
    def names_id(self) -> str:
        """The part of the owner that an operator can name: cluster, namespace and account."""
        return self.owner_id[:NAMES_LENGTH]

    @property
    def account_uid_id(self) -> str:
        return self.owner_id[NAMES_LENGTH:]


def parse(text: str) -> tuple[Mark, str] | None:
    """A mark and its MAC from a comment, unverified; None if the text is not a mark."""
    found = PATTERN.fullmatch(text)
    if found is None:
        return None
    mark = Mark(found["key"], int(found["attempt"]), found["cluster"], found["owner"], found["body"])
    return mark, found["mac"]


@dataclass(frozen=True, slots=True)
class Marks:
    """Makes and verifies the marks of one Slurm cluster."""

    secret: bytes
    slurm_cluster: str

    def make(self, key: JobKey, body_id: str, uid: int) -> str:
        """The mark of a job that this user submits."""
        cluster_id, owner_id = (
            self._hash("cluster", CLUSTER_LENGTH, key.owner.cluster),
            self.owner_id(key.owner),
        )
        stem = f"{PREFIX}{key.key}.{key.attempt}.{cluster_id}.{owner_id}.{body_id}"
        return f"{stem}.{self._mac(stem, uid)}"

    def verify(self, text: str, uid: int) -> Mark | None:
        """The mark, if this red-box made it for a job of this user on this Slurm cluster."""
        parsed = parse(text)
        if parsed is None:
            return None
        mark, mac = parsed
        expected = self._mac(text.rpartition(".")[0], uid)
        return mark if hmac.compare_digest(mac, expected) else None

    def owner_id(self, owner: Owner) -> str:
        """An owner as the mark has it: its names, then its account's uid."""
        return self.names_id(owner) + self.account_uid_id(owner.account_uid)

    def names_id(self, owner: Owner) -> str:
        return self._hash("owner", NAMES_LENGTH, owner.cluster, owner.namespace, owner.account)

    def account_uid_id(self, account_uid: str) -> str:
        return self._hash("account uid", ACCOUNT_UID_LENGTH, account_uid)

    def body_digest(self, request: JobRequest) -> str:
        """A digest of the whole body, secrets included; keyed, so that a short one cannot be guessed.

        Fields at their defaults have no part in it: a later release, with more fields, makes the same. Nor
        have a pod's inputs, which are versions of what is digested.
        """
        apart: Mapping[str, bool | set[str]] = {"spec_digest": True, "pod": {"inputs"}}
        body = request.model_dump(mode="python", exclude=apart, exclude_defaults=True)
        return self._hash("body", BODY_LENGTH, json.dumps(body, sort_keys=True, default=_plain))

    def body_id(self, request: JobRequest, body_digest: str | None = None) -> str:
        """The identity of a request: the caller's own digest of its spec, else that of the whole body."""
        if request.spec_digest is None:
            return body_digest or self.body_digest(request)
        return self._hash("spec", BODY_LENGTH, request.spec_digest)

    def _mac(self, stem: str, uid: int) -> str:
        return self._hash("mac", MAC_LENGTH, stem, self.slurm_cluster, str(uid))

    def _hash(self, purpose: str, length: int, *parts: str) -> str:
        message = json.dumps([purpose, *parts]).encode()
        digest = hmac.digest(self.secret, message, hashlib.sha256)
        return base64.b32encode(digest).decode().lower()[:length]


def _plain(value: object) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, bytes):  # base64
        return value.decode()
    raise TypeError(value)


def key8(key: str) -> str:
    """Eight characters that stand for a key in a directory's name: a UID's first, else a digest's."""
    if re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", key):
        return key[:8]
    return base64.b32encode(hashlib.sha256(key.encode()).digest()).decode().lower()[:8]


def read_secret(path: Path) -> bytes:
    """The secret from its file, refused where others could have read it."""
    try:
        with path.open() as file:
            status = os.fstat(file.fileno())
            text = file.read(1024).strip()
    except OSError as error:
        raise SecretUnusable(
            f"The secret of the marks cannot be read: {error}. `redbox init` makes one."
        ) from error
    if not is_private(status):
        mode = stat.S_IMODE(status.st_mode)
        raise SecretUnusable(
            f"{path} can be read by others (mode {mode:04o}): chmod 600 it, and think of who has read it."
        )
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise SecretUnusable(f"{path} is not a secret made by red-box (64 hexadecimal digits expected).")
    return bytes.fromhex(text)
