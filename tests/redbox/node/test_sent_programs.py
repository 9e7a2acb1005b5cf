"""Programs that are sent to another host: compiled for a Python that is the same there, and as source."""

from __future__ import annotations

import subprocess
import sys

from redbox.node.program.sent_programs import BOOTSTRAP, packed_program

PROGRAM = b"""import os, sys
if __name__ == "__main__":
    sys.stdout.write("it reads " + os.read(0, 100).decode())
"""


def sent(data: bytes) -> subprocess.CompletedProcess[bytes]:
    words = [sys.executable, "-I", "-S", "-c", BOOTSTRAP]
    return subprocess.run(words, input=data, capture_output=True, check=False)


def test_the_same_python_runs_what_its_sender_has_compiled() -> None:
    packed = packed_program(PROGRAM)
    without_source = packed[: -len(PROGRAM)] + b"(" * len(PROGRAM)
    assert sent(without_source + b"what follows").stdout == b"it reads what follows"


def test_another_python_compiles_the_source() -> None:
    packed = packed_program(PROGRAM)
    version = sys.version.encode()
    others = packed[:24] + b"3" * len(version) + bytes(int(packed[8:16])) + PROGRAM
    assert len(others) == len(packed)
    assert sent(others + b"what follows").stdout == b"it reads what follows"


def test_a_program_of_which_only_a_part_comes_does_not_run() -> None:
    done = sent(packed_program(PROGRAM)[:-1])
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")
