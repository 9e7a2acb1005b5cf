"""A root is known by all that decides its contents, and comes from the machine's own mirror."""

from dataclasses import replace
from pathlib import Path

import pytest

from redbox_bed import preflight
from redbox_bed.hosts.roots import first_debian_mirror, mmdebstrap_command, recipe
from redbox_bed.hosts.users import account_commands


@pytest.mark.parametrize("name", ["slurm-24.11", "slurm-22.05", "node"])
def test_a_recipe_has_the_name_that_the_plan_uses(name: str) -> None:
    assert recipe(name).name == name
    assert recipe(name).key.startswith(name + "-")


def test_whatever_changes_the_contents_changes_the_key() -> None:
    plain = recipe("slurm-24.11")
    assert recipe("slurm-24.11").key == plain.key
    assert replace(plain, packages=(*plain.packages, "vim")).key != plain.key
    assert replace(plain, setup=plain.setup + "true\n").key != plain.key
    assert replace(plain, files={"pingpong.c": ""}).key != plain.key


def test_the_first_debian_archive_that_is_not_the_security_one_is_the_mirror() -> None:
    listing = (
        "http://security.example/debian-security/ Debian Debian-Security main\n"
        "http://mirror.example/debian/ Debian Debian contrib\n"
        "http://mirror.example/debian/ Debian Debian main\n"
        "http://other.example/debian/ Debian Debian main\n"
    )
    assert first_debian_mirror(listing) == "http://mirror.example/debian/"


def test_an_ubuntu_has_no_mirror_of_debian() -> None:
    assert first_debian_mirror("http://archive.example/ubuntu/ Ubuntu Ubuntu main\n") is None
    assert first_debian_mirror("") is None


def test_without_a_mirror_mmdebstrap_takes_its_default() -> None:
    assert mmdebstrap_command(recipe("node"), Path("/tree"), None, None)[-2:] == ["trixie", "/tree"]
    assert (
        mmdebstrap_command(recipe("node"), Path("/tree"), "http://m.example/", None)[-1]
        == "http://m.example/"
    )


def test_debians_keys_are_named_for_an_ubuntu_trusts_none_of_them() -> None:
    command = mmdebstrap_command(recipe("node"), Path("/tree"), None, None)
    (keys,) = [word.removeprefix("--keyring=") for word in command if word.startswith("--keyring=")]
    assert preflight.PACKAGES[keys] == "debian-archive-keyring"


def test_apts_proxy_is_passed_on() -> None:
    command = mmdebstrap_command(recipe("node"), Path("/tree"), None, "http://proxy.example:3142")
    assert '--aptopt=Acquire::http::Proxy "http://proxy.example:3142"' in command


def test_every_user_is_a_member_and_the_services_have_no_shell() -> None:
    lines = account_commands().splitlines()
    users = [line for line in lines if line.split()[-1] in {"alice", "bob", "carol"}]
    assert len(users) == 3
    assert all("-G redbox-users" in line for line in users)
    assert all("nologin" in line for line in lines if line.split()[-1] in {"redbox", "slurmrestd"})
