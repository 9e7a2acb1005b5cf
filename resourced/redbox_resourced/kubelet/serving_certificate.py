"""The serving certificate of all virtual nodes: its source, and its renewal.

All share one listener, and so one certificate: the API server checks the address, not the node's name.
Sources, in this order: files that an administrator provides; else a certificate that the cluster signs, once
the operator or an administrator has approved the request; and until then a self-signed one, which an API
server accepts that verifies none. Keys are generated here and never leave this pod's own folder: after a
restart in the same pod the request stays the same.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ipaddress
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from redbox_clusters.serving_requests import (
    GROUP,
    RESOURCED,
    USER,
    names,
    signing_request,
    spec_of,
    subject,
)
from redbox_kube.api import kinds
from redbox_kube.api.objects import ApiError, Object, ObjectClient, ResourcePath

log = structlog.get_logger(__name__)
SELF_SIGNED_FOR = timedelta(days=90)
RENEW_AT = 0.8  # of a certificate's life, before it is renewed
KEY, CERTIFICATE, REQUESTED_KEY = "serving.key", "serving.crt", "requested.key"
EXPIRY_MARGIN = timedelta(minutes=10)
POLL_S = 5.0
RETRY_S = 30.0
Key = ec.EllipticCurvePrivateKey


@dataclass(frozen=True)
class CertificateLife:
    """When its renewal is due, and when it ends."""

    renewal: datetime
    end: datetime


@dataclass(frozen=True)
class ServingKeyPair:
    """A certificate and its key, as PEM."""

    certificate: bytes
    key: bytes

    @classmethod
    def read(cls, certificate: Path, key: Path) -> ServingKeyPair:
        return cls(certificate.read_bytes(), key.read_bytes())

    def life(self) -> CertificateLife:
        certificate = x509.load_pem_x509_certificate(self.certificate)
        begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
        return CertificateLife(begin + RENEW_AT * (end - begin), end)

    def renewal(self) -> datetime:
        return self.life().renewal

    def is_for(self, address: str) -> bool:
        certificate = x509.load_pem_x509_certificate(self.certificate)
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return ipaddress.ip_address(address) in names.get_values_for_type(x509.IPAddress)

    def belong_together(self) -> bool:
        key = serialization.load_pem_private_key(self.key, None)
        return key.public_key() == x509.load_pem_x509_certificate(self.certificate).public_key()


def make_key() -> Key:
    return ec.generate_private_key(ec.SECP256R1())


def key_pem(key: Key) -> bytes:
    pkcs8 = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, pkcs8, serialization.NoEncryption())


def self_signed(key: Key, address: str, now: datetime) -> ServingKeyPair:
    """For API servers that do not verify it."""
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject())
        .issuer_name(subject())
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + SELF_SIGNED_FOR)
        .add_extension(names(address), critical=False)
        .add_extension(usage, critical=False)
        .sign(key, hashes.SHA256())
    )
    return ServingKeyPair(certificate.public_bytes(serialization.Encoding.PEM), key_pem(key))


@dataclass
class ServingCertificate:
    """Provides key pairs while `run` runs; `changed` is called with each new one."""

    objects: ObjectClient
    address: str
    folder: Path
    given: Path | None
    changed: Callable[[ServingKeyPair], None]
    note: str = ""
    """What an administrator has yet to do for it; empty where there is nothing."""
    life: CertificateLife | None = None
    """Of the certificate that is served."""
    is_self_signed: bool = False

    async def run(self) -> None:
        if self.given:
            await self._follow_files(self.given)
        pair = self._stored()
        while True:
            if pair is not None:
                self._use(pair)
                await _sleep_until(pair.renewal())
            pair = await self._request_signed(current=pair)

    async def _follow_files(self, folder: Path) -> None:
        """A mounted Secret, which is renewed elsewhere."""
        current: ServingKeyPair | None = None
        while True:
            try:
                pair = ServingKeyPair.read(folder / "tls.crt", folder / "tls.key")
            except OSError as error:
                self._set_note(f"the serving certificate cannot be read: {error}")
            else:
                if pair != current:
                    self._use(pair)
                    current = pair
            await asyncio.sleep(POLL_S)

    async def _request_signed(self, current: ServingKeyPair | None) -> ServingKeyPair:
        """Request one and wait for approval; meanwhile serve the current one, then a self-signed one."""
        key = self._requested_key()
        async with asyncio.TaskGroup() as group:
            bridging = group.create_task(self._bridge(current, key))
            certificate = await self._request_until_signed(key, _shown(current))
            bridging.cancel()
        pair = ServingKeyPair(certificate, key_pem(key))
        self._store(KEY, pair.key)
        self._store(CERTIFICATE, pair.certificate)
        (self.folder / REQUESTED_KEY).unlink(missing_ok=True)
        return pair

    async def _bridge(self, current: ServingKeyPair | None, key: Key) -> None:
        if current is not None:
            end = x509.load_pem_x509_certificate(current.certificate).not_valid_after_utc
            left = end - datetime.now(UTC)  # a certificate may last no longer than the margin
            await _sleep_until(end - min(EXPIRY_MARGIN, left / 4))
        while True:
            own = self_signed(key, self.address, datetime.now(UTC))
            self.is_self_signed = True
            self._serve(own)
            await _sleep_until(own.renewal())

    async def _request_until_signed(self, key: Key, shown: str) -> bytes:
        node = self.objects.impersonating(USER, GROUP)
        name = _request_name(key, self.address)
        path = ResourcePath(kinds.CERTIFICATE_SIGNING_REQUEST, name)
        try:
            while True:
                try:
                    request = await node.get(path) or await node.create(path.all(), self._request(name, key))
                except ApiError as error:
                    self._set_note(f"{shown}, and no other could be requested: {error}")
                    await asyncio.sleep(RETRY_S)
                    continue
                status = (request or {}).get("status", {})
                if status.get("certificate"):
                    return base64.b64decode(status["certificate"])
                self._set_note(_request_note(name, status, shown))
                await asyncio.sleep(POLL_S)
        finally:
            await node.close()

    def _request(self, name: str, key: Key) -> Object:
        return {
            "apiVersion": kinds.CERTIFICATE_SIGNING_REQUEST.api_version,
            "kind": "CertificateSigningRequest",
            "metadata": {"name": name},
            "spec": spec_of(signing_request(key, self.address)),
        }

    def _use(self, pair: ServingKeyPair) -> None:
        self.note, self.is_self_signed = "", False
        self._serve(pair)

    def _serve(self, pair: ServingKeyPair) -> None:
        try:
            self.life = pair.life()
        except ValueError as error:  # files of others: the listener reports that it cannot use them
            log.warning("serving certificate", unreadable=str(error))
        self.changed(pair)

    def _set_note(self, note: str) -> None:
        if note != self.note:
            log.warning("serving certificate", note=note)
        self.note = note

    # -- files that survive a restart in the same pod

    def _stored(self) -> ServingKeyPair | None:
        try:
            pair = ServingKeyPair.read(self.folder / CERTIFICATE, self.folder / KEY)
            is_usable = pair.belong_together() and pair.is_for(self.address)  # it may have died between both
            return pair if is_usable and pair.renewal() > datetime.now(UTC) else None
        except (FileNotFoundError, ValueError):
            return None

    def _requested_key(self) -> Key:
        """The key of the pending request, else a new key."""
        try:
            key = serialization.load_pem_private_key((self.folder / REQUESTED_KEY).read_bytes(), None)
        except (FileNotFoundError, ValueError):
            key = None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            key = make_key()
            self._store(REQUESTED_KEY, key_pem(key))
        return key

    def _store(self, name: str, content: bytes) -> None:
        """Where it cannot be stored, the next start makes a new request."""
        temporary = self.folder / f".{name}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(content)
            temporary.replace(self.folder / name)
        except OSError as error:
            log.warning("serving certificate not stored", folder=str(self.folder), error=str(error))


def _shown(current: ServingKeyPair | None) -> str:
    """What clients see until the next one is there."""
    if current is None:
        return "the serving certificate is self-signed"
    end = x509.load_pem_x509_certificate(current.certificate).not_valid_after_utc
    return f"the serving certificate ends at {end:%Y-%m-%d %H:%M} UTC, and is self-signed then"


def _request_note(name: str, status: Object, shown: str) -> str:
    conditions = {
        condition["type"]: condition.get("message", "") for condition in status.get("conditions", [])
    }
    request = f"CertificateSigningRequest {name}"
    for verdict in ("Denied", "Failed"):
        if verdict in conditions:
            why = conditions[verdict] or "without a reason"
            again = f"to have another one made, run: kubectl delete csr {name}"
            return f"{shown}: {request} is {verdict.lower()} ({why}); {again}"
    if "Approved" in conditions:
        return f"{shown}: {request} is approved and waits for the cluster's signer"
    return f"{shown}; to replace it, run: kubectl certificate approve {name}"


def _request_name(key: Key, address: str) -> str:
    public = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return f"{RESOURCED}-{hashlib.sha256(public + address.encode()).hexdigest()[:10]}"


async def _sleep_until(time: datetime) -> None:
    await asyncio.sleep(max(0.0, (time - datetime.now(UTC)).total_seconds()))
