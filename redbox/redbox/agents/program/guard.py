"""Refusal to run as root or as a system account, by a setting that only root may write.

The check precedes the first byte of input, so that it holds even if the server, sudo or sshd is deceived. The
sudoers line, sshd's configuration and the server's mapping choose the users of agents.
"""

import os
import stat
from typing import Dict, List, Optional

SETTINGS_PATH = "/etc/redbox/agent.conf"
REFUSED = 77  # exit status of a refusal: EX_NOPERM
DEFAULT_MIN_UID = 1000
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin:/opt/slurm/bin:/usr/local/sbin:/usr/sbin:/sbin"


class StartRefused(Exception):
    """The agent does not run here, or not as this user."""


class AgentSettings:
    """The settings of agent.conf: `min_uid`, and `path`, the directories of tools."""

    def __init__(self, values: Dict[str, str]) -> None:
        unknown = sorted(set(values) - {"min_uid", "path"})
        if unknown:
            raise StartRefused("{}: unknown setting {}: remove it".format(SETTINGS_PATH, unknown[0]))
        try:
            self.min_uid = int(values.get("min_uid", DEFAULT_MIN_UID))
        except ValueError:
            raise StartRefused("{}: min_uid must be a number".format(SETTINGS_PATH)) from None
        self.path: List[str] = values.get("path", DEFAULT_PATH).split(":")


def is_writable_by_root_only(status: os.stat_result) -> bool:
    return status.st_uid == 0 and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def read_settings(path: str = SETTINGS_PATH) -> AgentSettings:
    """Read agent.conf; without one the defaults apply, and one that others may write is refused."""
    try:
        with open(path, encoding="utf-8") as file:
            trusted = is_writable_by_root_only(os.fstat(file.fileno())) and is_writable_by_root_only(
                os.stat(os.path.dirname(path))
            )
            lines = [line.split("#")[0].strip() for line in file]
    except FileNotFoundError:
        return AgentSettings({})
    if not trusted:
        raise StartRefused(
            "{} or its directory is writable by others than root: chown root and chmod go-w".format(path)
        )
    pairs = [line.partition("=") for line in lines if line]
    return AgentSettings({name.strip(): value.strip() for name, _, value in pairs})


def check_user(uid: int, effective_uid: int, settings: AgentSettings) -> None:
    reason: Optional[str] = None
    if uid != effective_uid:
        reason = "its real and effective uids differ ({} and {})".format(uid, effective_uid)
    elif uid == 0:
        reason = "it was started as root"
    elif uid < settings.min_uid:
        reason = "uid {} is below min_uid {}".format(uid, settings.min_uid)
    if reason:
        raise StartRefused("the agent refuses to run: {}".format(reason))
