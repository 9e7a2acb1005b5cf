"""Which red-box a command asks."""

from __future__ import annotations

from pathlib import Path

import pytest

from redbox.commands import local_client


@pytest.mark.parametrize("runtime", ["run", None])
def test_ones_own_is_found_where_init_puts_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str | None
) -> None:
    monkeypatch.setattr(local_client, "SOCKET", tmp_path / "the-hosts")
    monkeypatch.setenv("HOME", str(tmp_path))
    own = tmp_path / (runtime or ".local/state") / "redbox/redbox.sock"
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    if runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / runtime))
    assert local_client.default_socket() == tmp_path / "the-hosts"
    own.parent.mkdir(parents=True)
    own.touch()
    assert local_client.default_socket() == own
    (tmp_path / "the-hosts").touch()
    assert local_client.default_socket() == tmp_path / "the-hosts"
