"""Virtual environments on the bed, with the packages of a lock. The hosts reach no registry."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

from redbox_bed import login_node
from redbox_bed.core.build_cache import ensure_built, key_of
from redbox_bed.core.places import Places
from redbox_bed.hosts.host import Host

FETCHED_WITHIN_S = 400
PLATFORMS = (
    "manylinux2014_x86_64",
    "manylinux_2_28_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux_2_24_x86_64",
)


def install(host: Host, places: Places, lock: Path, environment: str) -> str:
    """As `python3 -m venv ENVIRONMENT` and pip would have made it; its site-packages are returned."""
    python = login_node.python_of(host)
    folder = fetched(places, lock, python)
    library = f"{environment}/lib/python{python}/site-packages"
    host.run("rm", "-rf", environment)
    login_node.copy(host, folder, library)
    host.run("mkdir", "--parents", f"{library}/bin", f"{library}/share", f"{library}/etc")
    host.run("mv", *(f"{library}/{name}" for name in ("bin", "share", "etc")), environment)
    programs = f"find {environment}/bin -type f -exec sed -i '1s|^#!.*|#!{environment}/bin/python3|' {{}} +"
    host.run("sh", "-c", programs)
    host.run("ln", "-s", "/usr/bin/python3", f"{environment}/bin/python3")
    host.write(f"{environment}/pyvenv.cfg", "home = /usr/bin\ninclude-system-site-packages = false\n")
    return library


def fetched(places: Places, lock: Path, python: str) -> Path:
    """The packages for this Python, in the cache."""
    name = f"{lock.stem}-{python}-{key_of(lock.read_bytes())}"
    return ensure_built(places.cache / "recipes" / name, partial(_fetch, lock, python))


def _fetch(lock: Path, python: str, folder: Path) -> None:
    """Most are wheels; one of Snakemake's packages has none, and is Python alone."""
    command = [
        *(sys.executable, "-m", "pip", "install", "--quiet", "--no-input", "--disable-pip-version-check"),
        *(
            "--no-deps",
            "--require-hashes",
            "--no-compile",
            "--requirement",
            str(lock),
            "--target",
            str(folder),
        ),
        *("--implementation", "cp", "--python-version", python),
        *(option for platform in PLATFORMS for option in ("--platform", platform)),
    ]
    subprocess.run(command, check=True, timeout=FETCHED_WITHIN_S)
