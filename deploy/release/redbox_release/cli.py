"""`python -m redbox_release`: builds what the project publishes. Words in, sentences and exit codes out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from redbox_bed.core.errors import BedError
from redbox_bed.core.places import CHECKOUT
from redbox_release.artifacts.release import build_release
from redbox_release.site.build import build_site

IntoOption = Annotated[Path, typer.Option(help="A folder: empty, or of an earlier build, which is removed.")]
app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def release() -> None:
    """Build what the project publishes."""


@app.command()
def site(into: IntoOption = CHECKOUT / "build/site") -> None:
    """The site of the documentation."""
    built = build_site(into)
    print(f"the site is in {built}")
    print(f"to read it: python3 -m http.server --directory {built} --bind 127.0.0.1 8000")


@app.command()
def dist(
    into: IntoOption = CHECKOUT / "dist",
    *,
    images: Annotated[bool, typer.Option(help="The images, too, which needs root.")] = True,
    machine: Annotated[str, typer.Option(help="amd64 or arm64; this one's by default.")] = "",
) -> None:
    """The files of a release: wheel, packages for login nodes, images, chart, manifests, SBOM, checksums."""
    files = build_release(into, images=images, progress=_report, machine=machine)
    for file in files:
        print(f"{file.stat().st_size:>12} {file}")


def _report(step: str) -> None:
    print(f"release: {step}", flush=True)


def main() -> None:
    try:
        app()
    except (BedError, OSError) as error:
        print(f"release: {error}", file=sys.stderr)
        raise SystemExit(1) from error
