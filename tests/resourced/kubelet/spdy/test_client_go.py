"""A conversation with client-go 0.34.4 and moby/spdystream 0.5.0, byte by byte: `kubectl exec -i -- cat`.

It was captured between `remotecommand.NewSPDYExecutor` and this code; the client printed `hello` and ended
without an error. The first reply has a smaller window of zlib since, which Go unpacks as well.
"""

from __future__ import annotations

import asyncio

from redbox_resourced.kubelet.spdy.session import SpdySession
from tests.resourced.kubelet.spdy.harness import MemoryWire

OPENED = (
    ("error", "8003000100000029000000010000000000"),
    ("", "0078f9e3c6a7c26260606004a7b392a2d4c45c6851c29a0a0a6800000000ffff"),
    ("stdin", "800300010000001700000003000000000000c22e555c92929907000000ffff"),
    ("stdout", "800300010000001900000005000000000000c22ac5565c92925f5a02000000ffff"),
    ("stderr", "800300010000001500000007000000000000c229975a5404000000ffff"),
)
REPLIES = (
    "80030002000000130000000118b4e3c6a7c262000200000000ffff"
    "800300020000000c00000003020100000000ffff"
    "800300020000000c00000005020100000000ffff"
    "800300020000000c00000007020100000000ffff"
)
INPUT = ("00000003", "0000000668656c6c6f0a0000000301000000")
OUTPUT = (
    "000000050000000668656c6c6f0a"
    "00000001010000257b226d65746164617461223a207b7d2c2022737461747573223a202253756363657373227d"
    "0000000301000000000000050100000000000007010000008003000700000008"
    "0000000700000000"
)
RESETS = "800300030000000800000001000000058003000300000008000000050000000580030003000000080000000700000005"
STATUS = b'{"metadata": {}, "status": "Success"}'


async def test_client_go_gets_the_bytes_that_it_understood() -> None:
    wire = MemoryWire()
    session = SpdySession(wire)
    running = asyncio.create_task(session.run())
    streams = {}
    for kind, sent in OPENED:
        wire.incoming.put_nowait(bytes.fromhex(sent))
        if kind == "error":  # its frame comes in two pieces
            continue
        stream = await asyncio.wait_for(session.accept(), 60)
        assert stream
        streams[stream.headers["streamtype"]] = stream
    assert list(streams) == ["error", "stdin", "stdout", "stderr"]
    assert wire.sent == bytes.fromhex(REPLIES)

    wire.sent.clear()
    for sent in INPUT:
        wire.incoming.put_nowait(bytes.fromhex(sent))
    assert [await streams["stdin"].read(), await streams["stdin"].read()] == [b"hello\n", b""]
    await streams["stdout"].write(b"hello\n")
    for name, stream in streams.items():
        stream.finish(STATUS if name == "error" else b"")
    session.leave()
    assert wire.sent == bytes.fromhex(OUTPUT)

    wire.incoming.put_nowait(bytes.fromhex(RESETS))
    wire.incoming.put_nowait(b"")
    await asyncio.wait_for(running, 60)
    assert (session.problem, session.open_streams) == ("", 0)
