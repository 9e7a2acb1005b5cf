"""A server's certificate and key, and the authorities of its clients.

They are tls.crt, tls.key and ca.crt in one folder, as a Secret of cert-manager or of the operator has them,
and are read again when they change. While an authority is replaced, ca.crt has both. Each version gets a new
context, since a context cannot forget an authority.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from redbox_slurmpod.projected_files import version_folder

log = logging.getLogger(__name__)
_FILES = ("tls.crt", "tls.key", "ca.crt")
Version = tuple[object, ...]


class ReloadedCertificate:
    """`context` is for the next connection. Where the newest files do not load, the ones before serve on."""

    def __init__(self, folder: Path, *, asks_clients: bool) -> None:
        self._folder = folder
        self._asks_clients = asks_clients
        self._version: Version = ()
        self._reported: Version = ()
        self._context: ssl.SSLContext | None = None

    def context(self) -> ssl.SSLContext | None:
        """None until there has been a certificate that can be used."""
        folder = version_folder(self._folder)
        version = _version_of(folder)
        if version == self._version:
            return self._context
        try:
            self._context = _load(folder, asks_clients=self._asks_clients)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            if version != self._reported:
                self._reported = version
                log.warning("the certificate in %s cannot be used: %s", self._folder, error)
        else:
            self._version = version
        return self._context


def _load(folder: Path, *, asks_clients: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    if asks_clients:
        context.load_verify_locations(folder / "ca.crt")
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def _version_of(folder: Path) -> Version:
    return (folder, *(_file_version(folder / name) for name in _FILES))


def _file_version(file: Path) -> Version:
    try:
        status = file.stat()
    except OSError:
        return ()
    return status.st_ino, status.st_mtime_ns, status.st_size
