"""Lines of passwd and group: the good ones are written anew, each other one has its sentence."""

from __future__ import annotations

import pytest

from redbox_hosting.build.users.unix_lines import NAMES_OF_THE_IMAGE, read_users

ALICE = "alice:x:2001:2001:Alice:/home/alice:/bin/bash"
NO_NAME = "names have up to 64 letters, digits and _ . -, and are no numbers"


def left_out(line: str, file: str = "passwd") -> str:
    """Of the second line; the first and the third are taken."""
    first = {"passwd": ALICE, "group": "alice:x:2001:"}[file]
    third = {"passwd": "zoe:x:3001:3001::/:", "group": "zoe:x:3001:"}[file]
    read = read_users({file: f"{first}\n{line}\n{third}\n"})
    assert read.files[file].split("\n")[0] == first
    assert third in read.files[file].split("\n")
    assert len(read.left_out) == 1
    return read.left_out[0].removeprefix(f"{file} line 2: ")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("root:x:1000:1000::/:/bin/sh", "the name root is an account of the image"),
        ("Slurm:x:1000:1000::/:/bin/sh", "the name Slurm is an account of the image"),
        ("a:x:499:1000::/:/bin/sh", "the uid 499 is below 500"),
        ("a:x:0:1000::/:/bin/sh", "the uid 0 is below 500"),
        ("a:x:1000:0::/:/bin/sh", "the gid 0 is below 500"),
        ("a:x:64030:1000::/:/bin/sh", "the uid 64030 is an account of the image"),
        ("a:x:65534:1000::/:/bin/sh", "the uid 65534 is an account of the image"),
        ("a:x:4294967295:1000::/:/bin/sh", "the uid '4294967295' is no number up to 2147483647"),
        ("a:x:-1:1000::/:/bin/sh", "the uid '-1' is no number up to 2147483647"),
        ("a:x:\u0661000:1000::/:/bin/sh", "the uid '\u0661000' is no number up to 2147483647"),
        ("a:x::1000::/:/bin/sh", "the uid '' is no number up to 2147483647"),
        ("Alice:x:1000:1000::/:/bin/sh", "the name Alice is in line 1"),
        ("a:x:2001:1000::/:/bin/sh", "the uid 2001 belongs to alice in line 1"),
        ("a/b:x:1000:1000::/:/bin/sh", f"the name 'a/b' is refused: {NO_NAME}"),
        ("..:x:1000:1000::/:/bin/sh", f"the name '..' is refused: {NO_NAME}"),
        ("-rf:x:1000:1000::/:/bin/sh", f"the name '-rf' is refused: {NO_NAME}"),
        ("1000:x:1000:1000::/:/bin/sh", f"the name '1000' is refused: {NO_NAME}"),
        ("+::::::", f"the name '+' is refused: {NO_NAME}"),
        ("a b:x:1000:1000::/:/bin/sh", f"the name 'a b' is refused: {NO_NAME}"),
        (
            "a:x:1000:1000::/:bash",
            "the shell 'bash' is not an absolute path of letters, digits and _ . + @ - /",
        ),
        (
            "a:x:1000:1000::/:/bin/sh -c id",
            "the shell '/bin/sh -c id' is not an absolute path of letters, digits and _ . + @ - /",
        ),
        (
            "a:x:1000:1000::home:/bin/sh",
            "the home 'home' is not an absolute path of letters, digits and _ . + @ - /",
        ),
        (
            "a:x:1000:1000::/home/../etc:/bin/sh",
            "the home '/home/../etc' is not an absolute path of letters, digits and _ . + @ - /",
        ),
        ("a:x:1000:1000:/home/a:/bin/sh", "it has 6 fields, and NAME:x:UID:GID:COMMENT:HOME:SHELL has 7"),
        ("nonsense", "it has 1 fields, and NAME:x:UID:GID:COMMENT:HOME:SHELL has 7"),
        ("a:x:1000:1000:\0:/:/bin/sh", "it has a control character"),
        ("a:x:1000:1000:\x1b[2J:/:/bin/sh", "it has a control character"),
        ("a:x:1000:1000:\u2028:/:/bin/sh", "it has a control character"),
        (f"a:x:1000:1000:{'x' * 4096}:/:/bin/sh", "it is longer than 1000 bytes"),
    ],
)
def test_a_broken_line_of_passwd_has_one_sentence(line: str, why: str) -> None:
    assert left_out(line) == why


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("sudo:x:1000:alice", "the name sudo is an account of the image"),
        ("a:x:42:alice", "the gid 42 is below 500"),
        ("a:x:2001:", "the gid 2001 belongs to alice in line 1"),
        ("a:x:1000", "it has 3 fields, and NAME:x:GID:MEMBERS has 4"),
        (f"a:x:1000:{'x,' * 20_000}", "it is longer than 32768 bytes"),
    ],
)
def test_a_broken_line_of_group_has_one_sentence(line: str, why: str) -> None:
    assert left_out(line, "group") == why


def test_a_group_is_taken_without_a_broken_member() -> None:
    read = read_users({"group": "a:x:1000:alice, bob ,../x\n"})
    assert read.files["group"] == "a:x:1000:alice,bob\n"
    assert read.left_out == (f"group line 1, its member '../x': {NO_NAME}",)


def test_lines_are_written_anew() -> None:
    """Without hashes of passwords, spaces and carriage returns; the last one with its end."""
    text = (
        f"# people\n\n  {ALICE}  \r\nbob:$6$salt$hash:2002:100:B\u00f6b::\n\n"
        "carol:!:2003:2003::/home/x/carol/:"
        "\ndave::2004:2004::/home/dave:/usr/bin/zsh"
    )
    read = read_users({"passwd": text.replace("B\u00f6b::", "B\u00f6b:/:")})
    assert read.files["passwd"].splitlines() == [
        ALICE,
        "bob:x:2002:100:B\u00f6b:/:",
        "carol:!:2003:2003::/home/x/carol/:",
        "dave:x:2004:2004::/home/dave:/usr/bin/zsh",
    ]
    assert read.files["passwd"].endswith("\n")
    assert [user.home_folder for user in read.users] == ["alice", "", "", "dave"]
    assert [user.name for user in read.without_folder] == ["carol"]
    assert read_users(read.files).digest == read.digest


def test_a_megabyte_of_anything_is_read_soon() -> None:
    for text in (":" * 10**6, "a" * 10**6, "a:x:\n" * 2 * 10**5, "/" * 10**6, "\n" * 10**6):
        assert not read_users({"passwd": text, "group": text}).users


def test_the_accounts_of_the_image_are_refused() -> None:
    assert {"root", "slurm", "nobody", "sshd", "munge", "shadow", "sudo"} <= NAMES_OF_THE_IMAGE
