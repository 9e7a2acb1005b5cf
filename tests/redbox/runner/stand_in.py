"""A stand-in for Apptainer: a PID namespace without an image. Real Apptainer runs on the bed only."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import struct
import sys
from pathlib import Path

CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID = 0x20000, 0x8000000, 0x10000000, 0x20000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000

WITH_VALUE = {"--no-mount", "--overlay", "--home", "--cwd", "--hostname", "--mount"}


def write_sif(path: str, config: object) -> None:
    data = json.dumps(config).encode()
    header = struct.pack(
        "<32s10s3s3s16sqqqqqqqq", b"", b"SIF_MAGIC", b"01", b"02", b"", 0, 0, 0, 1, 128, 585, 713, len(data)
    )
    fields = (0x4006, 1, 1, 1, 0, 713, len(data), len(data), 0, 0, 0, 0)
    descriptor = struct.pack("<iBIIIqqqqqqq128s384s", *fields, b"oci-config.json", b"")
    Path(path).write_bytes(header + descriptor + data)


def pull(part: str, image: str) -> None:
    registry = json.loads(Path(sys.argv[0]).with_name("registry.json").read_text())
    if image not in registry:
        sys.exit(f"FATAL:   While making image from oci registry: {image} is not there")
    write_sif(part, registry[image])


def run(words: list[str]) -> None:
    cwd, home, mounted = "/", "/", {}
    while words[0].startswith("-"):
        flag = words.pop(0)
        if flag in WITH_VALUE:
            value = words.pop(0)
            if flag == "--mount":
                fields = dict(field.strip('"').partition("=")[::2] for field in value.split(","))
                mounted[fields["destination"]] = fields["source"]
            cwd = value if flag == "--cwd" else cwd
            home = value if flag == "--home" else home
    argv = [mounted.get(words[1], words[1]), *words[2:]]  # a program that is mounted runs from where it is
    if b"FATAL" in Path(words[0]).read_bytes():  # in the configuration of an image that cannot run here
        sys.stderr.write(f"FATAL:   {json.loads(Path(words[0]).read_bytes()[713:])['FATAL']}\n")
        sys.exit(255)
    environment = {"HOME": home}
    for name, value in os.environ.items():
        if name.startswith("APPTAINERENV_"):
            environment[name[len("APPTAINERENV_") :]] = value
    if shutil.which(argv[0], path=environment.get("PATH")) is None:
        sys.stderr.write(f"FATAL:   stat {argv[0]}: no such file or directory\n")
        sys.exit(255)
    os.chdir(cwd)
    sys.exit(run_in_namespaces(argv, environment))


def run_in_namespaces(argv: list[str], environment: dict[str, str]) -> int:
    """As Apptainer does it: a starter, whose child is number 1 in a namespace of its own."""
    libc = ctypes.CDLL(None, use_errno=True)
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC):
        sys.exit("FATAL:   unshare: " + os.strerror(ctypes.get_errno()))
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        Path("/proc/self", name).write_text(text)
    child = os.fork()
    if child == 0:
        libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None)
        libc.mount(b"proc", b"/proc", b"proc", 0, None)
        os.execvpe(argv[0], argv, environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a key of the container's terminal; Apptainer catches it
    status = os.waitpid(child, 0)[1]
    return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)


if __name__ == "__main__":
    if sys.argv[2] == "pull":
        pull(sys.argv[4], sys.argv[5])
    else:
        run(sys.argv[3:])
