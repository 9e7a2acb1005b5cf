"""What a process needs to run among the processes of a container, but with another container's files.

The kernel lets a process look into others (/proc/PID/root, environ, fd) only from their own user namespace,
or from one above it. Apptainer makes a new one for each container. So a container with the wanted files is
made below the user namespace of the first one, where it only waits; a process of the first one's namespaces
then enters its mount namespace, for which it has the rights, since that is below its own.

All of this is done with the rights of the user who made these namespaces, and gives no other.
"""

import os
import struct
from typing import Dict

FLAGS = {"user": 0x10000000, "pid": 0x20000000, "ipc": 0x8000000, "uts": 0x4000000, "mnt": 0x20000}
"""CLONE_NEWUSER and so on, by the names in /proc/PID/ns."""
MS_PRIVATE_TREE, MS_BIND, MS_PROC = 0x44000, 0x1000, 0xE  # nosuid, nodev, noexec
PR_SET_NO_NEW_PRIVS = 38
ELF_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
IDENTITY, LOADED_AT = b"\x7fELF\x02\x01\x01", 0x400000
WAITING = {
    "x86_64": (62, "b8220000000f05ebf7"),  # pause, again and again
    "aarch64": (
        183,
        "280980d2000080d2010080d2020080d2030080d2040080d2010000d4f9ffff17",
    ),  # ppoll of nothing, without an end
}
"""By machine: ELF's number of it, and a program that does nothing, for images that have no shell."""


def write_waiting(path: str, machine: str) -> bool:
    """Write a program that waits until it is killed, and needs no other file; False: not for this CPU."""
    if machine not in WAITING:
        return False
    number, code = WAITING[machine][0], bytes.fromhex(WAITING[machine][1])
    start = ELF_HEADER.size + PROGRAM_HEADER.size
    size, entry, sizes = start + len(code), LOADED_AT + start, (ELF_HEADER.size, PROGRAM_HEADER.size)
    header = ELF_HEADER.pack(IDENTITY, 2, number, 1, entry, sizes[0], 0, 0, *sizes, 1, 0, 0, 0)
    segment = PROGRAM_HEADER.pack(1, 5, 0, LOADED_AT, LOADED_AT, size, size, 0x1000)
    with open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o700)) as file:
        file.write(header + segment + code)
    return True


def open_namespaces(pid: int) -> Dict[str, int]:
    """Those of a container that this process is not in, by name: as long as they are open, they are its."""
    opened = {}
    for name in FLAGS:
        path = "/proc/{}/ns/{}".format(pid, name)
        if os.readlink(path) != os.readlink("/proc/self/ns/" + name):
            opened[name] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    return opened


def call_libc(name: str, *arguments: object) -> None:
    import ctypes  # noqa: PLC0415 # a megabyte that no runner needs

    libc = ctypes.CDLL(None, use_errno=True)
    if getattr(libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, "{}: {}".format(name, os.strerror(number)))


def join_namespace(name: str, opened: Dict[str, int]) -> None:
    if name in opened:
        call_libc("setns", opened[name], FLAGS[name])


def replace_files(files: Dict[str, str]) -> None:
    """Have this process, and those it starts, see other files at these paths."""
    call_libc("unshare", FLAGS["mnt"])
    call_libc("mount", b"none", b"/", None, MS_PRIVATE_TREE, None)
    for path, source in files.items():
        call_libc("mount", os.fsencode(source), os.fsencode(path), None, MS_BIND, None)


def mount_proc() -> None:
    """Show the processes of this process's own PID namespace at /proc."""
    call_libc("mount", b"proc", b"/proc", b"proc", MS_PROC, None)


def give_up_privileges() -> None:
    """No program that this process starts gains any, as in containers of Apptainer's."""
    call_libc("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
