#!/usr/bin/env python3
"""A stand-in for Apptainer: a PID namespace without an image. Real Apptainer runs on the bed only."""

import json
import os
import struct
import sys

WITH_VALUE = {"--no-mount", "--overlay", "--home", "--cwd", "--hostname", "--mount"}


def write_sif(path: str, config: object) -> None:
    data = json.dumps(config).encode()
    header = struct.pack(
        "<32s10s3s3s16sqqqqqqqq", b"", b"SIF_MAGIC", b"01", b"02", b"", 0, 0, 0, 1, 128, 585, 713, len(data)
    )
    fields = (0x4006, 1, 1, 1, 0, 713, len(data), len(data), 0, 0, 0, 0)
    descriptor = struct.pack("<iBIIIqqqqqqq128s384s", *fields, b"oci-config.json", b"")
    with open(path, "wb") as file:
        file.write(header + descriptor + data)


def pull(part: str, image: str) -> None:
    with open(os.path.join(os.path.dirname(sys.argv[0]), "registry.json")) as file:
        registry = json.load(file)
    if image not in registry:
        sys.exit("FATAL:   While making image from oci registry: {} is not there".format(image))
    write_sif(part, registry[image])


def run(words: list) -> None:
    cwd, home = "/", "/"
    while words[0].startswith("-"):
        flag = words.pop(0)
        if flag in WITH_VALUE:
            value = words.pop(0)
            cwd = value if flag == "--cwd" else cwd
            home = value if flag == "--home" else home
    argv = words[1:]
    environment = {"HOME": home}
    for name, value in os.environ.items():
        if name.startswith("APPTAINERENV_"):
            environment[name[len("APPTAINERENV_") :]] = value
    if not any(
        os.access(os.path.join(folder, argv[0]), os.X_OK) for folder in ("", *environment["PATH"].split(":"))
    ):
        sys.stderr.write("FATAL:   stat {}: no such file or directory\n".format(argv[0]))
        sys.exit(255)
    os.chdir(cwd)
    os.execve(
        "/usr/bin/unshare", ["unshare", "-Umipf", "--map-root-user", "--mount-proc", *argv], environment
    )


if __name__ == "__main__":
    if sys.argv[2] == "pull":
        pull(sys.argv[4], sys.argv[5])
    else:
        run(sys.argv[3:])
