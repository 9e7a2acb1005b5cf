"""The streams of one exec or attach: error, stdin, stdout, stderr and resize, as its client opens them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from redbox_api.sessions.client import SessionData
from redbox_api.sessions.parts import SessionChannel, SessionStatus, TerminalSize
from redbox_resourced.kubelet.rejection import RequestRejected
from redbox_resourced.kubelet.sessions.statuses import internal_error
from redbox_resourced.kubelet.sessions.stream_connection import ClientStream, StreamConnection
from redbox_resourced.kubelet.spdy.errors import StreamEnded
from redbox_resourced.kubelet.spdy.frames import ResetStatus

PROTOCOLS = ("v4.channel.k8s.io", "v5.channel.k8s.io")
"""v4 first, as kubelets: over SPDY, v5 is the same."""
STREAM_TYPE = "streamtype"
OPENING_S = 30.0
"""For the client to open all its streams: the kubelet's streamCreationTimeout."""
LARGEST_STATUS = 64 * 1024
LARGEST_SIZE = 1024
LARGEST_SIZES = 4 * LARGEST_SIZE
"""Of sizes that come together: only the newest counts."""
NO_SIZE_PAUSE_S = 0.05
MAX_CELLS = 0xFFFF


class StreamsMissing(Exception):
    """The client has not opened the streams that its request names."""


@dataclass(frozen=True)
class StreamOptions:
    """Which streams a request names."""

    stdin: bool
    stdout: bool
    stderr: bool
    tty: bool

    @classmethod
    def read(cls, query: Mapping[str, str]) -> StreamOptions:
        wanted = {name: query.get(name) == "1" for name in ("input", "output", "error", "tty")}
        # A terminal has one output: kubelets ignore `error` beside it.
        options = cls(
            wanted["input"], wanted["output"], wanted["error"] and not wanted["tty"], tty=wanted["tty"]
        )
        if not options.stdin and not options.stdout and not options.stderr:
            raise RequestRejected("you must specify at least 1 of stdin, stdout, stderr")
        return options

    @property
    def names(self) -> set[str]:
        wanted = {"stdin": self.stdin, "stdout": self.stdout, "stderr": self.stderr, "resize": self.tty}
        return {"error"} | {name for name, is_wanted in wanted.items() if is_wanted}


@dataclass
class ClientStreams:
    """Of one session, by their types."""

    session: StreamConnection
    _streams: dict[str, ClientStream] = field(default_factory=dict)
    _held_size: str = ""
    """The beginning of a size."""

    async def gather(self, names: set[str]) -> None:
        """Wait until the client has opened all; others, second ones and later ones are reset."""
        try:
            async with asyncio.timeout(OPENING_S):
                while names - self._streams.keys():
                    stream = await self.session.accept()
                    if stream is None:
                        raise StreamsMissing("the client left before it opened its streams")
                    self._add(stream, names)
        except TimeoutError:
            missing = ", ".join(sorted(names - self._streams.keys()))
            raise StreamsMissing(f"the client did not open its streams in time: {missing}") from None
        self.session.refuse_streams()

    def _add(self, stream: ClientStream, names: set[str]) -> None:
        name = stream.headers.get(STREAM_TYPE, "")
        if name not in names or name in self._streams:
            stream.reset(ResetStatus.PROTOCOL_ERROR)
            return
        self._streams[name] = stream
        if name not in {"stdin", "resize"}:
            stream.discard_input()

    async def read_input(self) -> bytes:
        """The next bytes of stdin; none at its end."""
        stdin = self._streams.get("stdin")
        return await stdin.read() if stdin else b""

    async def write_output(self, output: SessionData) -> None:
        """Of a stream that the client did not open, or has reset, the output is dropped."""
        stream = self._streams.get("stderr" if output.channel is SessionChannel.STDERR else "stdout")
        if stream is not None and output.data:
            with suppress(StreamEnded):
                await stream.write(output.data)

    async def next_size(self) -> TerminalSize | None:
        """The newest of those that have arrived; None once there will be no more."""
        stream = self._streams.get("resize")
        while stream and (piece := await stream.read()):
            sizes, self._held_size = read_sizes(_newest(self._held_size + piece.decode("latin-1")))
            if sizes:
                return sizes[-1]
            await asyncio.sleep(NO_SIZE_PAUSE_S)
        return None

    def finish(self, status: SessionStatus) -> None:
        """The status, then the end of each stream, without waiting: a client must never miss it."""
        text = self._written(status)
        if len(text) > LARGEST_STATUS:
            text = self._written(internal_error("the session's status is too large"))
        for name, stream in sorted(self._streams.items(), key=lambda item: item[0] != "error"):
            stream.finish(text if name == "error" else b"")
            stream.discard_input()

    def _written(self, status: SessionStatus) -> bytes:
        """As the client's protocol has it."""
        text = json.dumps(status.document) if self.session.has_status else status.why
        return text.encode()


def _newest(text: str) -> str:
    """The end of it, from the beginning of a value on."""
    if len(text) <= LARGEST_SIZES:
        return text
    _, brace, rest = text[-LARGEST_SIZES:].partition("{")
    return brace + rest


def read_sizes(text: str) -> tuple[list[TerminalSize], str]:
    """The sizes in a row of JSON values, and the beginning of one that is not whole."""
    sizes: list[TerminalSize] = []
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return sizes, text[at:] if len(text) - at <= LARGEST_SIZE else ""
        size = _size(value)
        if size is not None:
            sizes.append(size)
    return sizes, ""


def _size(value: object) -> TerminalSize | None:
    if not isinstance(value, dict):
        return None
    cells = (value.get("Width"), value.get("Height"))
    match cells:
        case (int(columns), int(rows)) if 0 < columns <= MAX_CELLS and 0 < rows <= MAX_CELLS:
            return TerminalSize(columns=columns, rows=rows)
    return None
