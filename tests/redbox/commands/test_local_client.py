"""Which red-box a command asks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from redbox.commands import local_client
from redbox_api.errors import Unreachable


@pytest.mark.parametrize("runtime", ["run", "", None])
def test_ones_own_is_found_where_init_puts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str | None
) -> None:
    monkeypatch.setattr(local_client, "SOCKET", tmp_path / "the-hosts")
    monkeypatch.setenv("HOME", str(tmp_path))
    own = tmp_path / (runtime or ".local/state") / "redbox/redbox.sock"
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    if runtime is not None:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime and str(tmp_path / runtime))
    assert local_client.default_socket() == tmp_path / "the-hosts"
    own.parent.mkdir(parents=True)
    own.touch()
    assert local_client.default_socket() == own
    (tmp_path / "the-hosts").touch()
    assert local_client.default_socket() == tmp_path / "the-hosts"


@pytest.fixture
def private(tmp_path: Path) -> Iterator[Path]:
    """A folder that this process may not look into."""
    folder, uid = tmp_path / "private", os.geteuid()
    folder.mkdir(0)
    if uid == 0:
        os.seteuid(65534)
    yield folder
    os.seteuid(uid)


def test_the_folder_of_another_user_is_not_looked_into(
    private: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As XDG_RUNTIME_DIR is after `su bob`, and as --socket may say: neither is a traceback."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(private))
    assert local_client.default_socket() == local_client.SOCKET
    sentence = local_client._explain(private / "redbox.sock", Unreachable("Permission denied"))
    assert sentence.startswith("you are not allowed to connect to ")
