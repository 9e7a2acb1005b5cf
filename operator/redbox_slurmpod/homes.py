"""`redbox-slurmpod homes`: a folder in the claim of homes for each user who has none.

What is there is left alone: what is not its user's is named in the container's termination message, which
the operator shows. Nothing is followed and nothing outside of the claim is opened: all names are looked up
in the open folder of the claim. Users must not be able to move what others have there, so the claim's own
folder is root's.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from redbox_slurmpod.projected_files import read_files

log = logging.getLogger(__name__)
FILES = ("passwd", "group")
LONGEST_MESSAGE = 2048
_DONE, _FAILED = 0, 1
_HOME = re.compile(r"/home/([A-Za-z0-9_][A-Za-z0-9_.-]*)/*")
_ID = re.compile(r"[0-9]{1,10}", re.ASCII)
_FIRST_ID, _NOBODY = 500, 65534
_MODE_OF_HOMES, _MODE_OF_A_HOME = 0o755, 0o700
_PREFIX = ".redbox-"
"""Of a folder that has no user yet. No user's folder begins with a dot."""


class HomesFailed(Exception):
    """No home can be made."""


@dataclass(frozen=True)
class Home:
    """A folder, and whom it is for."""

    folder: str
    uid: int
    gid: int


def make_homes(digest: str, users: Path, root: Path, message: Path) -> int:
    """The exit status."""
    try:
        made, problems = _make(digest, users, root)
        status, lines = _DONE, [f"{made} homes made", *problems]
    except (HomesFailed, OSError) as error:
        status, lines = _FAILED, [str(error)]
    log.info("%s", "; ".join(lines))
    message.write_bytes("\n".join(lines).encode("utf-8", "replace")[:LONGEST_MESSAGE])
    return status


def _make(digest: str, users: Path, root: Path) -> tuple[int, list[str]]:
    files = {name: content.decode("utf-8", "replace") for name, content in read_files(users).items()}
    if digest_of(files) != digest:
        raise HomesFailed("the kubelet has not projected these users yet")
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        _keep_from_users(folder)
        outcomes = [_ensure(folder, home) for home in homes_in(files["passwd"])]
    finally:
        os.close(folder)
    made = sum(is_new for is_new, _ in outcomes)
    return made, [problem for _, problem in outcomes if problem]


def digest_of(files: Mapping[str, str]) -> str:
    """As the operator computes it."""
    hashed = hashlib.sha256()
    for name in FILES:
        hashed.update(hashlib.sha256(files.get(name, "").encode("utf-8", "replace")).digest())
    return hashed.hexdigest()[:32]


def homes_in(passwd: str) -> Iterator[Home]:
    """Directly in /home, of users with an id that no system account has."""
    for line in passwd.split("\n"):
        fields = line.split(":")
        if len(fields) != len("nxugchs") or not all(map(_ID.fullmatch, fields[2:4])):
            continue
        found, uid = _HOME.fullmatch(fields[5]), int(fields[2])
        if found and uid >= _FIRST_ID:
            yield Home(found[1], uid, int(fields[3]))


def _keep_from_users(folder: int) -> None:
    """Storage classes leave volumes for everybody to write: each user could replace another's home."""
    found = os.fstat(folder)
    if found.st_uid not in (0, _NOBODY):
        raise HomesFailed(
            f"the claim's folder belongs to the uid {found.st_uid}, who could replace users' homes: "
            "make it root's"
        )
    if found.st_uid == _NOBODY:
        os.fchown(folder, 0, 0)
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):  # a sticky one too: another's home could be made first
        os.fchmod(folder, _MODE_OF_HOMES)


def _ensure(folder: int, home: Home) -> tuple[bool, str]:
    """Whether it was made, and what stands in the way. A home that cannot be made stops no other."""
    try:
        found = os.stat(home.folder, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        try:
            _make_home(folder, home)
        except OSError as error:
            return False, f"/home/{home.folder} cannot be made: {error.strerror}"
        return True, ""
    if not stat.S_ISDIR(found.st_mode):
        return False, f"/home/{home.folder} is no folder, and is left as it is"
    if found.st_uid != home.uid:
        return False, f"/home/{home.folder} belongs to the uid {found.st_uid}, and not to {home.uid}"
    return False, ""


def _make_home(folder: int, home: Home) -> None:
    """Under another name until it is its user's: a Job that ends in between leaves no home of root's."""
    new = f"{_PREFIX}{home.folder}"
    with contextlib.suppress(FileNotFoundError):
        os.rmdir(new, dir_fd=folder)
    os.mkdir(new, _MODE_OF_A_HOME, dir_fd=folder)
    os.chown(new, home.uid, home.gid, dir_fd=folder, follow_symlinks=False)
    os.rename(new, home.folder, src_dir_fd=folder, dst_dir_fd=folder)
