"""A root is known by all that decides its contents, and comes from the machine's own mirror."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from redbox_bed import preflight
from redbox_bed.core.errors import BedError, RootUnavailableError
from redbox_bed.core.places import Places
from redbox_bed.hosts import roots
from redbox_bed.hosts.roots import Recipe, first_debian_mirror, mmdebstrap_command, recipe
from redbox_bed.hosts.users import account_commands

UNSTABLE = "slurm-26.05"


@pytest.mark.parametrize("name", ["slurm-22.05", "slurm-24.11", "slurm-26.05", "node"])
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


def test_only_unstable_may_be_older_than_it_says() -> None:
    aged = [
        name
        for name in ("node", "slurm-24.11", UNSTABLE)
        if '--aptopt=Acquire::Check-Valid-Until "false"'
        in mmdebstrap_command(recipe(name), Path("/tree"), None, None)
    ]
    assert aged == [UNSTABLE]


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(state=tmp_path / "state", cache=tmp_path / "cache")


def cached(places: Places, key: str, *, built: int = 0) -> Path:
    root = places.cache / "roots" / key
    root.mkdir(parents=True)
    os.utime(root, (built, built))
    return root


@pytest.fixture
def moved_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """No suite installs any more."""

    def build(recipe: Recipe, tree: Path) -> None:
        (tree / "half").touch()
        raise (RootUnavailableError if recipe.suite == roots.UNSTABLE else BedError)("it does not install")

    monkeypatch.setattr(roots, "_build", build)


@pytest.mark.usefixtures("moved_on")
def test_of_an_unstable_that_installs_no_more_the_newest_root_in_the_cache_is_used(places: Places) -> None:
    cached(places, f"{UNSTABLE}-{'0' * 16}", built=1_790_000_000)
    newest = cached(places, f"{UNSTABLE}-{'1' * 16}", built=1_795_000_000)
    cached(places, f"{UNSTABLE}-{'2' * 16}.unfinished", built=1_796_000_000)
    assert not roots.is_built(places, UNSTABLE)
    assert roots.ensure_root(places, UNSTABLE) == roots.root_path(places, UNSTABLE) == newest
    age = roots.age_in_words(places, UNSTABLE)
    assert (
        age
        == f"Debian's unstable does not install: the root {UNSTABLE} is the one of 2026-11-18 in the cache"
    )


@pytest.mark.usefixtures("moved_on")
def test_without_a_root_in_the_cache_an_unstable_that_installs_no_more_is_an_error_of_its_own(
    places: Places,
) -> None:
    cached(places, f"{UNSTABLE}-{'0' * 16}.unfinished")
    with pytest.raises(RootUnavailableError):
        roots.ensure_root(places, UNSTABLE)


@pytest.mark.usefixtures("moved_on")
def test_the_root_of_another_recipe_never_stands_for_a_stable_one(places: Places) -> None:
    cached(places, f"node-{'0' * 16}")
    with pytest.raises(BedError, match="does not install"):
        roots.ensure_root(places, "node")
    assert roots.age_in_words(places, "node") is None


def test_a_root_half_built_is_built_anew_and_never_used(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = roots.root_path(places, UNSTABLE)
    half = cached(places, f"{exact.name}.unfinished")
    (half / "half").touch()
    assert not roots.is_built(places, UNSTABLE)
    monkeypatch.setattr(roots, "_build", lambda _recipe, tree: (tree / "whole").touch())
    assert roots.ensure_root(places, UNSTABLE) == exact
    assert [file.name for file in exact.iterdir()] == ["whole"]
    age = roots.age_in_words(places, UNSTABLE)
    assert age is not None
    assert age.startswith(f"the root {UNSTABLE} is Debian's unstable of 20")
