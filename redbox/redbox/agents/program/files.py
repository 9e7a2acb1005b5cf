"""Operations on files, with the user's own permissions: content and attributes in one answer.

Only regular files are read; /dev/null is an empty one. Opening never blocks on a FIFO and never acquires a
terminal. The kernel decides on access to a path, since the agent is the user.
"""

import errno
import fnmatch
import glob as globbing
import hashlib
import itertools
import os
import re
import shutil
import stat
import subprocess
import threading
import time
from collections import OrderedDict
from contextlib import suppress
from typing import Any, Dict, Iterable, Iterator, List, Optional, Pattern, Tuple

from redbox.agents.program.session import WorkerStream
from redbox.agents.program.wire import CHUNK

TAIL = 4096  # bytes before an offset whose hash identifies the file
MAX_OPEN = 64
NULL_DEVICE = os.makedev(1, 3)
DEEP_REMOVAL = ((b"/bin/chmod", b"-R", b"u+rwx"), (b"/bin/rm", b"-rf"))  # deeper than Python recurses


def path_bytes(text: str) -> bytes:
    path = text.encode("utf-8", "surrogateescape")
    if not os.path.isabs(path) or b"\0" in path:
        raise ValueError("a path must be absolute")
    return path


def path_text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def kind_of(status: os.stat_result) -> str:
    if stat.S_ISCHR(status.st_mode) and status.st_rdev == NULL_DEVICE:
        return "null"
    tests = ((stat.S_ISREG, "file"), (stat.S_ISDIR, "directory"), (stat.S_ISLNK, "symlink"))
    return next((kind for is_kind, kind in tests if is_kind(status.st_mode)), "other")


def attributes_of(status: os.stat_result) -> Dict[str, Any]:
    return {
        "kind": kind_of(status),
        "size": status.st_size,
        "device": status.st_dev,
        "inode": status.st_ino,
        "modified_ns": status.st_mtime_ns,
        "mode": stat.S_IMODE(status.st_mode),
        "uid": status.st_uid,
    }


def attributes_of_match(status: Optional[os.stat_result]) -> Dict[str, Any]:
    if status is not None:
        return attributes_of(status)
    numbers = ("size", "device", "inode", "modified_ns", "mode", "uid")
    return dict(dict.fromkeys(numbers, 0), kind="listed")


def file_system_of(device: int) -> str:
    """Return the type of the file system: "nfs4", "lustre", "ext4"; "" where the mounts do not show it."""
    number = "{}:{}".format(os.major(device), os.minor(device)).encode()
    with open("/proc/self/mountinfo", "rb") as mounts:
        for line in mounts:
            if line.split()[2] == number:
                return line.partition(b" - ")[2].split()[0].decode("ascii", "replace")
    return ""


def open_for_reading(path: bytes) -> int:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except FileNotFoundError:
        if is_listed_only(path):
            raise OSError(errno.EAGAIN, "its directory lists it, but it cannot be opened yet", path) from None
        raise
    if kind_of(os.fstat(descriptor)) in ("file", "null"):
        return descriptor
    os.close(descriptor)
    raise OSError(22, "not a regular file", path)


def is_listed_only(path: bytes) -> bool:
    """Return whether a lookup fails for a listed name: NFS caches negative lookups for a while."""
    directory, name = os.path.split(path)
    try:
        is_listed = name in os.listdir(directory)
    except OSError:
        return False
    return is_listed and not os.path.lexists(path)  # else a dangling link, or a file made just now


def tail_hash(descriptor: int, offset: int) -> str:
    start = max(0, offset - TAIL)
    return hashlib.sha256(os.pread(descriptor, offset - start, start)).hexdigest()


class OpenFileCache:
    """Files that were read recently, so that repeated reads need no open on a file server."""

    def __init__(self) -> None:
        self._files: "OrderedDict[bytes, Tuple[int, float]]" = OrderedDict()
        self._lock = threading.Lock()

    def take(self, path: bytes, reuse_s: float) -> Tuple[int, float]:
        """Return the file and its time of opening; one opened less than `reuse_s` ago is reused."""
        with self._lock:
            descriptor, opened_at = self._files.pop(path, (-1, 0.0))
        if descriptor >= 0 and time.monotonic() - opened_at < reuse_s:
            return descriptor, opened_at
        if descriptor >= 0:
            os.close(descriptor)
        return open_for_reading(path), time.monotonic()

    def give_back(self, path: bytes, descriptor: int, opened_at: float, *, keep: bool) -> None:
        surplus = [] if keep else [descriptor]
        if keep:
            with self._lock:
                surplus += [old for old, _ in [self._files.pop(path, (-1, 0.0))] if old >= 0]
                self._files[path] = (descriptor, opened_at)
                while len(self._files) > MAX_OPEN:
                    surplus.append(self._files.popitem(last=False)[1][0])
        for old in surplus:
            os.close(old)


class FileOperations:
    """The operations on files."""

    def __init__(self) -> None:
        self._open = OpenFileCache()

    def stat(self, stream: WorkerStream) -> Dict[str, Any]:
        path = path_bytes(stream.request["path"])
        status = os.stat(path)
        file_system, real_path = file_system_of(status.st_dev), path_text(os.path.realpath(path))
        return dict(attributes_of(status), file_system=file_system, real_path=real_path)

    def read(self, stream: WorkerStream) -> Dict[str, Any]:
        """Send up to `limit` bytes from `offset` (negative: before the end) if the file is as expected."""
        request = stream.request
        path, reuse_s = path_bytes(request["path"]), float(request["reuse_s"])
        descriptor, opened_at = self._open.take(path, reuse_s)
        try:
            answer = read_open(stream, descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._open.give_back(path, descriptor, opened_at, keep=reuse_s > 0 and bool(answer["same"]))
        return answer

    def glob(self, stream: WorkerStream) -> Dict[str, Any]:
        directory = path_bytes(stream.request["directory"])
        matches = find_matches(directory, stream.request["patterns"])
        for count, (relative, status) in enumerate(matches):
            if count >= stream.request["limit"]:
                return {"truncated": True}
            stream.send_event(dict(attributes_of_match(status), path=path_text(relative)))
        return {"truncated": False}

    def make_directory(self, stream: WorkerStream) -> Dict[str, Any]:
        path = path_bytes(stream.request["path"])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(path, stream.request["mode"])
        if not stat.S_ISDIR(os.stat(path).st_mode):
            raise NotADirectoryError(20, "not a directory", path)
        return {}

    def make_own_directory(self, stream: WorkerStream) -> Dict[str, Any]:
        path, mode = path_bytes(stream.request["path"]), stream.request["mode"]
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            os.mkdir(path, mode)
            os.chmod(path, mode)  # mkdir masks it
        except FileExistsError:
            pass
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(20, "not a directory", path)
        return attributes_of(status)

    def remove_own_directory(self, stream: WorkerStream) -> Dict[str, Any]:
        path = path_bytes(stream.request["path"])
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode) or status.st_ino != stream.request["inode"]:
            raise OSError(errno.ESTALE, "another file is in its place", path)
        remove_tree(path)
        return {}

    def remove(self, stream: WorkerStream) -> Dict[str, Any]:
        path = path_bytes(stream.request["path"])
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            os.unlink(path)
        elif stream.request["recursive"]:
            shutil.rmtree(path)
        else:
            os.rmdir(path)
        return {}

    def write(self, stream: WorkerStream) -> Dict[str, Any]:
        path = path_bytes(stream.request["path"])
        directory = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            chunks = iter(stream.receive, b"")
            return write_in(directory, os.path.basename(path), chunks, stream.request["mode"])
        finally:
            os.close(directory)


def read_open(stream: WorkerStream, descriptor: int) -> Dict[str, Any]:
    request = stream.request
    status = os.fstat(descriptor)
    size = 0 if kind_of(status) == "null" else status.st_size
    offset = request["offset"] if request["offset"] >= 0 else max(0, size + request["offset"])
    expected = request["expect"]
    same = not expected or (
        (expected["device"], expected["inode"]) == (status.st_dev, status.st_ino)
        and size >= offset
        and (not expected["tail"] or expected["tail"] == tail_hash(descriptor, offset))
    )
    end = send_from(stream, descriptor, offset, request["limit"]) if same and size else offset
    if same and expected and expected["tail"] and end > offset:
        # A read beyond the cached end makes a network file system revalidate the file, so compare again.
        same = expected["tail"] == tail_hash(descriptor, offset)
    tail = tail_hash(descriptor, end) if request["tail"] and same and size else ""
    return dict(attributes_of(status), size=size, same=same, offset=offset, tail=tail)


def send_from(stream: WorkerStream, descriptor: int, offset: int, limit: int) -> int:
    """Send until the limit or the end of the file; return the offset reached."""
    end = offset + limit
    while offset < end:
        data = os.pread(descriptor, min(CHUNK, end - offset), offset)
        if not data:
            break
        stream.send(data)
        offset += len(data)
    return offset


def find_matches(directory: bytes, patterns: List[str]) -> Iterator[Tuple[bytes, Optional[os.stat_result]]]:
    """Yield each matching path below the directory once, relative to it; no status if it is only listed."""
    os.stat(directory)  # a missing or unreadable directory is an error, not an empty answer
    encoded = [pattern.encode("utf-8", "surrogateescape") for pattern in patterns]
    of_names = [pattern for pattern in encoded if is_of_names(pattern)]
    paths = [pattern for pattern in encoded if not globbing.has_magic(pattern)]
    others = [pattern for pattern in encoded if pattern not in of_names and pattern not in paths]
    named = (os.path.relpath(os.path.join(directory, path), directory) for path in paths)
    found = itertools.chain(list_matches(directory, of_names), named, glob_matches(directory, others))
    yielded = set()
    for relative in found:
        path = os.path.join(directory, relative)
        try:
            status: Optional[os.stat_result] = os.lstat(path)
        except FileNotFoundError:
            if not is_listed_only(path):
                continue  # removed in the meantime
            status = None
        except OSError:
            continue
        if relative not in yielded:
            yielded.add(relative)
            yield relative, status


def is_of_names(pattern: bytes) -> bool:
    """Return whether the pattern matches names of the directory itself, which one listing of it decides."""
    return globbing.has_magic(pattern) and b"/" not in pattern and pattern != b"**"


def list_matches(directory: bytes, patterns: List[bytes]) -> List[bytes]:
    """List the directory once for all patterns; glob would list it for each, and skip one it cannot list."""
    if not patterns:
        return []
    names = os.listdir(directory)
    hidden = compile_patterns(pattern for pattern in patterns if pattern.startswith(b"."))
    plain = compile_patterns(pattern for pattern in patterns if not pattern.startswith(b"."))
    return [name for name in names if (hidden if name.startswith(b".") else plain).match(name)]


def compile_patterns(patterns: Iterable[bytes]) -> "Pattern[bytes]":
    """Return one regular expression for all; no pattern matches nothing."""
    texts = ["(?:{})".format(fnmatch.translate(pattern.decode("latin-1"))) for pattern in patterns]
    return re.compile("|".join(texts or ["(?!)"]).encode("latin-1"))


def glob_matches(directory: bytes, patterns: List[bytes]) -> Iterator[bytes]:
    for pattern in patterns:
        whole = os.path.join(globbing.escape(directory), pattern)
        for path in globbing.iglob(whole, recursive=True):
            yield os.path.relpath(path, directory)


def remove_tree(path: bytes) -> None:
    """Remove a directory, and directories below it that their owner may not write to."""
    try:
        remove_with_chmod(path)
    except RecursionError:
        for command in DEEP_REMOVAL:
            subprocess.call(
                [*command, b"--", path],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        if os.path.lexists(path):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path) from None


def remove_with_chmod(path: bytes) -> None:
    try:
        shutil.rmtree(path)
    except PermissionError:
        for parent, names, _ in os.walk(path):
            for whole in (os.path.join(parent, name) for name in names):
                if not os.path.islink(whole):
                    os.chmod(whole, 0o700)
        os.chmod(path, 0o700)
        shutil.rmtree(path)


def write_in(
    directory: int, name: bytes, chunks: Iterable[bytes], mode: int, *, durable: bool = True
) -> Dict[str, Any]:
    temporary = b".redbox-" + os.urandom(8).hex().encode()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600, dir_fd=directory)
    try:
        with open(descriptor, "wb", buffering=0) as file:
            for data in chunks:
                write_whole(file.fileno(), data)
            os.fchmod(file.fileno(), mode)
            if durable:
                os.fsync(file.fileno())
            status = os.fstat(file.fileno())
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        os.unlink(temporary, dir_fd=directory)
        raise
    if durable:
        os.fsync(directory)
    return attributes_of(status)


def write_whole(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]
