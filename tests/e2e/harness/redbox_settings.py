"""Settings of the installed red-box, changed as the HPC administrator would: the file, then a restart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from redbox_bed import login_node
from redbox_bed.hosts.host import Host

Change = Callable[[dict[str, Any]], None]
"""Of the parsed file."""


def change_settings(login: Host, change: Change) -> None:
    settings = yaml.safe_load(login.read(login_node.SETTINGS))
    change(settings)
    _write(login, yaml.safe_dump(settings, sort_keys=False))


@contextmanager
def settings_changed(login: Host, change: Change) -> Iterator[None]:
    """As long as the block lasts."""
    before = login.read(login_node.SETTINGS)
    change_settings(login, change)
    try:
        yield
    finally:
        _write(login, before)


def put_rule_first(settings: dict[str, Any], rule: dict[str, Any]) -> None:
    settings["mapping"]["rules"].insert(0, rule)


def _write(login: Host, content: str | bytes) -> None:
    login.write(login_node.SETTINGS, content)
    login_node.restart(login)
