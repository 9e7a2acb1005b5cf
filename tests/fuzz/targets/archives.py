"""Tar archives of a job: results that the companion unpacks, and what `kubectl slurm cp` copies."""

from __future__ import annotations

import io
import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, cast

from hypothesis import strategies as st

from kubectl_slurm.commands.into_jobs.copies import unpack
from redbox_companion.unpacking import TarUnpacker
from tests.fuzz.mutations import Pieces, mutated
from tests.fuzz.target import Play, Target

NAMES = st.sampled_from(
    ["a", "a/b", "d", "d/e", "link", "link/x", "..", "../x", "/etc/x", "./a", "a/../../x", "", ".", "\u00e9",
     "n" * 300, "p/" * 100 + "x", "a\nb", "\udce9", "outside/x"]
)  # fmt: skip
KINDS = st.sampled_from(
    [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE,
     tarfile.FIFOTYPE, tarfile.GNUTYPE_SPARSE, tarfile.CONTTYPE, b"?"]
)  # fmt: skip
NUMBERS = st.sampled_from([0, 0o644, 0o4755, 0o2777, 0o7777, 2**31, 2**40])


@st.composite
def archives(draw: st.DrawFn) -> Pieces:
    """One piece for each member, and the end."""
    pieces = []
    for _ in range(draw(st.integers(0, 6))):
        member = tarfile.TarInfo(draw(NAMES))
        member.type = draw(KINDS)
        member.linkname = draw(NAMES)
        member.mode = draw(NUMBERS) & 0o7777
        member.mtime = draw(st.sampled_from([0, 1e9, -1e9, 2**62, 1e18]))
        content = draw(st.binary(max_size=40)) if member.isreg() else b""
        member.size = len(content)
        if draw(st.booleans()):
            member.pax_headers = draw(
                st.dictionaries(
                    st.sampled_from(
                        ["path", "linkpath", "size", "mtime", "REDBOX.incomplete", "GNU.sparse.map"]
                    ),
                    st.sampled_from(["../x", "-1", "9" * 5000, "nan", "1,2", "", "\0"]),
                    max_size=2,
                )
            )
        made = member.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
        pieces.append(made + content + bytes(-len(content) % 512))
    return [*pieces, bytes(1024)]


class Received(io.BytesIO):
    """As the companion reads a response: less only at its end."""


def unpack_results(raw: bytes, folder: Path) -> None:
    unpacker = TarUnpacker(folder)
    with suppress(tarfile.TarError, ValueError, OSError):  # as ResultsCollector expects them
        unpacker.unpack(cast("Any", Received(raw)))
    with suppress(OSError):
        unpacker.finish()


def copy_down(raw: bytes, folder: Path) -> None:
    unpack(io.BytesIO(raw), folder, "a", None)
    unpack(io.BytesIO(raw), folder, ".", "renamed")


@asynccontextmanager
async def folders() -> AsyncIterator[Play]:
    """Nothing is written beside the folder, no link leads out, and nothing is a device or setuid."""
    with tempfile.TemporaryDirectory(prefix="fuzz-tar-") as top:
        outside, folder = Path(top, "outside"), Path(top, "outside/folder")

        async def play(pieces: Pieces) -> None:
            for write in (unpack_results, copy_down):
                folder.mkdir(parents=True)
                try:
                    write(b"".join(pieces), folder)
                    assert list(outside.iterdir()) == [folder]
                    check(folder)
                finally:
                    make_removable(outside)
                    shutil.rmtree(outside)
                assert not list(Path(top).iterdir())

        yield play


def check(folder: Path) -> None:
    for parent, folders_, files in os.walk(folder):
        for name in (*folders_, *files):
            path = Path(parent, name)
            status = path.lstat()
            assert stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode) or path.is_symlink(), path
            assert path.is_symlink() or not status.st_mode & 0o7000, (path, oct(status.st_mode))
            leads_to = os.path.realpath(path)
            assert leads_to == str(folder) or leads_to.startswith(f"{folder}/"), (path, leads_to)


def make_removable(folder: Path) -> None:
    for parent, names, _ in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            if not path.is_symlink():
                path.chmod(0o700)


TARGETS = (Target("archives", mutated(archives()), folders, [bytes(1024)], in_ci=200),)
