"""The image of MariaDB, and the Dockerfile that makes the same."""

from __future__ import annotations

import re

from redbox_bed.images.contents import FOLDER
from redbox_bed.images.mariadb_image import ENTRYPOINT, MARIADB


def test_the_dockerfile_makes_the_same_image() -> None:
    dockerfile = (FOLDER / "mariadb/Dockerfile").read_text()
    assert f"\nFROM debian:{MARIADB.suite}-slim\n" in dockerfile
    installed = re.search(r"--no-install-recommends (.*?) && rm", dockerfile.replace("\\\n", ""))
    assert installed is not None
    assert installed[1].split() == [package for group in MARIADB.packages for package in group]
    assert "/var/lib/mysql/*" in dockerfile
    assert "/var/lib/mysql/*" in MARIADB.forget
    assert f'\nENTRYPOINT ["{ENTRYPOINT[0]}"]\n' in dockerfile
