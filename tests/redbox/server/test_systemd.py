"""The notification of systemd, by a socket as it makes one."""

from __future__ import annotations

import os
import secrets
import socket
from pathlib import Path

import pytest

from redbox.server.systemd import notify_ready


@pytest.mark.parametrize("kind", ["path", "abstract"])
def test_the_service_manager_is_told_once_and_no_child_can(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = str(tmp_path / "notify") if kind == "path" else f"@redbox-{secrets.token_hex(8)}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(name.replace("@", "\0"))
        listening.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        notify_ready()
        assert listening.recv(64) == b"READY=1"
    assert "NOTIFY_SOCKET" not in os.environ


def test_without_a_service_manager_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify_ready()


def test_a_service_manager_that_went_away_does_not_keep_it_from_serving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "gone"))
    notify_ready()
