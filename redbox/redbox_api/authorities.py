"""The certificates of authorities, as administrators give them and as `ssl` takes them."""

from __future__ import annotations


def pem_of(bundle: str | bytes) -> str:
    """A bundle in ASCII, which is all of PEM: certificates come with comments, in any script and encoding.

    ValueError where nothing of it is left. An empty one stays empty: that is none, and to those who speak TLS
    it means the authorities of the system.
    """
    raw = bundle.encode("ascii", "ignore") if isinstance(bundle, str) else bundle
    pem = raw.decode("ascii", "ignore")
    if bundle and not pem.strip():
        raise ValueError("it holds no certificate in PEM")
    return pem
