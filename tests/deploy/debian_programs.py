"""Programs of Debian that only tests need: taken out of their package into the cache, and not installed."""

from __future__ import annotations

import subprocess
from pathlib import Path

from redbox_bed.core.build_cache import ensure_built
from redbox_bed.core.places import Places

WITHIN_S = 300


def unpacked(*packages: str) -> Path:
    """A folder with the files of these packages; what else they need must be there already."""
    return ensure_built(
        Places.of().cache / "debian" / "+".join(packages), lambda folder: _unpack(packages, folder)
    )


def _unpack(packages: tuple[str, ...], folder: Path) -> None:
    if _apt(folder, "download", *packages).returncode:  # on a new machine apt knows of no package yet
        _apt(folder, "update").check_returncode()
        _apt(folder, "download", *packages).check_returncode()
    for archive in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", archive, folder], check=True, timeout=WITHIN_S)
        archive.unlink()


def _apt(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "-o", "DPkg::Lock::Timeout=120", *arguments]
    return subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=WITHIN_S)
