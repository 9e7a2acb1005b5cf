"""Sessions allowed or refused by the administrator of the red-box that is installed."""

from __future__ import annotations

import yaml

from redbox_bed import login_node
from redbox_bed.hosts.host import Host


def set_sessions(login: Host, *, enabled: bool) -> None:
    settings = yaml.safe_load(login.read(login_node.SETTINGS))
    settings["exec"] = {"enabled": enabled}
    login.write(login_node.SETTINGS, yaml.safe_dump(settings, sort_keys=False))
    login_node.restart(login)
