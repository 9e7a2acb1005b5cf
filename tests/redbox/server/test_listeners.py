"""A listener that cannot be opened is an error of one sentence; an invalid certificate changes nothing."""

import asyncio
import os
import socket
import ssl
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI

from redbox.callers.connection_limits import ConnectionLimiter
from redbox.server.certificates import CertificateAndKey, facts_of, issue_server, make_authority
from redbox.server.listeners import (
    ListenError,
    bound_path,
    bound_port,
    certificate_ends,
    follow_certificate,
    open_listeners,
    reload_certificate,
)
from redbox.settings import ListenSettings, TlsSettings
from redbox_api.connections import IDLE_S


@pytest.fixture(scope="module")
def pairs() -> tuple[CertificateAndKey, CertificateAndKey]:
    now = datetime.now(UTC)
    authority = make_authority("tests", now)
    return issue_server(authority, ["one"], [], now), issue_server(authority, ["two"], [], now)


def test_a_port_that_is_taken_is_said_and_how_to_mend_it() -> None:
    with (
        bound_port("127.0.0.1", 0) as taken,
        pytest.raises(ListenError, match=r"already in use\. .*listen\.port"),
    ):
        bound_port("127.0.0.1", taken.getsockname()[1])


def test_an_idle_connection_is_ended_by_the_client_long_before_the_server(tmp_path: Path) -> None:
    listen = ListenSettings(port=0, unix_socket=tmp_path / "socket")
    (listener,) = open_listeners(listen, TlsSettings(), FastAPI(), ConnectionLimiter())
    listener.config.load()
    assert listener.config.timeout_keep_alive >= IDLE_S * 2


def test_connections_send_at_once() -> None:
    with (
        bound_port("127.0.0.1", 0) as opened,
        socket.create_connection(opened.getsockname()),
        opened.accept()[0] as accepted,
    ):
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_socket_that_a_killed_server_left_is_replaced_and_open_to_all_users(tmp_path: Path) -> None:
    path = tmp_path / "redbox.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with bound_path(path), socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(path))
        assert path.stat().st_mode & 0o777 == 0o666


def test_a_file_in_the_sockets_place_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "redbox.sock"
    path.write_text("precious")
    with pytest.raises(ListenError, match="is not a socket"):
        bound_path(path)
    assert path.read_text() == "precious"


def test_a_socket_without_its_directory_is_said(tmp_path: Path) -> None:
    with pytest.raises(ListenError, match="Its directory must exist"):
        bound_path(tmp_path / "none" / "none" / "redbox.sock")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a folder away")
@pytest.mark.parametrize(
    ("owner", "group", "mode", "refused"),
    [
        (-1, -1, 0o777, True),
        (2002, -1, 0o755, True),
        (-1, -1, 0o1777, False),
        (-1, 2002, 0o775, True),
        (-1, 2002, 0o755, False),
        (-1, 2002, 0o1775, False),
        (-1, 0, 0o775, False),
    ],
)
def test_a_socket_where_others_can_replace_it_is_refused(
    tmp_path: Path, owner: int, group: int, mode: int, *, refused: bool
) -> None:
    """They would have the mode of a file of red-box's changed by a link, or answer in its place."""
    os.chown(tmp_path, owner, group)
    tmp_path.chmod(mode)
    with pytest.raises(ListenError, match="Other users can replace") if refused else nullcontext():
        bound_path(tmp_path / "redbox.sock").close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a folder away")
def test_a_directory_that_a_stranger_makes_first_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look whether it is there and its making."""
    made, folder = Path.mkdir, tmp_path / "redbox"

    def made_by_another(path: Path, **how: Any) -> None:
        made(path)
        os.chown(path, 2002, -1)
        made(path, **how)

    monkeypatch.setattr(Path, "mkdir", made_by_another)
    with pytest.raises(ListenError, match="Other users can replace"):
        bound_path(folder / "redbox.sock")
    assert not list(folder.iterdir())


def test_a_sockets_directory_that_is_gone_is_made_anew_for_its_owner_alone(tmp_path: Path) -> None:
    with bound_path(tmp_path / "redbox" / "redbox.sock"):
        assert (tmp_path / "redbox").stat().st_mode & 0o777 == 0o700


def test_a_certificate_that_cannot_be_used_is_said(tmp_path: Path) -> None:
    listen = ListenSettings(address="127.0.0.1", port=1, unix_socket=None)
    tls = TlsSettings(certificate_file=tmp_path / "none.crt", key_file=tmp_path / "none.key")
    with pytest.raises(ListenError, match=r"none\.crt .* cannot be used"):
        open_listeners(listen, tls, FastAPI(), ConnectionLimiter())


def test_clients_get_no_tickets_that_they_would_keep(
    tmp_path: Path, pairs: tuple[CertificateAndKey, CertificateAndKey]
) -> None:
    _write(tmp_path, pairs[0])
    with bound_port("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    listen = ListenSettings(address="127.0.0.1", port=port, unix_socket=None)
    tls = TlsSettings(certificate_file=tmp_path / "server.crt", key_file=tmp_path / "server.key")
    (listener,) = open_listeners(listen, tls, FastAPI(), ConnectionLimiter())
    assert listener.config.ssl is not None
    assert listener.config.ssl.num_tickets == 0


def test_a_new_certificate_with_anothers_key_leaves_the_old_one(
    tmp_path: Path, pairs: tuple[CertificateAndKey, CertificateAndKey]
) -> None:
    config = _tls_config(tmp_path, pairs[0])
    (tmp_path / "server.crt").write_bytes(pairs[1].certificate)

    reload_certificate(config)

    assert _shown_by(config) == ssl.PEM_cert_to_DER_cert(pairs[0].certificate.decode())


def test_a_new_certificate_is_shown(
    tmp_path: Path, pairs: tuple[CertificateAndKey, CertificateAndKey]
) -> None:
    config = _tls_config(tmp_path, pairs[0])
    _write(tmp_path, pairs[1])

    reload_certificate(config)

    assert _shown_by(config) == ssl.PEM_cert_to_DER_cert(pairs[1].certificate.decode())


def test_when_the_certificate_ends_is_known_and_unknown_where_there_is_none(
    pairs: tuple[CertificateAndKey, CertificateAndKey], tmp_path: Path
) -> None:
    listen, tls = ListenSettings(), TlsSettings(certificate_file=tmp_path / "crt", key_file=tmp_path / "key")
    assert certificate_ends(listen, tls) is None
    (tmp_path / "crt").write_bytes(pairs[0].certificate)
    assert certificate_ends(listen, tls) == facts_of(pairs[0].certificate).not_after.timestamp()
    assert certificate_ends(ListenSettings(port=0), tls) is None
    (tmp_path / "crt").write_text("no certificate")
    assert certificate_ends(listen, tls) is None


async def test_a_certificate_whose_files_are_replaced_one_by_one_is_shown(
    tmp_path: Path, pairs: tuple[CertificateAndKey, CertificateAndKey]
) -> None:
    config, new = _tls_config(tmp_path, pairs[0]), ssl.PEM_cert_to_DER_cert(pairs[1].certificate.decode())
    following = asyncio.create_task(follow_certificate(config, interval_s=0.01))
    async with asyncio.timeout(60):
        await asyncio.sleep(0)
        (tmp_path / "server.crt").write_bytes(pairs[1].certificate)
        await asyncio.sleep(0.05)
        (tmp_path / "server.key").write_bytes(pairs[1].key)
        while _shown_by(config) != new:  # noqa: ASYNC110 (nothing announces it)
            await asyncio.sleep(0.01)
    assert not following.done()
    following.cancel()


def _write(folder: Path, pair: CertificateAndKey) -> None:
    (folder / "server.crt").write_bytes(pair.certificate)
    (folder / "server.key").write_bytes(pair.key)


def _tls_config(folder: Path, pair: CertificateAndKey) -> uvicorn.Config:
    _write(folder, pair)
    files = {"ssl_certfile": str(folder / "server.crt"), "ssl_keyfile": str(folder / "server.key")}
    config = uvicorn.Config(FastAPI(), log_config=None, **files)  # type: ignore[arg-type]
    config.load()
    return config


def _shown_by(config: uvicorn.Config) -> bytes | None:
    """The certificate that a caller sees, after a handshake in memory."""
    assert config.ssl is not None
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    to_server, to_caller = ssl.MemoryBIO(), ssl.MemoryBIO()
    caller = trusting.wrap_bio(to_caller, to_server)
    server = config.ssl.wrap_bio(to_server, to_caller, server_side=True)
    for side in (caller, server, caller, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return caller.getpeercert(binary_form=True)
