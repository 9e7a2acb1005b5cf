"""Volumes on this node, and the job's folder on scratch: made before the first container, gone at the end.

Files of Secrets go to memory where there is room, and may be replaced while the pod runs. A path in a volume
never leads out of it.
"""

import base64
import errno
import fcntl
import glob
import os
import shutil
import stat
import subprocess
import threading
import time
from contextlib import suppress
from typing import Callable, Dict, List, Optional

from redbox.node.program.atomic_files import UpdateFile, VolumeFile, VolumeFiles, copy_all, write_whole
from redbox.node.program.attachments import SCRATCH_PREFIX
from redbox.runner.program.rules import ConfigRefused, Document, expand_strictly

MEMORY = "/dev/shm"  # noqa: S108 # a folder of the job's own is made there
DEVICE_ROOT = "/dev"
YOUNG_S = 60
REMOVAL = (("chmod", "-R", "u+rwx"), ("rm", "-rf"))
SPARE = 16 * 1024 * 1024
KINDS: Dict[str, Callable[[int], bool]] = {
    "Directory": stat.S_ISDIR,
    "File": stat.S_ISREG,
    "Socket": stat.S_ISSOCK,
    "CharDevice": stat.S_ISCHR,
    "BlockDevice": stat.S_ISBLK,
}
KIND_WORDS = {"CharDevice": "character device", "BlockDevice": "block device"}


class ScratchFailed(Exception):
    """The node has no place for the pod."""


class MountFailed(Exception):
    """A volume cannot be mounted yet."""


class NodeVolume:
    """One volume: where it is on the node."""

    def __init__(
        self, name: str, path: str, *, files: Optional[VolumeFiles] = None, size_limit: Optional[int] = None
    ) -> None:
        self.name = name
        self.path = path
        self.files = files
        self.is_empty_dir = False
        self.size_limit = size_limit


class Mount:
    """A path of the node that a container sees."""

    def __init__(self, source: str, destination: str, *, read_only: bool) -> None:
        self.source = source
        self.destination = destination
        self.read_only = read_only


class Scratch:
    """The job's own folders: one on the node's disk, and one in its memory if it needs one.

    Each is locked as long as this process lives, so that the next pod of the user on this node removes what a
    killed one has left.
    """

    def __init__(self, parent: str, name: str) -> None:
        self._name = name
        self._locks: List[int] = []
        self._memory: Optional[str] = None
        remove_abandoned(parent)
        remove_abandoned(MEMORY)
        try:
            self.path = self._make(parent)
        except OSError as error:
            raise ScratchFailed(
                "The pod needs a folder below {} on node {}, and none could be made: {}. Ask the cluster's "
                "administrator for another pods.scratch.".format(parent, os.uname()[1], error.strerror)
            ) from error

    def folder(self, *parts: str) -> str:
        path = os.path.join(self.path, *parts)
        os.makedirs(path, mode=0o700, exist_ok=True)
        return path

    def memory(self) -> str:
        if self._memory is None:
            self._memory = self._make(MEMORY)
        return self._memory

    @property
    def paths(self) -> List[str]:
        return [self.path, *([self._memory] if self._memory is not None else [])]

    def remove(self) -> None:
        for path in self.paths:
            remove_tree(path)
        while self._locks:
            os.close(self._locks.pop())

    def _make(self, parent: str) -> str:
        # Without tempfile, which takes 3 MB.
        name = "{}{}-{}-{}".format(SCRATCH_PREFIX, self._name, os.getpid(), os.urandom(8).hex())
        path = os.path.join(parent, name)
        os.mkdir(path, 0o700)
        self._locks.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        fcntl.flock(self._locks[-1], fcntl.LOCK_EX)
        return path


def make_on_this_node(volume: str) -> None:
    """Make an emptyDir of a pod whose runner is on another node, and lock its scratch as that one does.

    The lock is shared with the other ranks of this node, and lasts as long as this process. Users of the
    runner's node see the scratch's name, and may have made a folder of that name here.
    """
    scratch = volume
    while not os.path.basename(scratch).startswith(SCRATCH_PREFIX):
        scratch = os.path.dirname(scratch)
    with suppress(FileExistsError):
        os.mkdir(scratch, 0o700)
    lock = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    status = os.fstat(lock)
    if status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise PermissionError(errno.EPERM, "the folder is not this user's alone", scratch)
    with suppress(BlockingIOError):  # the runner is on this node
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    os.makedirs(volume, mode=0o700, exist_ok=True)


def remove_abandoned(parent: str) -> None:
    """Remove this user's folders whose runner has gone."""
    for path in glob.glob(os.path.join(glob.escape(parent), SCRATCH_PREFIX + "*")):
        with suppress(OSError):
            status = os.lstat(path)
            if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode):
                continue
            if time.time() - status.st_mtime < YOUNG_S:
                continue  # it may be made but not yet locked
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                remove_tree(path)
            finally:
                os.close(lock)


def remove_tree(path: str) -> None:
    """Remove a tree, also below folders that their owner has made unwritable."""

    def open_up(_function: object, failed: str, _error: object) -> None:
        with suppress(OSError):
            os.chmod(os.path.dirname(failed), 0o700)
            if os.path.isdir(failed) and not os.path.islink(failed):
                os.chmod(failed, 0o700)
                shutil.rmtree(failed, ignore_errors=True)
            else:
                os.unlink(failed)

    for _ in range(3):
        if not os.path.lexists(path):
            return
        with suppress(RecursionError):
            shutil.rmtree(path, onerror=open_up)
    if os.path.islink(path):  # chmod would follow it
        return
    for command in REMOVAL:  # deeper than Python or a path's length goes
        subprocess.call([*command, "--", path], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class VolumeSet:
    """All volumes of the pod."""

    def __init__(
        self, specs: List[Document], private_folder: str, scratch: Scratch, shared: Optional[str] = None
    ) -> None:
        self._private = private_folder
        self._shared = shared  # where all nodes of an MPI program see files
        self._scratch = scratch
        self._host_paths = [spec for spec in specs if spec.get("hostPath")]
        self.by_name: Dict[str, NodeVolume] = {}
        for spec in specs:
            if spec.get("files") is not None:
                self.by_name[spec["name"]] = self._make_files(spec["name"], spec["files"])
            elif spec.get("emptyDir") is not None:
                self.by_name[spec["name"]] = self._make_empty(spec["name"], spec["emptyDir"])

    def check_host_paths(self) -> None:
        """Find each hostPath, and make those that may be made; MountFailed if one is not there."""
        for spec in self._host_paths:
            name, host_path = spec["name"], spec["hostPath"]
            check_host_path(name, host_path["path"], host_path.get("type") or "")
            self.by_name[name] = NodeVolume(name, host_path["path"])

    def mounts(self, container: Document, values: Dict[str, str]) -> List[Mount]:
        """The container's mounts, outer ones first."""
        mounts = [self._mount(spec, values) for spec in container.get("mounts") or []]
        wanted = [mount for mount in mounts if mount.destination != MEMORY]  # each container has its own
        for mount in wanted:
            check_mountable(mount)
        return sorted(wanted, key=lambda mount: mount.destination.count("/"))

    @property
    def has_limits(self) -> bool:
        return any(volume.size_limit is not None for volume in self.by_name.values())

    def oversized(self) -> Optional[NodeVolume]:
        """An emptyDir with more in it than its limit."""
        for volume in self.by_name.values():
            if volume.size_limit is not None and used_bytes(volume.path) > volume.size_limit:
                return volume
        return None

    def _mount(self, spec: Document, values: Dict[str, str]) -> Mount:
        volume = self.by_name[spec["volume"]]
        sub_path = spec.get("subPath") or ""
        if spec.get("expandSubPath"):
            sub_path = expand_strictly(sub_path, values)
        source = find_sub_path(volume, sub_path) if sub_path else volume.path
        destination = os.path.normpath("/" + spec["mountPath"].lstrip("/"))
        return Mount(source, destination, read_only=bool(spec.get("readOnly")) or volume.files is not None)

    def _make_empty(self, name: str, spec: Document) -> NodeVolume:
        if spec.get("inMemory"):
            path = os.path.join(self._scratch.memory(), "volumes", name)  # not beside files-NAME of Secrets
            os.makedirs(path)
        else:
            path = self._scratch.folder("volumes", name)
        os.chmod(path, 0o777)  # noqa: S103 # as kubelets do; the folder above it is the user's alone
        volume = NodeVolume(name, path, size_limit=spec.get("sizeLimit"))
        volume.is_empty_dir = True
        return volume

    def update(self, update: UpdateFile) -> None:
        """Replace the files of one source of a volume; a volume that has none is not changed."""
        header = update.header
        volume = self.by_name.get(header["volume"])
        if volume is None or volume.files is None:
            raise ValueError("the pod has no volume {} with files".format(header["volume"]))
        entries = [read_entry(file, header["source"]) for file in header["files"]]
        sizes = {id(entry): int(file["size"]) for entry, file in zip(entries, header["files"])}
        volume.files.replace(
            header["source"], entries, lambda entry, target: update.copy(sizes[id(entry)], target)
        )

    def _make_files(self, name: str, spec: Document) -> NodeVolume:
        """Write the files; what red-box has written into the private folder is moved."""
        written = os.path.join(self._private, "files", name)
        parent = self._shared or self._scratch.path
        if spec.get("secret") and not self._shared and has_room(MEMORY, used_bytes(written)):
            parent = self._scratch.memory()
        path = os.path.join(parent, "files-" + name)
        files = VolumeFiles(path)
        try:
            entries = [read_entry(file, file.get("source", 0)) for file in spec["files"]]
        except ValueError as error:
            raise ScratchFailed("volume {}: {}".format(name, error)) from error
        given = {id(entry): file.get("content") for entry, file in zip(entries, spec["files"])}

        def write(entry: VolumeFile, target: int) -> None:
            content = given[id(entry)]
            source = os.path.join(written, entry.path)
            if content or not os.path.exists(source):
                write_whole(target, base64.b64decode(content or ""))
                return
            with open(source, "rb") as file:  # red-box has written it, closed to others
                copy_all(file.fileno(), target)

        files.replace(None, entries, write)
        shutil.rmtree(written, ignore_errors=True)
        return NodeVolume(name, path, files=files)


def read_entry(spec: Document, source: int) -> VolumeFile:
    return VolumeFile(spec["path"], int(spec.get("mode", 0o644)), int(source))


def has_room(folder: str, size: int) -> bool:
    try:
        room = os.statvfs(folder)
    except OSError:
        return False
    return os.access(folder, os.W_OK) and room.f_bavail * room.f_frsize > size + SPARE


def check_host_path(name: str, path: str, kind: str) -> None:
    """Kubernetes' types of a hostPath; the sentences are kubelets' own."""
    try:
        if kind in ("", "DirectoryOrCreate") and not os.path.exists(path):
            os.makedirs(path, mode=0o755)
        elif kind == "FileOrCreate" and not os.path.exists(path):
            with open(path, "ab"):
                pass
        mode = os.stat(path).st_mode
    except OSError as error:
        raise MountFailed(
            'MountVolume.SetUp failed for volume "{}" : {}: {} on node {}: give a path that Slurm\'s nodes '
            "have and your user may enter".format(name, path, error.strerror, os.uname()[1])
        ) from error
    wanted = kind.replace("OrCreate", "")
    if wanted and not KINDS[wanted](mode):
        raise MountFailed(
            'MountVolume.SetUp failed for volume "{}" : hostPath type check failed: {} is not a {}'.format(
                name, path, KIND_WORDS.get(wanted, wanted.lower())
            )
        )


def find_sub_path(volume: NodeVolume, sub_path: str) -> str:
    """The path below the volume, which a link cannot leave; made if it is missing, as kubelets do."""
    if volume.files is None:
        return find_below(volume, sub_path)
    return volume.files.resolve(lambda: find_below(volume, sub_path))


def find_below(volume: NodeVolume, sub_path: str) -> str:
    top = os.path.realpath(volume.path)
    path = os.path.realpath(os.path.join(top, sub_path))
    if sub_path.startswith("/") or ".." in sub_path.split("/") or not (path + "/").startswith(top + "/"):
        raise ConfigRefused(
            'failed to prepare subPath for volumeMount "{}": {!r} is not below the volume'.format(
                volume.name, sub_path
            )
        )
    if not os.path.exists(path):
        if volume.files is not None:
            raise ConfigRefused(
                'failed to prepare subPath for volumeMount "{}": {!r} is not in the volume'.format(
                    volume.name, sub_path
                )
            )
        try:
            os.makedirs(path, mode=0o755)
        except OSError as error:
            raise ConfigRefused(
                'failed to create subPath directory for volumeMount "{}": {}'.format(
                    volume.name, error.strerror
                )
            ) from error
    return path


def check_mountable(mount: Mount) -> None:
    """Refuse what Apptainer leaves out with a warning: all that begins with /dev is a device to it."""
    source, destination = mount.source, mount.destination
    is_same_device = source == destination and source.startswith(DEVICE_ROOT + "/")
    if source.startswith(DEVICE_ROOT) and destination.startswith(DEVICE_ROOT) and not is_same_device:
        raise ConfigRefused(
            "{} cannot be mounted at {}: Apptainer mounts what begins with {} only at paths that do not, and "
            "devices at their own: choose another mountPath".format(source, destination, DEVICE_ROOT)
        )


def used_bytes(folder: str) -> int:
    """What lies below a folder, as far as paths reach; without recursion, since a container may go deep."""
    total, folders = 0, [folder]
    while folders:
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                with suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
    return total


def write_once(folder: str, name: str, content: str) -> str:
    """Write a file that all containers share; nothing for no content."""
    path = os.path.join(folder, name)
    if content and not os.path.exists(path):
        part = "{}.{}".format(path, threading.get_ident())
        with open(part, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(content)
        os.rename(part, path)
    return path if content else ""


def make_below(top: str, below: str) -> None:
    """Make a folder of a volume; nothing where a link, which containers may have made, leads out of it."""
    top = os.path.realpath(top)
    path = os.path.realpath(os.path.join(top, below))
    if (path + "/").startswith(top + "/"):
        with suppress(OSError):
            os.makedirs(path, exist_ok=True)
