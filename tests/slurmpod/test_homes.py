"""Folders of users in the claim of homes: what is there is never given away, and nothing is followed."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path

import pytest

from redbox_hosting.build.users.unix_lines import users_digest
from redbox_slurmpod.homes import digest_of, homes_in, make_homes
from tests.slurmpod.kubelet import project

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
ALICE, BOB, CAROL = ("alice", 2001), ("bob", 2002), ("carol", 2003)


def line(name: str, uid: int, home: str = "") -> str:
    return f"{name}:x:{uid}:{uid}::{home or f'/home/{name}'}:/bin/bash\n"


@dataclass
class Claim:
    """With the files that the kubelet projects, and the Job's message."""

    root: Path
    users: Path
    message: Path

    def make(self, *lines: str, digest: str = "") -> tuple[int, list[str]]:
        files: dict[str, str] = {"passwd": "".join(lines), "group": ""}
        project(self.users, {name: text.encode() for name, text in files.items()})
        status = make_homes(digest or users_digest(files), self.users, self.root, self.message)
        return status, self.message.read_text().split("\n")

    @property
    def folders(self) -> list[str]:
        return sorted(path.name for path in self.root.iterdir())

    def owner(self, name: str) -> tuple[int, int, int]:
        found = (self.root / name).lstat()
        return found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)


@pytest.fixture
def claim(tmp_path: Path) -> Claim:
    made = Claim(tmp_path / "home", tmp_path / "users", tmp_path / "message")
    made.root.mkdir()
    made.root.chmod(0o777)  # as many storage classes do
    made.users.mkdir()
    return made


def test_each_user_gets_a_folder_and_nobody_may_replace_it(claim: Claim) -> None:
    assert claim.make(line(*ALICE), line(*BOB)) == (0, ["2 homes made"])
    assert [claim.owner(name) for name in ("alice", "bob")] == [(2001, 2001, 0o700), (2002, 2002, 0o700)]
    assert claim.owner(".")[2] == 0o755
    (claim.root / "alice").chmod(0o711)
    assert claim.make(line(*ALICE), line(*BOB), line(*CAROL)) == (0, ["1 homes made"])
    assert claim.owner("alice") == (2001, 2001, 0o711)
    assert claim.folders == ["alice", "bob", "carol"]


def test_what_is_there_is_never_given_to_somebody_else(claim: Claim) -> None:
    outside = claim.root.parent / "outside"
    outside.mkdir()
    for name, uid in (("bob", 2009), ("carol", 0)):
        (claim.root / name).mkdir(mode=0o750)
        os.chown(claim.root / name, uid, uid)
    (claim.root / "dave").symlink_to(outside)
    (claim.root / "erin").write_text("a file")
    lines = [line(*BOB), line(*CAROL), line("dave", 2004), line("erin", 2005), line(*ALICE)]
    status, words = claim.make(*lines)
    assert (status, words) == (
        0,
        [
            "1 homes made",
            "/home/bob belongs to the uid 2009, and not to 2002",
            "/home/carol belongs to the uid 0, and not to 2003",
            "/home/dave is no folder, and is left as it is",
            "/home/erin is no folder, and is left as it is",
        ],
    )
    assert [claim.owner(name)[0] for name in ("bob", "carol", "dave", "erin")] == [2009, 0, 0, 0]
    assert outside.lstat().st_uid == 0
    assert not list(outside.iterdir())


def test_what_a_user_plants_in_a_folder_for_all_stops_nobody_else(claim: Claim) -> None:
    """With the sticky bit users may write there."""
    claim.root.chmod(0o1777)
    outside = claim.root.parent / "outside"
    outside.mkdir()
    (claim.root / ".redbox-bob").symlink_to(outside)
    (claim.root / ".redbox-carol").mkdir()
    (claim.root / ".redbox-carol" / "file").touch()
    status, words = claim.make(line(*BOB), line(*CAROL), line(*ALICE))
    assert (status, words[0], claim.owner("alice")[0]) == (0, "1 homes made", 2001)
    assert [each.partition(": ")[0] for each in words[1:]] == [
        "/home/bob cannot be made",
        "/home/carol cannot be made",
    ]
    assert (outside.lstat().st_uid, claim.owner(".")[2]) == (0, 0o755)


def test_a_folder_without_its_user_is_made_again(claim: Claim) -> None:
    """The Job before has ended in between."""
    (claim.root / ".redbox-alice").mkdir()
    assert claim.make(line(*ALICE)) == (0, ["1 homes made"])
    assert claim.folders == ["alice"]


@pytest.mark.parametrize(
    "hostile",
    [
        line("a", 1001, "/home/../etc"),
        line("a", 1001, "/home/"),
        line("a", 1001, "/home/."),
        line("a", 1001, "/home/a/b"),
        line("a", 1001, "/etc"),
        line("a", 1001, "relative"),
        line("a", 0),
        line("a", 499),
        "a:x:-1:0::/home/a:/bin/sh\n",
        "a:x:\u0661\u0662\u0663\u0664:1001::/home/a:/bin/sh\n",
        "a:x:1001\n",
        "a:x:1001:1001::/home/a\0b:/bin/sh\n",
    ],
)
def test_a_hostile_line_makes_nothing(hostile: str) -> None:
    """The operator refuses such lines already."""
    assert not list(homes_in(hostile))


def test_the_users_of_before_are_not_taken_for_the_new_ones(claim: Claim) -> None:
    assert claim.make(line(*ALICE), digest="other") == (
        1,
        ["the kubelet has not projected these users yet"],
    )
    assert not claim.folders


def test_a_claim_of_a_user_is_refused_and_one_of_nobody_is_taken(claim: Claim) -> None:
    os.chown(claim.root, 2001, 2001)
    status, words = claim.make(line(*BOB))
    assert (status, words) == (
        1,
        ["the claim's folder belongs to the uid 2001, who could replace users' homes: make it root's"],
    )
    os.chown(claim.root, 65534, 65534)
    assert claim.make(line(*BOB)) == (0, ["1 homes made"])
    assert claim.owner(".") == (0, 0, 0o755)


def test_both_programs_compute_the_same_digest() -> None:
    empty: dict[str, str] = {}
    for files in (empty, {"passwd": "ü\n"}, {"passwd": "a", "group": "b"}):
        assert digest_of(files) == users_digest(files)
