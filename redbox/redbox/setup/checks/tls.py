"""Checks of the certificate that red-box shows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from redbox.server.certificates import BadCertificate, CertificateAndKey, CertificateFacts, facts_of, fits
from redbox.settings import Settings
from redbox.setup.checks.findings import Finding, fault, warning
from redbox.setup.checks.machine import Machine

SOON = timedelta(days=30)
RENEW = "run redbox init as root, or renew the site's own certificate; then reload red-box"


def check_certificate(machine: Machine, settings: Settings) -> Iterator[Finding]:
    """It is there, fits its key, is valid now and for a while, and names somebody."""
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
        yield fault(f"{path} ended on {facts.not_after:%Y-%m-%d}: no caller accepts it", RENEW)
    elif now >= facts.not_after - SOON:
        yield warning(f"{path} ends on {facts.not_after:%Y-%m-%d}", RENEW)
    if now < facts.not_before:
        cure = "is this host's clock right?"
        yield fault(f"{path} is valid from {facts.not_before:%Y-%m-%d %H:%M} UTC only", cure)
    if not facts.names and not facts.addresses:
        yield fault(f"{path} is for no host: it has no subjectAltName", RENEW)
    if facts.is_authority:
        yield warning(f"{path} is a CA's own certificate", "have it sign one for this host, and use that")
