"""Users and groups of a cluster, from the lines of passwd and group that its administrator writes. Pure.

In the pods libnss-extrausers reads these files. At a broken line it gives up, and no user behind that line
exists; for a last line without its end each look-up takes memory until there is none. So pods get the good
lines, written again, and a condition names the others.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

from redbox_hosting.api import names
from redbox_shared.printable import printable

PASSWD, GROUP = "passwd", "group"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
PATH = re.compile(r"/[A-Za-z0-9_.+@/-]*")
NUMBER = re.compile(r"[0-9]{1,10}")
HOME_FOLDER = re.compile(r"/home/([A-Za-z0-9_][A-Za-z0-9_.-]*)/*")
"""Only these are made: one folder, directly in the claim."""
FIRST_ID, LAST_ID, GROUP_USERS = 500, 2_147_483_647, 100
"""libnss-extrausers takes ids from 500, and of lower ones the primary group `users`."""
LONGEST = {PASSWD: 1000, GROUP: 32_768}
"""Of a line; glibc's first buffer for a user has 1,024 bytes, and not everybody tries a larger one."""
FIELDS = {PASSWD: "NAME:x:UID:GID:COMMENT:HOME:SHELL", GROUP: "NAME:x:GID:MEMBERS"}
IDS_OF_THE_IMAGE = frozenset({names.SLURM_UID, names.NOBODY_UID, 65_535})
NAMES_OF_THE_IMAGE = frozenset(
    {
        *("root", "daemon", "bin", "sys", "sync", "games", "man", "lp", "mail", "news", "uucp", "proxy"),
        *("www-data", "backup", "list", "irc", "_apt", "nobody", "nogroup", "munge", "mysql", "slurm"),
        *("slurmrestd", "sshd", "_ssh", "adm", "tty", "disk", "kmem", "sudo", "shadow", "utmp", "staff"),
        *("systemd-network", "systemd-journal", "messagebus", "polkitd", "sssd"),
    }
)
"""Each name is looked up in the image first, and each id in both: another id would get such a name."""


@dataclass(frozen=True, slots=True)
class ClusterUser:
    """A line of passwd."""

    name: str
    uid: int
    gid: int
    comment: str
    home: str
    shell: str
    locked: bool = False
    """sshd lets no user in whose password begins with an exclamation mark."""

    def __str__(self) -> str:
        password = "!" if self.locked else "x"
        fields = (self.name, password, self.uid, self.gid, self.comment, self.home, self.shell)
        return ":".join(map(str, fields))

    @property
    def home_folder(self) -> str:
        """Its folder in the claim of homes; empty where its home is elsewhere."""
        found = HOME_FOLDER.fullmatch(self.home)
        return found[1] if found else ""


@dataclass(frozen=True, slots=True)
class ClusterGroup:
    """A line of group."""

    name: str
    gid: int
    members: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.name}:x:{self.gid}:{','.join(self.members)}"


@dataclass(frozen=True)
class UnixAccounts:
    """The good lines, and a sentence for each that is left out."""

    users: tuple[ClusterUser, ...] = ()
    groups: tuple[ClusterGroup, ...] = ()
    left_out: tuple[str, ...] = ()

    @cached_property
    def files(self) -> dict[str, str]:
        """As pods get them."""
        return {
            PASSWD: "".join(f"{user}\n" for user in self.users),
            GROUP: "".join(f"{group}\n" for group in self.groups),
        }

    @cached_property
    def digest(self) -> str:
        return users_digest(self.files)

    @property
    def without_folder(self) -> list[ClusterUser]:
        """Users whose home is below /home and not directly in it."""
        return [user for user in self.users if user.home.startswith("/home/") and not user.home_folder]


def users_digest(files: Mapping[str, str]) -> str:
    """Of both files as pods get them."""
    hashed = hashlib.sha256()
    for name in (PASSWD, GROUP):
        hashed.update(hashlib.sha256(files.get(name, "").encode("utf-8", "replace")).digest())
    return hashed.hexdigest()[:32]


def read_users(files: Mapping[str, str]) -> UnixAccounts:
    """Of a ConfigMap with the keys passwd and group."""
    return _read(files.get(PASSWD, ""), files.get(GROUP, ""))


@lru_cache(maxsize=16)
def _read(passwd: str, group: str) -> UnixAccounts:
    """The same text comes again with each reconciliation."""
    left_out: list[str] = []
    users = tuple(_users(passwd, left_out))
    groups = tuple(_groups(group, left_out))
    return UnixAccounts(users, groups, tuple(left_out))


class _LeftOut(ValueError):
    """Why a line is."""


@dataclass
class _Taken:
    """Names and ids of earlier lines, each with the number of its line."""

    names: dict[str, int]
    ids: dict[int, tuple[str, int]]

    def take(self, name: str, number: int, kind: str, line: int) -> None:
        """Without regard to case, as slurmdbd compares names."""
        if earlier := self.names.get(name.lower()):
            raise _LeftOut(f"the name {name} is in line {earlier}")
        if number in self.ids:
            other, earlier = self.ids[number]
            raise _LeftOut(f"the {kind} {number} belongs to {other} in line {earlier}")
        self.names[name.lower()] = line
        self.ids[number] = name, line


def _users(passwd: str, left_out: list[str]) -> Iterator[ClusterUser]:
    taken = _Taken({}, {})
    for number, line in _lines(passwd):
        try:
            user = _user(_fields(line, PASSWD))
            taken.take(user.name, user.uid, "uid", number)
        except _LeftOut as why:
            left_out.append(f"passwd line {number}: {why}")
        else:
            yield user


def _groups(group: str, left_out: list[str]) -> Iterator[ClusterGroup]:
    taken = _Taken({}, {})
    for number, line in _lines(group):
        try:
            name, _, gid, listed = _fields(line, GROUP)
            members = [member.strip() for member in listed.split(",") if member.strip()]
            wrong = [member for member in members if not _is_name(member)]
            made = ClusterGroup(_name(name), _id(gid, "gid"), tuple(m for m in members if _is_name(m)))
            taken.take(made.name, made.gid, "gid", number)
        except _LeftOut as why:
            left_out.append(f"group line {number}: {why}")
        else:
            if wrong:
                left_out.append(f"group line {number}, its member {_shown(wrong[0])}: {NO_NAME}")
            yield made


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Numbered from 1, without comments and empty lines."""
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if stripped and not stripped.startswith("#"):
            yield number, stripped


def _fields(line: str, file: str) -> list[str]:
    if len(line.encode("utf-8", "replace")) > LONGEST[file]:
        raise _LeftOut(f"it is longer than {LONGEST[file]} bytes")
    if not line.isprintable():
        raise _LeftOut("it has a control character")
    fields = [field.strip() for field in line.split(":")]
    wanted = FIELDS[file].count(":") + 1
    if len(fields) != wanted:
        raise _LeftOut(f"it has {len(fields)} fields, and {FIELDS[file]} has {wanted}")
    return fields


def _user(fields: list[str]) -> ClusterUser:
    name, password, uid, gid, comment, home, shell = fields
    own = _name(name), _id(uid, "uid"), _id(gid, "gid", primary=True)
    return ClusterUser(
        *own, comment, _path(home, "home"), shell and _path(shell, "shell"), password.startswith("!")
    )


NO_NAME = "names have up to 64 letters, digits and _ . -, and are no numbers"


def _is_name(name: str) -> bool:
    return NAME.fullmatch(name) is not None and not name.isdigit()


def _name(name: str) -> str:
    if not _is_name(name):
        raise _LeftOut(f"the name {_shown(name)} is refused: {NO_NAME}")
    if name.lower() in NAMES_OF_THE_IMAGE:
        raise _LeftOut(f"the name {name} is an account of the image")
    return name


def _id(text: str, kind: str, *, primary: bool = False) -> int:
    if not NUMBER.fullmatch(text) or int(text) > LAST_ID:
        raise _LeftOut(f"the {kind} {_shown(text)} is no number up to {LAST_ID}")
    number = int(text)
    if number < FIRST_ID and not (primary and number == GROUP_USERS):
        raise _LeftOut(f"the {kind} {number} is below {FIRST_ID}")
    if number in IDS_OF_THE_IMAGE:
        raise _LeftOut(f"the {kind} {number} is an account of the image")
    return number


def _path(path: str, what: str) -> str:
    if not PATH.fullmatch(path) or ".." in path.split("/"):
        raise _LeftOut(
            f"the {what} {_shown(path)} is not an absolute path of letters, digits and _ . + @ - /"
        )
    return path


def _shown(text: str) -> str:
    return f"'{printable(text[:40])}'"
