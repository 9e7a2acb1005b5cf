"""Faults of a built site are found, each with its page."""

from pathlib import Path

import pytest

from redbox_bed.core.errors import BedError
from redbox_release.site.built_pages import faults_of
from redbox_release.site.mermaid import verify

PAGE = """
<link rel="stylesheet" href="../a.css"><h1 id="top">x</h1>
<a href="../b/#there">b</a><a href="#top">t</a>
"""


def site(folder: Path, page: str = PAGE) -> Path:
    for name, text in {"a/index.html": page, "b/index.html": '<p id="there">', "a.css": ""}.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_a_sound_site_has_no_fault(tmp_path: Path) -> None:
    assert [*faults_of(site(tmp_path))] == []


@pytest.mark.parametrize(
    ("sound", "broken", "fault"),
    [
        ("../b/#there", "../c/", "a/index.html: the link ../c/ leads nowhere"),
        ("../b/#there", "../b/#here", "a/index.html: ../b/#here: that page has no such anchor"),
        (
            "../a.css",
            "https://cdn.example/a.css",
            "a browser fetches https://cdn.example/a.css from elsewhere",
        ),
        ("../a.css", "../other.css", "a/index.html: there is no ../other.css"),
    ],
)
def test_a_fault_is_found(tmp_path: Path, sound: str, broken: str, fault: str) -> None:
    (found,) = faults_of(site(tmp_path, PAGE.replace(sound, broken)))
    assert found.endswith(fault)


def test_another_archive_than_the_pinned_one_is_not_used(tmp_path: Path) -> None:
    archive = tmp_path / "mermaid.tgz"
    archive.write_bytes(b"another")
    with pytest.raises(BedError, match=r"mermaid\.tgz is not the file"):
        verify(archive, "sha512-" + "A" * 86 + "==")
