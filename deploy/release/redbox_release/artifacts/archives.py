"""Archives that are the same bytes for the same contents: sorted, root's own, with one time for all."""

from __future__ import annotations

import gzip
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

_LEVEL = 6


def pack_folder(target: Path, folder: Path, top: str, epoch: int) -> None:
    """The files of `folder`, below a folder `top`, as a .tar.gz."""
    with (
        compressed(target) as output,
        tarfile.open(fileobj=output, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        archive.addfile(_stamped(archive.gettarinfo(str(folder), arcname=top), epoch))
        for path in sorted(folder.rglob("*")):
            info = _stamped(archive.gettarinfo(str(path), arcname=f"{top}/{path.relative_to(folder)}"), epoch)
            if info.isreg():
                with path.open("rb") as content:
                    archive.addfile(info, content)
            else:
                archive.addfile(info)


def _stamped(info: tarfile.TarInfo, epoch: int) -> tarfile.TarInfo:
    info.mtime, info.uid, info.gid, info.uname, info.gname = epoch, 0, 0, "root", "root"
    info.mode = 0o777 if info.issym() else 0o755 if info.isdir() or info.mode & 0o100 else info.mode & 0o644
    return info


@contextmanager
def compressed(target: Path) -> Iterator[IO[bytes]]:
    """A file to write, compressed by gzip without a name and a time in its head."""
    with target.open("wb") as raw, gzip.GzipFile("", "wb", _LEVEL, raw, mtime=0) as output:
        yield cast("IO[bytes]", output)


def compress_file(target: Path, file: Path) -> None:
    with compressed(target) as output, file.open("rb") as content:
        shutil.copyfileobj(content, output)
