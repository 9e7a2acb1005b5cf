"""YAML with the line of every flaw."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbox.core.durations import Duration
from redbox.core.yaml_document import MAX_BYTES, DocumentError, parse_document, read_document, validate
from redbox.settings import RedboxSettings, load_settings

FLAWS: dict[str, tuple[str, list[str]]] = {
    "an unknown key": ("name: a\nlisten:\n  prot: 1\n", ["line 3: listen.prot: there is no such key"]),
    "an unknown key of another part's section": (
        "name: a\njobs:\n  page_size: 3\n  pagesize: 1\n",
        ["line 4: jobs.pagesize: there is no such key"],
    ),
    "a missing key": ("listen: {}\n", ["line 1: name: is missing"]),
    "a missing key of an item": (
        "name: a\ncallers:\n  clusters:\n  - name: prod\n    jwks_file: /a\n    issuer: x\n",
        ["line 4: callers.clusters[1].audience: is missing"],
    ),
    "a key given twice": (
        "name: a\nlisten: {}\nname: b\n",
        ["line 3: name: is already given in line 1"],
    ),
    "a word that YAML takes for a truth": (
        "name: on\n",
        ["line 1: name: Input should be a valid string (not 'True')"],
    ),
    "an alias to itself": ("name: &a [*a]\n", ["line 1: is not YAML: maximum recursion depth exceeded"]),
    "a merge key": ("listen: &a {}\ntls:\n  <<: *a\n", ["line 3: <<: merge keys are not supported"]),
    "a key that is a list": ("? [a]\n: 1\n", ["line 1: a key must be a plain word"]),
    "two documents": ("name: a\n---\nname: b\n", ["line 2: but found another document"]),
    "a tag": ("name: !!python/object:os.system x\n", ["line 1: could not determine a constructor"]),
    "a list": ("- name\n", ["line 1: Input should be a valid dictionary"]),
    "many at once": (
        "listen:\n  port: 70000\nlimits:\n  streams: 0\naudit: 3\n",
        ["line 1: name: is missing", "line 2: listen.port", "line 4: limits.streams", "line 5: audit"],
    ),
    "an audience of somebody else": (
        "name: a\ncallers:\n  clusters:\n  - {name: p, jwks_file: /a, issuer: x, audience: vault}\n",
        ["line 4: callers.clusters[1].audience: String should match pattern"],
    ),
    "two places for keys": (
        (
            "name: a\ncallers:\n  clusters:\n"
            "  - {name: p, jwks_file: /a, jwks_url: 'https://k/', issuer: x, audience: redbox.dev/a/b}\n"
        ),
        ["line 4: callers.clusters[1]: give exactly one of jwks_file and jwks_url"],
    ),
    "keys over plain HTTP": (
        (
            "name: a\ncallers:\n  clusters:\n"
            "  - {name: p, jwks_url: 'http://k/', issuer: x, audience: redbox.dev/a/b}\n"
        ),
        ["line 4: callers.clusters[1].jwks_url: String should match pattern"],
    ),
    "a cluster named like this host": (
        (
            "name: a\ncallers:\n  clusters:\n"
            "  - {name: local, jwks_file: /a, issuer: x, audience: redbox.dev/a/b}\n"
        ),
        ["line 4: callers.clusters[1]: a cluster may not be named local"],
    ),
    "one cluster twice": (
        (
            "name: a\ncallers:\n  clusters:\n"
            "  - {name: p, jwks_file: /a, issuer: x, audience: redbox.dev/a/b}\n"
            "  - {name: p, jwks_file: /a, issuer: x, audience: redbox.dev/a/b}\n"
        ),
        ["line 2: callers: two clusters are named p"],
    ),
    "a path that depends on where the server starts": (
        "name: a\ntls:\n  key_file: server.key\n",
        ["line 3: tls.key_file: server.key must be an absolute path"],
    ),
    "ssh without a section": (
        "name: a\nagents:\n  transport: ssh\n",
        ["line 2: agents: give the section ssh together with transport: ssh, and only then"],
    ),
    "a length of time": (
        "name: a\ncallers:\n  leeway: 1 hour\n",
        ["line 3: callers.leeway: '1 hour' is not a duration: write 500ms, 30s, 10m, 1h or 30d"],
    ),
}


@pytest.mark.parametrize("case", FLAWS)
def test_every_flaw_is_told_with_its_line(case: str) -> None:
    text, expected = FLAWS[case]
    with pytest.raises(DocumentError) as refusal:
        validate(RedboxSettings, parse_document(text, "redbox.yaml"))
    told = str(refusal.value).splitlines()
    assert [line.startswith(f"redbox.yaml {start}") for line, start in zip(told, expected, strict=True)] == [
        True
    ] * len(expected), told


@given(st.text(max_size=200))
def test_no_text_is_anything_but_a_document_or_a_flaw(text: str) -> None:
    try:
        validate(RedboxSettings, parse_document(text, "redbox.yaml"))
    except DocumentError as refusal:
        told = refusal.flaws
        assert told


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"name: \xff", "line 1: is not UTF-8"),
        (b"a" * (MAX_BYTES + 1), "is larger than"),
        (None, "No such file"),
    ],
    ids=["not text", "endless", "missing"],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "redbox.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(DocumentError, match=words):
        read_document(path)


def test_the_shortest_settings_have_only_a_name(tmp_path: Path) -> None:
    path = tmp_path / "redbox.yaml"
    path.write_text("name: hpc1\n")
    assert load_settings(path) == RedboxSettings(name="hpc1")


@pytest.mark.parametrize(
    ("written", "seconds", "shown"),
    [
        ("30s", 30, "30s"),
        ("90", None, ""),
        (90, 90, "90s"),
        ("1.5h", 5400, "90m"),
        ("30d", 2_592_000, "30d"),
        ("500ms", 0.5, "500ms"),
        (0, 0, "0s"),
        ("-1s", None, ""),
        ("1w", None, ""),
        (True, None, ""),
        (float("inf"), None, ""),
        (None, None, ""),
    ],
)
def test_lengths_of_time_read_as_they_are_written(written: object, seconds: float | None, shown: str) -> None:
    if seconds is None:
        with pytest.raises(ValueError, match="is not a duration"):
            Duration.parse(written)
    else:
        assert Duration.parse(written) == seconds
        assert str(Duration.parse(written)) == shown


@given(st.integers(min_value=0, max_value=10**9))
def test_what_is_shown_of_a_length_of_time_can_be_read_again(milliseconds: int) -> None:
    duration = Duration(milliseconds / 1000)
    assert Duration.parse(str(duration)) == pytest.approx(duration)
