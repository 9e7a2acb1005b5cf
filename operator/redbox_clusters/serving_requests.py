"""Requests for the serving certificate of virtual nodes: resourced writes them, the operator reads them."""

from __future__ import annotations

import base64
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from redbox_kube.api.objects import Object

GROUP = "system:nodes"
USER = "system:node:redbox_virtual"
"""No Node can have this name, and no pod can name it.

resourced may impersonate this user, and create Nodes: as the user of a Node that exists it could read the
Secrets of the pods on it, and request their tokens.
"""
SIGNER = "kubernetes.io/kubelet-serving"
USAGES = ["digital signature", "server auth"]
RESOURCED = "redbox-resourced"
"""The label app.kubernetes.io/name of its pods, and the prefix of its requests' names."""


def signing_request(key: ec.EllipticCurvePrivateKey, address: str) -> bytes:
    """As the signer requires it; PEM."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject())
    builder = builder.add_extension(names(address), critical=False)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def subject() -> x509.Name:
    attributes = ((NameOID.ORGANIZATION_NAME, GROUP), (NameOID.COMMON_NAME, USER))
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])


def names(address: str) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])


def spec_of(request: bytes) -> Object:
    return {"signerName": SIGNER, "usages": USAGES, "request": base64.b64encode(request).decode()}


def address_of(spec: Object) -> str | None:
    """The address that the certificate will be for; None if resourced does not write such a request."""
    if (spec.get("signerName"), spec.get("username"), spec.get("usages")) != (SIGNER, USER, USAGES):
        return None
    try:
        request = x509.load_pem_x509_csr(base64.b64decode(spec["request"]))
        extensions = [extension.value for extension in request.extensions]
    except (KeyError, TypeError, ValueError):
        return None
    match extensions:
        case [x509.SubjectAlternativeName() as requested] if request.subject == subject():
            address, *others = requested
            return str(address.value) if isinstance(address, x509.IPAddress) and not others else None
    return None
