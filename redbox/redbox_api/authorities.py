"""Certificates of authorities: from bundles of administrators to PEM for `ssl`."""

from __future__ import annotations


def pem_of(bundle: str | bytes) -> str:
    """A bundle in ASCII, which is all of PEM: certificates come with comments, in any script and encoding.

    ValueError if nothing is left. An empty bundle stays empty: TLS clients then use the system's authorities.
    """
    raw = bundle.encode("ascii", "ignore") if isinstance(bundle, str) else bundle
    pem = raw.decode("ascii", "ignore")
    if bundle and not pem.strip():
        raise ValueError("it holds no certificate in PEM")
    return pem
