"""Reads what is there for `redbox init`, and writes what was planned: each file whole, or not at all."""

from __future__ import annotations

import os
import pwd
import socket
from pathlib import Path

from redbox.server.certificates import BadCertificate, CertificateAndKey, fits
from redbox.settings import load_settings
from redbox.setup.install.layout import SERVICE_ACCOUNT, Layout, Whose
from redbox.setup.install.plan import Found, InitPlan, NewFile


class NotInstalled(Exception):
    """Nothing, or not everything, could be written; the message says what to do."""


def find(layout: Layout) -> Found:
    """Look at what is there; raises NotInstalled or DocumentError where that cannot be used."""
    settings = load_settings(layout.settings) if layout.settings.exists() else None
    certificate, key = layout.certificate, layout.key
    if settings is not None:
        certificate, key = settings.tls.certificate_file, settings.tls.key_file
    return Found(
        settings,
        authority=_pair(layout.authority_certificate, layout.authority_key),
        server=_pair(certificate, key),
        has_mark_secret=layout.mark_secret.exists(),
        has_agent_settings=layout.agent_settings.exists(),
    )


def install(plan: InitPlan, layout: Layout) -> None:
    """Write the planned files. As root, what the service must read alone becomes its own."""
    try:
        _make_directory(layout.configuration / "tls", 0o755, "root")
        _make_directory(layout.state, 0o700, "service")
        _make_directory(layout.log, 0o750, "service")
        for file in plan.files:
            _make_directory(file.path.parent, 0o755, "root")
            _write(file)
    except OSError as error:
        raise NotInstalled(f"{error.filename} could not be written: {error.strerror}") from error


def host_names() -> tuple[str, ...]:
    """What this host calls itself, the full name first."""
    return tuple(dict.fromkeys(name for name in (socket.getfqdn(), socket.gethostname()) if name))


def _pair(certificate: Path, key: Path) -> CertificateAndKey | None:
    try:
        if not certificate.exists() or not key.exists():
            return None
        pair = CertificateAndKey(certificate.read_bytes(), key.read_bytes())
        if fits(pair):
            return pair
    except OSError as error:
        raise NotInstalled(
            f"{error.filename} cannot be read: {error.strerror}: run redbox init as root"
        ) from error
    except BadCertificate as error:
        raise NotInstalled(
            f"{certificate}, {key}: {error}: mend or remove them, then run redbox init"
        ) from error
    raise NotInstalled(f"{key} is not the key of {certificate}: mend or remove them, then run redbox init")


def _make_directory(path: Path, mode: int, whose: Whose) -> None:
    if path.exists():
        return
    path.mkdir(parents=True)
    path.chmod(mode)
    owner = _owner(whose)
    if owner is not None:
        os.chown(path, *owner)


def _write(file: NewFile) -> None:
    temporary = file.path.with_name(f".{file.path.name}.new")
    temporary.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(temporary, flags, 0o600), "wb") as opened:
        owner = _owner(file.whose)
        if owner is not None:
            os.fchown(opened.fileno(), *owner)
        os.fchmod(opened.fileno(), file.mode)
        opened.write(file.content)
        opened.flush()
        os.fsync(opened.fileno())
    temporary.replace(file.path)


def _owner(whose: Whose) -> tuple[int, int] | None:
    """Who shall own it; None for whoever runs this, where that is not root."""
    if os.geteuid() != 0:
        return None
    if whose == "root":
        return 0, 0
    try:
        entry = pwd.getpwnam(SERVICE_ACCOUNT)
    except KeyError:
        raise NotInstalled(
            f"there is no account {SERVICE_ACCOUNT}: useradd --system -d /var/lib/redbox {SERVICE_ACCOUNT}"
        ) from None
    return entry.pw_uid, entry.pw_gid
