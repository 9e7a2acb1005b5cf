"""Hostile text in fields: newlines, delimiters, escape codes, whole forged records."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from redbox.slurm.text.record_format import (
    ParseReport,
    RecordFormat,
    decode,
    new_token,
    split_fields,
    split_records,
    split_table,
)

FIELDS = ("JobID", "Name", "Comment")
hostile = st.one_of(
    st.text(),
    st.sampled_from(
        ["", "\n", "|", "a|b\n7|x|y", "\x1b[31m", "~", "~~", "~guess~", "\r\n", ",", "%i", "(null)"]
    ),
)


def render(frame: RecordFormat, records: list[list[str]]) -> str:
    """As squeue prints them: each field with its suffix, each record on a line of its own."""
    return "".join(frame.field_end.join(fields) + frame.record_end + "\n" for fields in records)


def read(frame: RecordFormat, text: str) -> tuple[list[list[str] | None], ParseReport]:
    tally = ParseReport()
    return [split_fields(record, frame, tally) for record in split_records(text, frame, tally)], tally


def without_newline_first(texts: list[str]) -> list[str]:
    """An id never begins with a newline, and so the line end before a record does not belong to it."""
    return [texts[0].lstrip("\n"), *texts[1:]]


records = st.lists(st.lists(hostile, min_size=3, max_size=3).map(without_newline_first), max_size=5)


@given(records)
def test_whatever_users_write_comes_back_as_they_wrote_it(written: list[list[str]]) -> None:
    frame = RecordFormat.new(FIELDS)
    found, tally = read(frame, render(frame, written))
    assert found == written
    assert tally.complete


@given(records, st.data())
def test_an_answer_that_was_cut_is_known_to_be_cut(written: list[list[str]], data: st.DataObject) -> None:
    frame = RecordFormat.new(FIELDS)
    text = render(frame, [*written, ["9", "name", "comment"]])
    end = data.draw(st.integers(0, len(text) - len(frame.record_end) - 1))
    found, tally = read(frame, text[:end])
    assert len(found) <= len(written)
    assert tally.cut or text[:end].strip() == render(frame, written[: len(found)]).strip()


@given(st.text(), st.text())
def test_one_who_does_not_know_the_token_cannot_forge_a_record(name: str, comment: str) -> None:
    guessed = RecordFormat.new(FIELDS)
    frame = RecordFormat.new(FIELDS)
    forged = render(guessed, [["1", "root", "rb1.mark"]])
    found, _ = read(frame, render(frame, [["7", name + forged, comment + "\n1|root|rb1.mark\n" + forged]]))
    assert [fields[0] for fields in found if fields] == ["7"]


def test_a_record_with_too_many_fields_is_dropped_and_counted() -> None:
    frame = RecordFormat.new(FIELDS)
    text = render(frame, [["1", "a", "b", "c"], ["2", "a", "b"]])
    found, tally = read(frame, text)
    assert found == [None, ["2", "a", "b"]]
    assert tally.dropped == 1
    assert not tally.complete


def test_a_line_of_a_table_with_a_wrong_count_of_fields_is_dropped_and_counted() -> None:
    tally = ParseReport()
    assert list(split_table("1|a\n2|b|c\n\n3|d\n", 2, tally)) == [["1", "a"], ["3", "d"]]
    assert (tally.dropped, tally.cut) == (2, False)


def test_a_table_without_its_end_is_known_to_be_cut() -> None:
    tally = ParseReport()
    assert list(split_table("1|a\n2|b", 2, tally)) == [["1", "a"]]
    assert tally.cut


def test_tokens_are_new_each_time_and_taken_literally_by_slurms_formats() -> None:
    tokens = {new_token() for _ in range(200)}
    assert len(tokens) == 200
    assert all(token[0] == "~" and not set(token) & set(",%: \n") for token in tokens)


def test_the_format_asks_for_fields_without_width_so_that_none_is_cut() -> None:
    frame = RecordFormat(("JobID", "Name"), "~f~", "~r~")
    assert frame.format() == "JobID:~f~,Name:~r~"


def test_what_is_no_utf8_is_marked_and_no_fault() -> None:
    assert decode(b"a\xffb") == "a�b"
