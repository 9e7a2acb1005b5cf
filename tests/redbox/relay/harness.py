"""A real relay as a local process, and its frames."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from redbox.node.program.sent_programs import packed_program
from redbox.relay.program import frames
from redbox.relay.program.frames import RelayDecoder, RelayFrame
from redbox.relay.program_source import PYTHON, relay_command, relay_source


class RelayProcess:
    """One relay, on pipes."""

    def __init__(
        self,
        *,
        idle_s: float = 60,
        heartbeat_s: float = 45,
        python: Sequence[str] = (),
        changes: Mapping[bytes, bytes] | None = None,
        **env: str,
    ) -> None:
        """`changes` to its source stand in for a node that is not as this one."""
        source = relay_source()
        main = {b"    main()\n": b"    main(%r, %r)\n" % (idle_s, heartbeat_s)}
        for old, new in {**main, **(changes or {})}.items():
            assert old in source
            source = source.replace(old, new)
        self.process = subprocess.Popen(
            [os.environ.get("REDBOX_AGENT_PYTHON", PYTHON), *python, *relay_command()[1:]],
            env={**os.environ, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._decoder = RelayDecoder()
        self._frames: list[RelayFrame] = []
        self.write(packed_program(source))
        assert self.receive().kind == frames.HELLO

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, kind: int, stream: int, payload: bytes = b"") -> None:
        self.write(frames.frame_bytes(kind, stream, payload))

    def open(self, stream: int, *command: str, **more: Any) -> None:
        document = {
            "kind": "command",
            "job": "7",
            "command": command,
            "tty": False,
            "stdin": True,
            "container": None,
            **more,
        }
        self.send(frames.OPEN, stream, frames.order_bytes(document))

    def receive(self) -> RelayFrame:
        """The next frame; EOFError at the relay's end."""
        assert self.process.stdout is not None
        while not self._frames:
            data = os.read(self.process.stdout.fileno(), 1 << 20)
            if not data:
                raise EOFError
            self._frames += self._decoder.feed(data)
        return self._frames.pop(0)

    def until_status(self, stream: int) -> tuple[bytes, dict[str, Any]]:
        """Output and status of a stream, whatever others send meanwhile."""
        output = b""
        while (frame := self.receive()).kind != frames.STATUS or frame.stream != stream:
            if frame.kind == frames.DATA and frame.stream == stream:
                output += frame.payload[1:]
        return output, frames.read_report(frame.payload)


@contextmanager
def started(**options: Any) -> Iterator[RelayProcess]:
    relay = RelayProcess(**options)
    try:
        yield relay
    finally:
        relay.process.kill()
        relay.process.wait()
        for pipe in (relay.process.stdin, relay.process.stdout):
            if pipe is not None:
                pipe.close()
