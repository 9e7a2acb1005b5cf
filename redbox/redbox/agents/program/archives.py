"""A tar of files and directories, streamed: never held in memory, never written to disk.

Files change while they are read: one that shrinks is padded with zeros, one that grows is cut at the size in
its header; one that vanished or is not readable by the user is omitted. Each of these but growth is reported
in an event, and in the tar itself by two PAX records of Red Box's own, at a repeated entry of the parent
directory. Other readers ignore these records.

The other way round, a private directory is filled with the files of a tar that the server sends: one request
for however many files.
"""

import errno
import os
import stat
import tarfile
from contextlib import suppress
from typing import Any, Callable, Dict, Iterator

from redbox.agents.program.files import open_for_reading, path_bytes, path_text, write_in
from redbox.agents.program.session import WorkerStream
from redbox.agents.program.wire import CHUNK

RECORD_PATH, RECORD_WHY = "REDBOX.incomplete", "REDBOX.why"


def make_tar(stream: WorkerStream) -> Dict[str, Any]:
    """Send the paths, which are relative to the directory; directories recursively."""
    base = path_bytes(stream.request["directory"])
    os.stat(base)
    outlet: Any = TarOutput(stream)  # tarfile only uses write()
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
                add_member(archive, base, relative, stream)
    return {}


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
        # After the header is sent, neither a read error nor a short read must end the archive.
        data = b""
        while len(data) < count and not self.shrank:
            try:
                piece = os.read(self._descriptor, count - len(data))
            except OSError:
                piece = b""
            self.shrank = not piece
            data += piece
        return data + bytes(count - len(data))


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


def add_member(archive: tarfile.TarFile, base: bytes, relative: bytes, stream: WorkerStream) -> None:
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
            return
    except OSError as error:
        report_incomplete(archive, base, relative, describe_read_error(error), stream)
    else:
        archive.addfile(member)


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


def unpack_tar(stream: WorkerStream) -> Dict[str, Any]:
    """Write a tar's files into a directory of the user's own, mode 0700; tell whether it has `wanted`.

    The directory is made, with those above it, unless it exists. Each file replaces an earlier one as a
    whole. Nothing is synced: a job whose files are lost with their host says so.
    """
    path = path_bytes(stream.request["directory"])
    descriptor = open_private_directory(path)
    try:
        unpack_below(b"/proc/self/fd/%d" % descriptor, stream)
    except tarfile.TarError as error:
        raise ValueError("not a tar: {}".format(error)) from None
    except OSError as error:
        raise OSError(error.errno, error.strerror, path) from None
    finally:
        os.close(descriptor)
    return {"found": is_own_file(path_bytes(stream.request["wanted"]))}


def is_own_file(path: bytes) -> bool:
    """Return whether it is a file that only the user can have written."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o022


def open_private_directory(path: bytes) -> int:
    """Open a directory that only the user can enter, and make it first unless it exists.

    Where others may write in the directory above, one of theirs, or a link, may lie there: it is refused.
    """
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    if os.fstat(descriptor).st_uid != os.getuid():
        os.close(descriptor)
        raise PermissionError(errno.EPERM, "it belongs to another user", path)
    os.fchmod(descriptor, 0o700)
    return descriptor


def unpack_below(base: bytes, stream: WorkerStream) -> None:
    source: Any = TarInput(stream)  # tarfile only uses read()
    archive = tarfile.open(  # noqa: SIM115 # entered below
        fileobj=source, mode="r|", encoding="utf-8", errors="surrogateescape", bufsize=CHUNK
    )
    with archive:
        for member in archive:
            unpack_member(archive, member, base)
    while source.read(CHUNK):  # zeros fill up the last record
        pass


class TarInput:
    """The input file of tarfile."""

    def __init__(self, stream: WorkerStream) -> None:
        self._stream = stream

    def read(self, count: int) -> bytes:  # noqa: ARG002 # tarfile takes as many bytes as there are
        return self._stream.receive()


def unpack_member(archive: tarfile.TarFile, member: tarfile.TarInfo, base: bytes) -> None:
    name = member.name.encode("utf-8", "surrogateescape")
    content = archive.extractfile(member) if member.isreg() else None
    if content is None or os.path.isabs(name) or b".." in name.split(b"/"):
        raise ValueError("a tar to unpack has files only, by paths in it")
    folder = os.path.join(base, os.path.dirname(name))
    os.makedirs(folder, 0o700, exist_ok=True)
    directory = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        chunks = iter(lambda: content.read(CHUNK), b"")
        write_in(directory, os.path.basename(name), chunks, member.mode, durable=False)
    finally:
        os.close(directory)
