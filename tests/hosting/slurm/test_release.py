"""Slurm's release, as slurmrestd adds it to each answer."""

from __future__ import annotations

import pytest

from tests.hosting.slurm.scripted_server import response
from tests.hosting.slurm.test_client import asking


@pytest.mark.parametrize(
    ("meta", "release"),
    [
        ({"slurm": {"release": "26.05.2"}}, "26.05.2"),
        ({"slurm": {"release": "24.11.0-0rc1"}}, "24.11.0-0rc1"),
        ({"slurm": {"release": "26.05\u2028!"}}, ""),
        ({"slurm": {"release": 26}}, ""),
        ({"slurm": []}, ""),
        ([], ""),
    ],
)
async def test_slurms_release_comes_with_each_answer(meta: object, release: str) -> None:
    async with asking(lambda *_: response({"licenses": [], "meta": meta})) as (client, _):
        assert not client.release
        await client.licenses()
        assert client.release == release
