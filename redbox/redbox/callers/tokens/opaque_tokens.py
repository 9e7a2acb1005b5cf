"""Opaque tokens: created by `redbox token create`, shown once, stored as a hash.

A token is `rbt_<id>_<secret>`. The secret has 256 random bits, so that a plain SHA-256 suffices: it cannot be
guessed, and a slow hash would let unauthenticated clients consume the server's CPU. The file is JSON, 0600,
replaced atomically under a lock; the server reads it again when it changes.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from redbox.callers.errors import (
    AuthenticationError,
    AuthenticationUnavailable,
    TokenFault,
    TokenFileError,
    TokenNotFound,
    Unauthenticated,
)
from redbox.callers.file_version import FileVersion, file_version
from redbox.callers.identities import TokenHolder
from redbox.callers.tokens.claims import YEAR_9999
from redbox.core.clock import Clock
from redbox.core.secret_files import replace_file

PREFIX = "rbt_"
_TOKEN = re.compile(r"rbt_([a-z2-7]{10})_([A-Za-z0-9_-]{43})")
_ID_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """A token as it is stored."""

    id: str
    user: str
    digest: str
    created_at: float
    expires_at: float
    revoked_at: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class NewToken:
    """A new token with its secret, which is not stored."""

    record: TokenRecord
    secret: str


Records = Mapping[str, TokenRecord]
_FILE = TypeAdapter(dict[Literal["tokens"], list[TokenRecord]])


class TokenStore:
    """The tokens of one red-box, in one file."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._version: FileVersion | None = None
        self._records: Records = {}

    def create(self, user: str, lives_s: float, *, note: str = "") -> NewToken:
        if lives_s <= 0:
            raise ValueError("a token must live longer than 0 seconds")
        now = self._clock.now().timestamp()
        if now + lives_s > YEAR_9999:
            raise ValueError("a token must end before the year 10000")
        if not _is_utf8(user + note):  # the file would be no JSON any more, and all tokens invalid
            raise ValueError("the token's user or its note is not in UTF-8")
        identifier = "".join(secrets.choice(_ID_ALPHABET) for _ in range(10))
        secret = secrets.token_urlsafe(32)
        record = TokenRecord(identifier, user, _digest(secret), now, now + lives_s, note=note)
        self._change(lambda records: ({**records, identifier: record}, None))
        return NewToken(record, f"{PREFIX}{identifier}_{secret}")

    def list(self) -> tuple[TokenRecord, ...]:
        return tuple(sorted(self._read().values(), key=lambda record: record.created_at))

    def revoke(self, identifier: str) -> TokenRecord:
        now = self._clock.now().timestamp()

        def mark(records: Records) -> tuple[Records, TokenRecord]:
            if identifier not in records:
                raise TokenNotFound(
                    f"there is no token {identifier!r}; list the tokens by: redbox token list"
                )
            record = records[identifier]
            revoked = record if record.revoked_at is not None else replace(record, revoked_at=now)
            return {**records, identifier: revoked}, revoked

        return self._change(mark)

    def holder(self, token: str) -> TokenHolder:
        """Return the token's holder; raises Unauthenticated, or AuthenticationUnavailable for the file."""
        parts = _TOKEN.fullmatch(token)
        if parts is None:
            raise Unauthenticated(TokenFault.MALFORMED, f"the token begins with {PREFIX} but is malformed")
        try:
            record = self._read().get(parts[1])
        except TokenFileError as error:
            raise AuthenticationUnavailable(str(error)) from error
        if (
            not hmac.compare_digest(_digest(parts[2]), record.digest if record else "0" * 64)
            or record is None
        ):
            raise Unauthenticated(TokenFault.SIGNATURE, "the token is unknown")
        if (refusal := self._refusal(record)) is not None:
            raise refusal
        return TokenHolder(record.id, record.user)

    def _refusal(self, record: TokenRecord) -> AuthenticationError | None:
        if record.revoked_at is not None:
            return Unauthenticated(TokenFault.REVOKED, f"token {record.id} was revoked")
        if self._clock.now().timestamp() >= record.expires_at:
            return Unauthenticated(TokenFault.EXPIRED, f"token {record.id} has expired: create a new one")
        return None

    def _read(self) -> Records:
        version = file_version(self._path)
        if version is None or version != self._version:
            self._records, self._version = _parse(self._path), version
        return self._records

    def _change(self, change: Callable[[Records], tuple[Records, Result]]) -> Result:
        try:
            with _locked(self._path):
                records, result = change(self._read())
                _replace(self._path, records)
        except OSError as error:
            raise TokenFileError(f"{self._path} cannot be written: {error.strerror}") from error
        return result


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a word of a command line may be any bytes
        return False
    return True


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _parse(path: Path) -> Records:
    try:
        content = _FILE.validate_json(path.read_bytes())
    except FileNotFoundError:  # the one file without tokens: one that cannot be read may have some
        return {}
    except OSError as error:
        raise TokenFileError(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        flaws = "; ".join(f"{'.'.join(map(str, flaw['loc']))}: {flaw['msg']}" for flaw in error.errors()[:3])
        raise TokenFileError(f"{path} is not a valid file of tokens: {flaws}") from error
    return {record.id: record for record in content.get("tokens", ())}


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock beside the file. The kernel frees it when the holder dies."""
    descriptor = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if (owner := _owner_of(path.parent)) is not None:
            os.fchown(descriptor, *owner)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, records: Records) -> None:
    content = json.dumps({"tokens": [asdict(record) for record in records.values()]}, indent=1)
    replace_file(path, f"{content}\n".encode(), owner=_owner_of(path.parent))


def _owner_of(directory: Path) -> tuple[int, int] | None:
    """Tokens that root creates must be readable by the server's account."""
    status = directory.stat()
    return (status.st_uid, status.st_gid) if os.geteuid() == 0 else None
