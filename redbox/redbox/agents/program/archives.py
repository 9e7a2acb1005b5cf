"""A tar of files and directories, streamed: never held in memory, never written to disk.

Files change while they are read: one that shrinks is padded with zeros, one that grows is cut at the size in
its header; one that vanished or is not readable by the user is omitted. Each of these but growth is reported
in an event, and in the tar itself by two PAX records of Red Box's own, at a repeated entry of the parent
directory. Other readers ignore these records.
"""

import os
import stat
import tarfile
from typing import Any, Callable, Dict, Iterator

from redbox.agents.program.files import open_for_reading, path_bytes, path_text
from redbox.agents.program.session import WorkerStream
from redbox.agents.program.wire import CHUNK

RECORD_PATH, RECORD_WHY = "REDBOX.incomplete", "REDBOX.why"


def make_tar(stream: WorkerStream) -> Dict[str, Any]:
    """Send the paths, which are relative to the directory; directories recursively."""
    base = path_bytes(stream.request["directory"])
    os.stat(base)
    outlet: Any = TarOutput(stream)  # tarfile only uses write()
    count = 0
    archive = tarfile.open(  # noqa: SIM115 # entered below
        fileobj=outlet,
        mode="w|",
        format=tarfile.PAX_FORMAT,
        encoding="utf-8",
        errors="surrogateescape",
        bufsize=CHUNK,
    )
    with archive:
        for name in stream.request["paths"]:
            root = name.encode("utf-8", "surrogateescape")
            for relative in walk(
                base, root, lambda path, why: report_incomplete(archive, base, path, why, stream)
            ):
                count += add_member(archive, base, relative, stream)
    return {"members": count}


class TarOutput:
    """The output file of tarfile."""

    def __init__(self, stream: WorkerStream) -> None:
        self._stream = stream

    def write(self, data: bytes) -> int:
        for start in range(0, len(data), CHUNK):
            self._stream.send(bytes(data[start : start + CHUNK]))
        return len(data)


class PaddedFile:
    """A file that always returns as many bytes as requested, with zeros after its end."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.shrank = False

    def read(self, count: int) -> bytes:
        # After the header is sent, a read error must not end the archive.
        try:
            data = b"" if self.shrank else os.read(self._descriptor, count)
        except OSError:
            data = b""
        self.shrank = self.shrank or not data
        return data or bytes(count)


def walk(base: bytes, relative: bytes, cannot_list: Callable[[bytes, str], None]) -> Iterator[bytes]:
    def report(error: OSError) -> None:
        cannot_list(os.path.relpath(error.filename, base), describe_read_error(error))

    yield relative
    path = os.path.join(base, relative)
    if not os.path.isdir(path) or os.path.islink(path):
        return
    for directory, directories, files in os.walk(path, onerror=report):
        directories.sort()
        for name in sorted(files + directories):
            yield os.path.relpath(os.path.join(directory, name), base)


def describe_member(relative: bytes, status: os.stat_result) -> tarfile.TarInfo:
    member = tarfile.TarInfo(path_text(relative))
    member.mode = stat.S_IMODE(status.st_mode)
    member.mtime = int(status.st_mtime)
    member.uid, member.gid = status.st_uid, status.st_gid
    return member


def add_member(archive: tarfile.TarFile, base: bytes, relative: bytes, stream: WorkerStream) -> bool:
    try:
        path = os.path.join(base, relative)
        status = os.lstat(path)
        member = describe_member(relative, status)
        if stat.S_ISDIR(status.st_mode):
            member.type = tarfile.DIRTYPE
        elif stat.S_ISLNK(status.st_mode):
            member.type, member.linkname = tarfile.SYMTYPE, path_text(os.readlink(path))
        else:
            if not add_file(archive, member, path):
                report_incomplete(
                    archive, base, relative, "it shrank while it was read: filled up with zeros", stream
                )
            return True
    except OSError as error:
        report_incomplete(archive, base, relative, describe_read_error(error), stream)
        return False
    archive.addfile(member)
    return True


def describe_read_error(error: OSError) -> str:
    return "it cannot be read: %s" % (error.strerror or error)


def report_incomplete(
    archive: tarfile.TarFile, base: bytes, relative: bytes, why: str, stream: WorkerStream
) -> None:
    stream.send_event({"path": path_text(relative), "message": why})
    folder = os.path.dirname(relative) or b"."
    try:
        status = os.lstat(os.path.join(base, folder))
    except OSError:
        folder, status = b".", os.stat(base)
    member = describe_member(folder, status)
    member.type = tarfile.DIRTYPE
    member.pax_headers = {RECORD_PATH: path_text(relative), RECORD_WHY: why}
    archive.addfile(member)


def add_file(archive: tarfile.TarFile, member: tarfile.TarInfo, path: bytes) -> bool:
    descriptor = open_for_reading(path)
    try:
        member.size = os.fstat(descriptor).st_size
        source: Any = PaddedFile(descriptor)
        archive.addfile(member, source)
    finally:
        os.close(descriptor)
    return not source.shrank
