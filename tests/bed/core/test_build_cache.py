"""What is built once is built whole, or not at all."""

import os
from pathlib import Path
from threading import Thread

import pytest

from redbox_bed.core.build_cache import contents_of, ensure_built, forget_unused, key_of


def test_a_thing_is_built_once(tmp_path: Path) -> None:
    built: list[Path] = []
    first = ensure_built(tmp_path / "shelf" / "thing", built.append)
    assert ensure_built(tmp_path / "shelf" / "thing", built.append) == first
    assert len(built) == 1
    assert first.is_dir()


def test_a_build_that_failed_leaves_nothing_that_looks_built(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        ensure_built(tmp_path / "thing", fail)
    folder = ensure_built(tmp_path / "thing", lambda unfinished: (unfinished / "whole").touch())
    assert [file.name for file in folder.iterdir()] == ["whole"]


def test_a_second_builder_waits_for_the_first(tmp_path: Path) -> None:
    built: list[str] = []

    def build_while_another_asks(folder: Path) -> None:
        second.start()
        built.append("first")
        (folder / "whole").touch()

    second = Thread(target=ensure_built, args=(tmp_path / "thing", lambda _folder: built.append("second")))
    ensure_built(tmp_path / "thing", build_while_another_asks)
    second.join()
    assert built == ["first"]


def test_a_key_follows_names_and_contents_but_not_compiled_python(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("x = 1")
    before = key_of(contents_of(tmp_path, "*.*"))
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "module.pyc").touch()
    assert key_of(contents_of(tmp_path, "*.*")) == before
    (tmp_path / "module.py").rename(tmp_path / "other.py")
    assert key_of(contents_of(tmp_path, "*.*")) != before


def test_inputs_do_not_run_into_each_other() -> None:
    assert key_of("ab", "c") != key_of("a", "bc")


def test_what_was_built_long_ago_is_forgotten(tmp_path: Path) -> None:
    for name, built in (("project-old", 1000), ("project-new", 3000), ("base-old", 1000)):
        ensure_built(tmp_path / name, lambda _folder: None)
        os.utime(tmp_path / name, (built, built))
        os.utime(tmp_path / f"{name}.lock", (built, built))
    forget_unused(tmp_path, "project-*", since=2000)
    assert {path.name for path in tmp_path.iterdir()} == {
        "project-new",
        "project-new.lock",
        "base-old",
        "base-old.lock",
    }
