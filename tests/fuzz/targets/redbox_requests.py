"""red-box's HTTP API: paths, queries, headers and bodies, at its Unix socket, as alice.

`tests/redbox/http/test_contract.py` has what the OpenAPI document can express. Here is what it cannot.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

from hypothesis import strategies as st

from redbox.http.app import bare_app
from tests.fuzz.mutations import Pieces, mutated
from tests.fuzz.target import Play, Target
from tests.fuzz.targets.exchange import exchange, status_of
from tests.redbox.http.harness import standing

DOCUMENT: dict[str, Any] = bare_app().openapi()
PATHS = sorted(DOCUMENT["paths"])
PARAMETERS = sorted(
    {
        parameter["name"]
        for methods in DOCUMENT["paths"].values()
        for operation in methods.values()
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "query" and parameter["name"] not in {"watch", "follow"}
    }
)
KEYS = st.sampled_from(["k1", "k2", "..", "%2e%2e", "%00", "a" * 300, "\u00e9", "", "\u202e"])
VALUES = st.one_of(
    st.sampled_from(
        ["1", "-1", "0", "9" * 30, "9" * 5000, "\u0663", "true", "nan", "null", "[]", "*", "../*", "/", "\0",
         "\ud7ff", "%", "**/" * 200, "[" * 100, "stdout"]
    ),
    st.text(max_size=6),
)  # fmt: skip
HEADERS = st.lists(
    st.sampled_from(
        ["Content-Type: application/json", "Content-Type: text/plain", "Content-Type: \u00ff", "Accept: */*",
         "Expect: 100-continue", "Range: bytes=0-1", "Range: bytes=-", "Authorization: Bearer x",
         "Authorization: Bearer " + "a." * 3000, "Authorization: Basic eDp5", "Authorization: \u00ff",
         "X-Request-Id: " + "9" * 200, "Upgrade: websocket", "Connection: Upgrade",
         "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
         "Content-Encoding: gzip", "If-None-Match: *", "Transfer-Encoding: chunked", "Content-Length: 5"]
    ),
    max_size=5,
)  # fmt: skip
JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-2, 10**20), st.floats(), st.text(max_size=8),
        st.sampled_from(["\0", "\ud800", "#!/bin/sh\n", "a" * 5000, "1-", "%", "01:00:00", "alice"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(
                ["batch", "workingDirectory", "name", "array", "dependency", "environment", "resources",
                 "pod", "container", "image", "options", "volumes", "path", "claim", "containers", "odd", ""]
            ),
            inner,
            max_size=5,
        ),
    ),
    max_leaves=12,
)  # fmt: skip
BODIES = st.one_of(
    JSON.map(lambda document: json.dumps(document).encode()),
    st.dictionaries(st.just("batch"), st.sampled_from(["#!/bin/sh\ntrue\n", "\0", ""]), max_size=1).map(
        lambda document: json.dumps(document).encode()
    ),
    st.sampled_from([b"", b"[" * 20_000, b'{"a":' * 5000, b"\xff\xfe", b"9" * 5000, b'"\\ud800"', b"NaN"]),
    st.binary(max_size=20),
)


@st.composite
def requests(draw: st.DrawFn) -> Pieces:
    path = draw(st.sampled_from(PATHS))
    method = draw(st.sampled_from(["GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH", "X"]))
    known = [name.upper() for name in DOCUMENT["paths"][path]]
    if draw(st.integers(0, 3)):
        method = draw(st.sampled_from(known))
    while "{" in path:
        before, _, after = path.partition("{")
        word = draw(KEYS) if draw(st.booleans()) else "k1"
        path = before + quote(word, safe="%.") + after.partition("}")[2]
    query = draw(st.lists(st.tuples(st.sampled_from(PARAMETERS), VALUES), max_size=3))
    target = path + "?" + "&".join(f"{name}={quote(value)}" for name, value in query)
    body = draw(BODIES)
    length = [f"Content-Length: {len(body)}"] if draw(st.integers(0, 4)) else []
    head = [f"{method} {target} HTTP/1.1", "Host: r", "Connection: close", *length, *draw(HEADERS), "", ""]
    return ["\r\n".join(head).encode("latin-1"), body]


@asynccontextmanager
async def requested() -> AsyncIterator[Play]:
    async with standing(submits_per_second=10_000, body_limit=1 << 20) as stand:
        await stand.submitted("k1")
        async with stand.at_socket() as http:
            await http.get("/v1/jobs/k1/files/none")  # by the agent, which stays

        async def play(pieces: Pieces) -> None:
            answer = await exchange(pieces, path=str(stand.socket))
            assert status_of(answer) < 500, (answer[:600], pieces)

        yield play


FILES = b"GET /v1/jobs/k1/files/none HTTP/1.1\r\nHost: r\r\nConnection: close\r\n\r\n"
TARGETS = (Target("redbox-requests", mutated(requests()), requested, [FILES]),)
