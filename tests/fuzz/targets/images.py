"""The SIF of a hostile image, as a pod's runner reads its configuration: an image, or one sentence."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from hypothesis import strategies as st

from redbox.runner.program.images import DESCRIPTOR, HEADER, Image, PullFailed
from tests.fuzz.mutations import Pieces, mutated
from tests.fuzz.target import Play, Target

PLACES = st.sampled_from([0, -1, HEADER.size, HEADER.size + DESCRIPTOR.size, 2**40, 2**63 - 1, -(2**63)])
SIZES = st.sampled_from([0, -1, 20, 8 << 20, 2**40, -(2**63)])
CONFIGS = st.one_of(
    st.dictionaries(
        st.sampled_from(["Entrypoint", "Cmd", "Env", "WorkingDir", "StopSignal", "User"]),
        st.sampled_from(["", "a", ["a"], [1], [None], {"a": 1}, 5, ["A=\0"], ["\ud800"], [["a"]], True]),
        max_size=4,
    ).map(lambda config: json.dumps(config).encode()),
    st.sampled_from([b"[" * 5000, b"null", b"\xff", b"9" * 5000, b"", b'{"Env":' * 3000]),
)


@st.composite
def images(draw: st.DrawFn) -> Pieces:
    """The header, the descriptors, and the object that one of them names."""
    config = draw(CONFIGS)
    count = draw(st.sampled_from([1, 1, 0, -1, 5000, 2**62, -(2**62)]))
    where = draw(st.one_of(st.just(HEADER.size), PLACES))
    head = HEADER.pack(b"", b"SIF_MAGIC", b"01", b"02", b"", 0, 0, 0, count, where, 0, 0, 0)
    place = draw(st.one_of(st.just(HEADER.size + DESCRIPTOR.size), PLACES))
    size = draw(st.one_of(st.just(len(config)), SIZES))
    row = DESCRIPTOR.pack(1, 1, 1, 0, 0, place, size, size, 0, 0, 0, 0, b"oci-config.json", b"")
    return [head, row, config]


@asynccontextmanager
async def files() -> AsyncIterator[Play]:
    with tempfile.TemporaryDirectory(prefix="fuzz-sif-") as folder:
        path = Path(folder, "image.sif")

        async def play(pieces: Pieces) -> None:
            path.write_bytes(b"".join(pieces))
            with suppress(PullFailed):
                Image(str(path), None)

        yield play


TARGETS = (Target("images", mutated(images()), files, [b"no image"], in_ci=150),)
