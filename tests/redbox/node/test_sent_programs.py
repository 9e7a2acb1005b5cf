"""Programs that are sent to another host: compiled for a Python that is the same there, and as source."""

from __future__ import annotations

import subprocess
import sys
import zlib

from redbox.node.program.sent_programs import BOOTSTRAP, packed_program
from redbox.relay.program_source import relay_source

PROGRAM = b"""import os, sys
if __name__ == "__main__":
    sys.stdout.write("it reads " + os.read(0, 100).decode())
"""


def sent(data: bytes) -> subprocess.CompletedProcess[bytes]:
    words = [sys.executable, "-I", "-S", "-c", BOOTSTRAP]
    return subprocess.run(words, input=data, capture_output=True, check=False)


def parts(packed: bytes) -> tuple[bytes, bytes, bytes]:
    """Whose code it is, the code, and the source."""
    version, code, source = (int(packed[at : at + 8]) for at in (0, 8, 16))
    assert len(packed) == 24 + version + code + source
    return packed[24:][:version], packed[24 + version :][:code], packed[24 + version + code :]


def packed_of(*three: bytes) -> bytes:
    return b"".join(b"%08d" % len(part) for part in three) + b"".join(three)


def test_the_same_python_runs_what_its_sender_has_compiled() -> None:
    version, code, _ = parts(packed_program(PROGRAM))
    without_source = packed_of(version, code, b"((")
    assert sent(without_source + b"what follows").stdout == b"it reads what follows"


def test_another_python_compiles_the_source() -> None:
    _, code, source = parts(packed_program(PROGRAM))
    others = packed_of(b"3", bytes(len(code)), source)
    assert sent(others + b"what follows").stdout == b"it reads what follows"


def test_a_program_is_sent_in_less_than_half_its_size() -> None:
    _, code, source = parts(packed_program(relay_source()))
    assert len(code) + len(source) < len(zlib.decompress(code) + zlib.decompress(source)) / 2


def test_a_program_of_which_only_a_part_comes_does_not_run() -> None:
    done = sent(packed_program(PROGRAM)[:-1])
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")
