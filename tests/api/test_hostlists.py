"""Host lists are read and written as Slurm writes them."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbox_api.hostlists import LONGEST, expand, first_host, fold


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
        (["n", "n1", "n2"], "n,n[1-2]"),
        (["8" * 5000, "9" * 5000], f"{'8' * 5000},{'9' * 5000}"),
    ],
)
def test_names_are_folded(names: list[str], text: str) -> None:
    assert fold(names) == text


def test_the_name_that_a_stranger_gives_a_node_costs_its_length_and_not_the_square_of_it() -> None:
    """With the square this takes hours, in the event loop of an operator that serves all."""
    name = "1" * (1 << 20) + "a"
    assert fold([name]) == name


@pytest.mark.parametrize(
    ("hostlist", "first"),
    [
        ("n1", "n1"),
        ("n[1-3,7]", "n1"),
        ("gpu[01-12],m2", "gpu01"),
        ("a,b", "a"),
        ("n[3]-ib", "n3-ib"),
        ("", None),
    ],
)
def test_the_first_host_of_a_list(hostlist: str, first: str | None) -> None:
    assert first_host(hostlist) == first


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", []),
        ("n1", ["n1"]),
        ("n[1-3,7],gpu01", ["n1", "n2", "n3", "n7", "gpu01"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("r[1-2]n[1-2]x", ["r1n1x", "r1n2x", "r2n1x", "r2n2x"]),
        ("n[1-", ["n[1-"]),
        ("n[a-b]", ["n[a-b]"]),
        ("n[1-99999999]", ["n[1-99999999]"]),
        ("(null)", ["(null)"]),
        ("n[5-3],m", ["n[5-3]", "m"]),
        (",a,,b,", ["a", "b"]),
        (f"n{'[1]' * 9}", [f"n{'[1]' * 9}"]),
        (f"{'n' * 256}[1-2]", [f"{'n' * 256}[1-2]"]),
        (f"n[{'0' * 40}1]", [f"n[{'0' * 40}1]"]),
        ("n1,n[1-2],n2", ["n1", "n2"]),
    ],
)
def test_a_host_list_is_expanded_and_other_text_is_kept(text: str, names: list[str]) -> None:
    assert expand(text) == names


@given(st.text(alphabet="n[]-,0123456789x", max_size=40))
def test_no_text_makes_a_host_list_fail_or_grow_without_bound(text: str) -> None:
    assert len(expand(text)) <= 20_000


@pytest.mark.parametrize(
    "text",
    [
        f"n[{','.join(['0-19999'] * 1000)}]",
        ",".join(["n[0-19999][5-3]"] * 10_000),
        f"n{'[0-9]' * 4000}",
        f"{'n' * 100_000}[0-19999]",
    ],
)
def test_what_a_host_list_costs_is_bounded_by_its_names(text: str) -> None:
    """A user's own agent may answer with any: each of these took seconds, or gigabytes."""
    tracemalloc.start()
    names = expand(text)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(names) <= LONGEST
    assert peak < 64 << 20
