"""Sessions allowed or refused by the administrator of the red-box that is installed."""

from __future__ import annotations

from redbox_bed.hosts.host import Host
from tests.e2e.harness.redbox_settings import change_settings


def set_sessions(login: Host, *, enabled: bool) -> None:
    change_settings(login, lambda settings: settings.update({"exec": {"enabled": enabled}}))
