"""Lays the pages out in build/site, has Zensical build them, and looks at the result."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from redbox_bed.core.errors import BedError
from redbox_bed.core.places import CHECKOUT
from redbox_release.folders import make_empty
from redbox_release.site.built_pages import faults_of
from redbox_release.site.http_api import http_api_page
from redbox_release.site.markdown import MERMAID, page_of
from redbox_release.site.mermaid import mermaid_script
from redbox_release.site.places import EXAMPLES, HTTP_API, pages, place_of
from redbox_release.site.search_index import rank_for_readers
from redbox_release.site.source_pages import examples_page, source_page

SETTINGS = Path(__file__).resolve().parents[2] / "site"
CONFIGURATION = "zensical.toml"
WITHIN_S = 300
_COLOUR = re.compile("\x1b\\[[0-9;]*m")


def build_site(folder: Path) -> Path:
    """The site's folder, below `folder`; raises BedError where the build or a link is wrong."""
    make_empty(folder, CONFIGURATION)
    _lay_out(folder / "pages")
    shutil.copy(SETTINGS / CONFIGURATION, folder)
    program = Path(sys.executable).with_name("zensical")
    command = (program, "build", "--strict", "--clean", "--config-file", folder / CONFIGURATION)
    ended = subprocess.run(
        command,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | {"NO_COLOR": "1"},
        text=True,
        timeout=WITHIN_S,
    )
    if ended.returncode:
        said, _, _ = _COLOUR.sub("", ended.stdout).partition("Traceback (most recent call last)")
        raise BedError(f"Zensical could not build the site:\n{said}")
    site = folder / "site"
    rank_for_readers(site)
    if faults := [*faults_of(site)]:
        raise BedError("the site was built, but:\n  " + "\n  ".join(faults))
    return site


def _lay_out(folder: Path) -> None:
    others: set[str] = set()
    for path, place in pages().items():
        _write(folder / place, page_of(path, (CHECKOUT / path).read_text(), others.add))
    for path in sorted(others):
        if not (CHECKOUT / path).is_file():
            raise BedError(f"a page links to {path}, which is not in the checkout")
        _write(folder / place_of(path), source_page(path))
    _write(folder / place_of("LICENSE"), source_page("LICENSE"))
    _write(folder / EXAMPLES, examples_page())
    document = (CHECKOUT / "docs/reference/openapi.json").read_text()
    _write(folder / HTTP_API, http_api_page(json.loads(document)))
    _write(folder / "openapi.json", document)
    for picture in (CHECKOUT / "docs").rglob("*.svg"):
        _write(folder / place_of(str(picture.relative_to(CHECKOUT))), picture.read_text())
    _write(folder / "assets/redbox.css", (SETTINGS / "redbox.css").read_text())
    _write(folder / MERMAID, mermaid_script().read_text())


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
