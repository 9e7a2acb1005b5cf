"""Node lists are as Slurm writes them."""

from __future__ import annotations

import pytest

from redbox_api.node_lists import folded


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["n1"], "n1"),
        (["n1", "n2", "n3"], "n[1-3]"),
        (["n3", "n1", "n2", "n7"], "n[1-3,7]"),
        (["n9", "n10"], "n[9-10]"),
        (["n08", "n09", "n10", "n11"], "n[08-11]"),
        (["n1", "n01"], "n[01,1]"),
        (["gpu01", "n1", "n2", "big"], "gpu01,n[1-2],big"),
        (["rack1-n1", "rack1-n2", "rack2-n1"], "rack1-n[1-2],rack2-n1"),
    ],
)
def test_names_are_folded(names: list[str], text: str) -> None:
    assert folded(names) == text
