"""Reads the existing installation for `redbox init`, and writes the planned files, each atomically."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Callable
from pathlib import Path

from redbox.core.secret_files import replace_file
from redbox.server.certificates import BadCertificate, CertificateAndKey, fits, is_issued_by
from redbox.settings import load_settings
from redbox.setup.install.layout import SERVICE_ACCOUNT, FileOwner, Layout
from redbox.setup.install.plan import ExistingFiles, InitPlan, NewFile

REPLACE_PAIR = "restore or remove both files, then run redbox init again"


class InstallError(Exception):
    """The installation is incomplete; the message names the cure."""


def read_existing(layout: Layout) -> ExistingFiles:
    """Read the existing files; raises InstallError or DocumentError if they cannot be used."""
    settings = load_settings(layout.settings) if layout.settings.exists() else None
    certificate, key = layout.certificate, layout.key
    if settings is not None:
        certificate, key = settings.tls.certificate_file, settings.tls.key_file
    authority, server = _pair(layout.authority_certificate, layout.authority_key), _pair(certificate, key)
    if server is None:
        _refuse_half_of_the_sites_own(certificate, key, authority)
    return ExistingFiles(
        settings,
        authority=authority,
        server=server,
        has_mark_secret=os.path.lexists(settings.jobs.mark_secret if settings else layout.mark_secret),
        has_agent_settings=layout.agent_settings.exists(),
    )


def write_plan(plan: InitPlan, layout: Layout) -> None:
    """Write the planned files; run by root, the service's account owns its secrets."""
    try:
        for directory in (layout.configuration, layout.configuration / "tls"):  # root may have umask 077
            _make_directory(directory, 0o755, "root")
        _make_directory(layout.state, 0o700, "service")
        _make_directory(layout.log, 0o750, "service")
        for file in plan.files:
            _make_directory(file.path.parent, 0o755, "root")
            write_file(file)
    except OSError as error:
        raise InstallError(f"{error.filename} cannot be written: {error.strerror}") from error


def host_names() -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in (socket.getfqdn(), socket.gethostname()) if name))


def _pair(certificate: Path, key: Path) -> CertificateAndKey | None:
    try:
        if not certificate.exists() or not key.exists():
            return None
        pair = CertificateAndKey(certificate.read_bytes(), key.read_bytes())
        if fits(pair):
            return pair
    except OSError as error:
        what = f"{error.filename} cannot be read: {error.strerror}"
        raise InstallError(f"{what}: run redbox init as root") from error
    except BadCertificate as error:
        raise InstallError(f"{certificate}, {key}: {error}: {REPLACE_PAIR}") from error
    raise InstallError(f"{key} is not the key of {certificate}: {REPLACE_PAIR}")


def _refuse_half_of_the_sites_own(certificate: Path, key: Path, authority: CertificateAndKey | None) -> None:
    """Raise InstallError for one file without the other, unless red-box's own CA can give both again."""
    if key.exists():
        raise InstallError(f"{certificate} is missing, the certificate of {key}: {REPLACE_PAIR}")
    if not certificate.exists():
        return
    if authority is None or not is_issued_by(certificate.read_bytes(), authority.certificate):
        raise InstallError(f"{key} is missing, the key of {certificate}: {REPLACE_PAIR}")


def _make_directory(path: Path, mode: int, owner: FileOwner) -> None:
    if path.exists():
        return
    _make_directory(path.parent, 0o755, "root")  # whatever the umask lets others do there
    path.mkdir(mode)
    path.chmod(mode)
    ids = owner_ids(owner)
    if ids is not None:
        os.chown(path, *ids)


def write_file(file: NewFile, check: Callable[[Path], None] | None = None) -> None:
    """Replace a file atomically; `check` may raise InstallError over the new content."""
    replace_file(file.path, file.content, mode=file.mode, owner=owner_ids(file.owner), check=check)


def owner_ids(owner: FileOwner) -> tuple[int, int] | None:
    """The uid and gid; None: not root, so files belong to the account that runs this."""
    if os.geteuid() != 0:
        return None
    if owner == "root":
        return 0, 0
    try:
        entry = pwd.getpwnam(SERVICE_ACCOUNT)
    except KeyError:
        raise InstallError(
            f"there is no account {SERVICE_ACCOUNT}: useradd --system -d /var/lib/redbox {SERVICE_ACCOUNT}"
        ) from None
    return entry.pw_uid, entry.pw_gid
