"""A Python program that is sent to where nothing of Red Box is installed.

It is compiled by its sender too: for a Python that is the same there, as on most hosts of one cluster. That
spares each start the time of compiling it: of the relay's own start a third. Both are compressed, for Slurm
passes on a step's input in pieces of 1 KiB: a start takes some 3 ms less.
"""

import marshal
import sys
import zlib
from functools import lru_cache

BOOTSTRAP = """import marshal, os, sys, zlib
def take(n):
    b = b""
    while len(b) < n:
        part = os.read(0, n - len(b))
        if not part: os._exit(1)
        b += part
    return b
sizes = take(24)
version, code, source = (take(int(sizes[at:at + 8])) for at in (0, 8, 16))
same = version == sys.version.encode()
plain = zlib.decompress(code if same else source)
exec(marshal.loads(plain) if same else compile(plain, "redbox-program", "exec"))
"""
"""Reads no further than the program: what follows is the program's own input."""


@lru_cache(maxsize=1)
def packed_program(source: bytes) -> bytes:
    """What the bootstrap reads: three lengths, then whose code it is, the code, and the source."""
    version = sys.version.encode()
    code = zlib.compress(marshal.dumps(compile(source, "redbox-program", "exec")))
    source = zlib.compress(source)
    return b"%08d%08d%08d" % (len(version), len(code), len(source)) + version + code + source
