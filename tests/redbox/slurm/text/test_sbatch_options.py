"""sbatch's options: those that a request may give, and those that a script gives."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redbox.slurm.errors import RequestRefused
from redbox.slurm.text.sbatch_options import read_options
from redbox_shared.sbatch_options import (
    ALLOWED,
    FIELDS,
    RESERVED,
    WITH_VALUE,
    Directive,
    full_name,
    read_directives,
)


def refusal(*options: str) -> str:
    with pytest.raises(RequestRefused) as caught:
        read_options(list(options))
    return caught.value.detail


def test_options_of_the_list_are_passed_as_they_are() -> None:
    options = [
        "--exclusive",
        "--exclusive=user",
        "--constraint=gpu&nvlink",
        "--mail-type=END,FAIL",
        "--no-requeue",
    ]
    assert read_options(options) == options


@pytest.mark.parametrize("name", sorted(RESERVED))
@pytest.mark.parametrize("form", ["--{}", "--{}=x"])
def test_what_is_red_boxs_own_is_never_passed(name: str, form: str) -> None:
    assert "red-box sets it" in refusal(form.format(name))


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_an_option_that_is_a_field_is_refused_with_the_fields_name(name: str) -> None:
    assert f"use {FIELDS[name]}" in refusal(f"--{name}=x")


def test_a_field_that_a_slurmjob_calls_otherwise_is_said_in_its_words_too() -> None:
    assert "(of a SlurmJob: dependsOn)" in refusal("--dependency=x")


@pytest.mark.parametrize(
    "option",
    [
        "--comm=x",
        "--export-fi=3",
        "--clu=other",
        "-W",
        "-Hx",
        ":",
        "--",
        "script.sh",
        "",
        "--Wait",
        "--mem 4G",
        "nodes=2",
    ],
)
def test_abbreviations_short_options_and_words_are_refused(option: str) -> None:
    assert refusal(option).startswith("options: ")


def test_an_option_without_its_value_would_swallow_the_mark_that_follows() -> None:
    assert "needs a value" in refusal("--nodelist")
    assert "needs a value" in refusal("--nodelist=")


def test_a_switch_takes_no_value() -> None:
    assert "takes no value" in refusal("--contiguous=yes")


def test_options_of_24_11_are_all_known_as_allowed_or_refused() -> None:
    names = ALLOWED | FIELDS.keys() | RESERVED
    assert {"gpus-per-task", "tres-per-task", "segment", "prefer", "stepmgr"} <= names
    assert not ALLOWED & (FIELDS.keys() | RESERVED)


@given(st.text())
def test_whatever_is_given_is_passed_unchanged_or_refused(option: str) -> None:
    try:
        assert read_options([option]) == [option]
    except RequestRefused:
        return
    name, _, value = option.removeprefix("--").partition("=")
    assert name not in WITH_VALUE or value


def directives(script: str) -> list[tuple[str, str | None]]:
    return [(found.name, found.value) for found in read_directives(script)]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("#SBATCH --output=a.out", [("output", "a.out")]),
        ("#SBATCH --output a.out --wait", [("output", "a.out"), ("wait", None)]),
        ("#SBATCH -o a.out -W", [("output", "a.out"), ("wait", None)]),
        ("#SBATCH -oa.out", [("output", "a.out")]),
        ("#SBATCH -HW", [("hold", None), ("wait", None)]),
        ("#SBATCH -N 2 # comment -W", [("nodes", "2")]),
        ("#SBATCH --job-name='two words'", [("job-name", "two words")]),
        ("#SBATCH --outp=x", [("output", "x")]),
        ("#SBATCH --test", [("test-only", None)]),
        ("#SBATCH -M other", [("clusters", "other")]),
        ("#SBATCH --exclusive -p debug", [("exclusive", None), ("partition", "debug")]),
        ("#SBATCH --time='unclosed", [("time", "'unclosed")]),
        ("##SBATCH -W", []),
        (" #SBATCH -W", []),
        ("#PBS -o a.out -N name", [("output", "a.out")]),
        ("#PBS", []),
        ("#PBS # -o a.out", []),
        (r"#SBATCH -J 'it\'s one' -W", [("job-name", "it's one"), ("wait", None)]),
        ("#SBATCH -J 'a\\b' -o \"c\\nd\"", [("job-name", "ab"), ("output", "cnd")]),
        (r"#SBATCH -J a\ b -W", [("job-name", "a b"), ("wait", None)]),
        ("#SBATCH -J a\\\t-W", [("job-name", "a"), ("wait", None)]),
        ("#SBATCH -J\va\f-W\r", [("job-name", "a"), ("wait", None)]),
        ("#SBATCH -J a\u00a0b\x1cc '-W'", [("job-name", "a\u00a0b\x1cc"), ("wait", None)]),
        ("#SBATCH -J a#b -W", [("job-name", "a")]),
        ("#SBATCH -J a'#'b\\#c # 'unclosed", [("job-name", "a#b#c")]),
        ("#SBATCH -J a'b c'd\"e'\" -W", [("job-name", "ab cde'"), ("wait", None)]),
        ("#SBATCH -J a '' -W", [("job-name", "a")]),
        ("#SBATCH -J ''a \\", [("job-name", "a")]),
    ],
)
def test_a_scripts_lines_are_read_as_sbatch_reads_them(
    line: str, found: list[tuple[str, str | None]]
) -> None:
    assert directives(f"#!/bin/sh\n{line}\n") == found


def test_lines_behind_the_first_command_are_none() -> None:
    script = "#!/bin/sh\n# comment\n\n  # indented comment\n#SBATCH -n1\necho\n#SBATCH --wait\n"
    assert directives(script) == [("ntasks", "1")]


def test_a_directive_knows_its_line() -> None:
    assert list(read_directives("#!/bin/sh\n\n#SBATCH -W\n")) == [Directive(3, "wait", None)]


@pytest.mark.parametrize(
    ("short", "name"), [("wait", "wait"), ("wai", "wai"), ("wait-", "wait-all-nodes"), ("tes", "test-only")]
)
def test_an_abbreviation_stands_for_the_only_name_that_begins_so(short: str, name: str) -> None:
    assert full_name(short) == name


@given(st.text())
def test_no_script_is_too_odd_to_be_read(script: str) -> None:
    list(read_directives(f"#!/bin/sh\n#SBATCH {script}"))


def test_a_name_that_abbreviates_nothing_is_not_kept() -> None:
    """A script of a tenant's may have thousands, of a megabyte each."""
    name = "x" * 1_000_000
    before = sys.getrefcount(name)
    assert full_name(name) == name
    assert sys.getrefcount(name) == before
