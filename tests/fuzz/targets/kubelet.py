"""resourced's kubelet port: SPDY frames of a session, and the paths and queries of requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from urllib.parse import quote, urlencode

from hypothesis import strategies as st

from tests.fuzz.mutations import Pieces, mutated
from tests.fuzz.target import Play, Target
from tests.fuzz.targets.exchange import exchange, status_of
from tests.resourced.kubelet.sessions.harness import Stand, kubelet_api
from tests.resourced.kubelet.spdy import harness
from tests.resourced.kubelet.spdy.harness import Peer, control, data, pair, ping, settings

STREAM_TYPES = ("stdin", "stdout", "stderr", "error", "resize", "data", "", "\u00e9")
NUMBERS = st.sampled_from([0, 1, 2, 3, 5, 7, 9, 2**31 - 1, 2**32 - 1])
OTHER_FRAMES = st.one_of(
    st.builds(data, NUMBERS, st.binary(max_size=300), is_last=st.booleans()),
    st.builds(pair, st.sampled_from([harness.RST, harness.GOAWAY, harness.WINDOW]), NUMBERS, NUMBERS),
    st.builds(ping, NUMBERS),
    st.builds(settings, NUMBERS, NUMBERS),
    st.builds(control, st.integers(0, 12), st.binary(max_size=60), st.integers(0, 255)),
    st.just(data(3, b'{"Width":80,"Height":24}')),
)
OPENED = st.fixed_dictionaries(
    {"streamtype": st.sampled_from(STREAM_TYPES)},
    optional={
        "port": st.sampled_from(["80", "0", "65536", "x", ""]),
        "requestid": st.sampled_from(["1", "2", "\0", "9" * 400]),
    },
)


@st.composite
def conversations(draw: st.DrawFn) -> Pieces:
    """Streams that are opened one after the other (their headers are packed together), among other frames."""
    peer, steps = Peer(), draw(st.lists(st.one_of(OPENED, OTHER_FRAMES), max_size=14))
    return [peer.open(step)[1] if isinstance(step, Mapping) else step for step in steps]


async def converse(stand: Stand, request: str, protocols: tuple[str, ...], pieces: Pieces) -> None:
    """The connection ends, by GOAWAY unless the client ended it first."""
    query = [("command", "cat"), ("input", "1"), ("output", "1"), ("error", "1"), ("tty", "1")]
    client = await stand.request(request, query, protocols=protocols)
    assert client.status == 101, client.body
    try:
        with suppress(ConnectionError):
            for piece in pieces:
                client.send(piece)
                await client.writer.drain()
            client.writer.write_eof()
            while not client.peer.of("goaway") and (received := await client.reader.read(65536)):
                client.peer.feed(received)
    finally:
        client.writer.close()


@asynccontextmanager
async def commands() -> AsyncIterator[Play]:
    async with kubelet_api() as stand:
        v4 = ("v4.channel.k8s.io",)
        yield lambda pieces: converse(stand, "/exec/alice/train/main", v4, pieces)


@asynccontextmanager
async def forwards() -> AsyncIterator[Play]:
    async with kubelet_api() as stand:
        portforward = ("portforward.k8s.io",)
        yield lambda pieces: converse(stand, "/portForward/alice/train", portforward, pieces)


# ---- requests
WORDS = st.sampled_from(["alice", "train", "main", "..", "%2e%2e", "%00", "a" * 5000, "", "\u00e9", "%", "x"])
ROUTES = st.sampled_from(
    ["containerLogs", "exec", "attach", "portForward", "run", "pods", "stats/summary", "metrics/resource",
     "healthz", "metrics", "logs", "checkpoint", ""]
)  # fmt: skip
VALUES = st.one_of(
    st.sampled_from(
        ["1", "0", "true", "-1", "9" * 19, "9" * 5000, "\u0663", "\u00b2", "nan", "2020-01-01T00:00:00Z", "",
         "9999-12-31T23:59:59.999999+23:59", "0001-01-01T00:00:00-23:59", "All", "Stdout", "\ud7ff", "\0"]
    ),
    st.text(max_size=8),
)  # fmt: skip
QUERIES = st.lists(
    st.tuples(
        st.sampled_from(
            ["follow", "tailLines", "sinceSeconds", "sinceTime", "timestamps", "limitBytes", "previous",
             "stream", "command", "input", "output", "error", "tty", "stdin", "ports", "odd"]
        ),
        VALUES,
    ),
    max_size=5,
)  # fmt: skip
HEADERS = st.lists(
    st.sampled_from(
        ["Upgrade: SPDY/3.1", "Connection: Upgrade", "X-Stream-Protocol-Version: v4.channel.k8s.io",
         "X-Stream-Protocol-Version: portforward.k8s.io", "Upgrade: websocket", "Connection: close",
         "Sec-WebSocket-Key: AAAA", "Content-Length: 3", "Content-Length: -1", "Transfer-Encoding: chunked",
         "Expect: 100-continue", "Content-Encoding: gzip", "Accept-Encoding: \u00ff", ": ", "Host: b"]
    ),
    max_size=6,
)  # fmt: skip


@st.composite
def requests(draw: st.DrawFn) -> Pieces:
    method = draw(st.sampled_from(["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "CONNECT", "X"]))
    words = draw(st.lists(WORDS, max_size=4)) if draw(st.booleans()) else ["alice", "train", "main"]
    path = "/".join(["", draw(ROUTES), *(quote(word, safe="%./") for word in words)])
    query = urlencode(draw(QUERIES))
    head = "\r\n".join(
        [f"{method} {path}?{query} HTTP/1.1", "Host: n", "Connection: close", *draw(HEADERS), "", ""]
    )
    return [head.encode("latin-1"), draw(st.binary(max_size=10))]


async def request(stand: Stand, pieces: Pieces) -> None:
    """Every answer is one of the 1xx to 4xx, whatever is asked."""
    answer = await exchange(pieces, port=stand.port)
    assert status_of(answer) < 500 or b"for this log" in answer, answer[:500]


@asynccontextmanager
async def requested() -> AsyncIterator[Play]:
    async with kubelet_api() as stand:
        yield lambda pieces: request(stand, pieces)


def opened(*streams: Mapping[str, str]) -> Pieces:
    peer = Peer()
    return [peer.open(headers)[1] for headers in streams]


COMMAND = opened(*({"streamtype": kind} for kind in ("error", "stdin", "stdout", "stderr", "resize")))
FORWARD = opened(
    {"streamtype": "error", "port": "80", "requestid": "1"},
    {"streamtype": "data", "port": "80", "requestid": "1"},
)
LOG = b"GET /containerLogs/alice/train/main HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n"
TARGETS = (
    Target("kubelet-exec", mutated(conversations()), commands, [*COMMAND, data(3, b"x", is_last=True)]),
    Target("kubelet-forward", mutated(conversations()), forwards, [*FORWARD, data(3, b"x", is_last=True)]),
    Target("kubelet-requests", mutated(requests()), requested, [LOG]),
)
