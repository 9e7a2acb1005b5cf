"""Checks of the server's certificate."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from redbox.server.certificates import BadCertificate, CertificateAndKey, CertificateFacts, facts_of, fits
from redbox.settings import RedboxSettings
from redbox.setup.checks.findings import Finding, fault, warning
from redbox.setup.checks.machine import Machine

SOON = timedelta(days=30)
RENEW = "run redbox init as root, or renew the site's own certificate"


def check_certificate(machine: Machine, settings: RedboxSettings) -> Iterator[Finding]:
    """It is there, fits its key, is valid now and for another month, and has a subjectAltName."""
    if settings.listen.port == 0:
        return
    path = settings.tls.certificate_file
    certificate, key = machine.read(path), machine.read(settings.tls.key_file)
    if certificate is None:
        yield fault(f"{path} cannot be read", RENEW)
        return
    try:
        facts = facts_of(certificate)
        if key is not None and not fits(CertificateAndKey(certificate, key)):
            yield fault(f"{settings.tls.key_file} is not the key of {path}", RENEW)
    except BadCertificate as error:
        yield fault(f"{path} and {settings.tls.key_file} cannot be used: {error}", RENEW)
        return
    yield from _check_facts(facts, str(path), machine)


def _check_facts(facts: CertificateFacts, path: str, machine: Machine) -> Iterator[Finding]:
    now = machine.now()
    if now >= facts.not_after:
        yield fault(f"{path} expired on {facts.not_after:%Y-%m-%d}: callers reject it", RENEW)
    elif now >= facts.not_after - SOON:
        yield warning(f"{path} expires on {facts.not_after:%Y-%m-%d}", RENEW)
    if now < facts.not_before:
        cure = "set this host's clock (timedatectl), or wait until then"
        yield fault(f"{path} is not valid before {facts.not_before:%Y-%m-%d %H:%M} UTC", cure)
    if not facts.names and not facts.addresses:
        yield fault(f"{path} has no subjectAltName: callers reject it", RENEW)
    if facts.is_authority:
        yield warning(
            f"{path} is the certificate of a CA", "use a certificate for this host that the CA has signed"
        )
