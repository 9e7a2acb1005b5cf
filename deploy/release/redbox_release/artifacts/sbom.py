"""What a release contains, as CycloneDX 1.6: each locked dependency with its version and hashes."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from redbox_release.artifacts.source import Source

_PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


@dataclass(frozen=True)
class Locked:
    """One package of a lock."""

    name: str
    version: str
    hashes: tuple[str, ...]


def locked_packages(lock: str) -> Iterator[Locked]:
    """In the order of the lock; a package may be there in two versions, for different interpreters."""
    found: list[tuple[str, str, list[str]]] = []
    for line in lock.splitlines():
        if pinned := _PINNED.match(line):
            found.append((pinned[1], pinned[2], []))
        elif found:
            found[-1][2].extend(_HASH.findall(line))
    return (Locked(name, version, tuple(sorted(hashes))) for name, version, hashes in found)


def bill_of_materials(source: Source, locks: dict[str, Path], debian: Iterable[tuple[str, str]]) -> str:
    """`locks`: for which artifact each lock is; `debian`: packages and versions of the images' Debian."""
    components = [
        {
            "type": "library",
            "bom-ref": f"{part}:{package.name}@{package.version}",
            "group": part,
            "name": package.name,
            "version": package.version,
            "purl": f"pkg:pypi/{package.name}@{package.version}",
            # Of each file that the package has for an interpreter and a machine.
            "properties": [{"name": "redbox:sha256", "value": digest} for digest in package.hashes],
        }
        for part, lock in sorted(locks.items())
        for package in locked_packages(lock.read_text())
    ]
    components += [
        {
            "type": "library",
            "bom-ref": f"images-debian:{name}@{version}",
            "group": "images-debian",
            "name": name,
            "version": version,
            "purl": f"pkg:deb/debian/{name}@{version}",
        }
        for name, version in sorted(debian)
    ]
    name = f"red-box-{source.version}-{source.architecture}-{source.epoch}"
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": uuid.uuid5(uuid.NAMESPACE_URL, name).urn,
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(source.epoch, UTC).isoformat().replace("+00:00", "Z"),
            "component": {
                "type": "application",
                "bom-ref": f"red-box@{source.version}",
                "name": "red-box",
                "version": source.version,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            },
        },
        "components": components,
    }
    return json.dumps(document, indent=1) + "\n"


def debian_packages(root: Path) -> set[tuple[str, str]]:
    """Names and versions of what dpkg has installed below `root`."""
    stanzas = (root / "var/lib/dpkg/status").read_text().split("\n\n")
    fields = (dict(re.findall(r"^(Package|Version): (.+)$", stanza, re.MULTILINE)) for stanza in stanzas)
    return {(found["Package"], found["Version"]) for found in fields if len(found) == 2}  # noqa: PLR2004 (both)
