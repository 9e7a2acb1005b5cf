"""Where a job lives, by the administrator's template."""

from __future__ import annotations

import json
import tracemalloc
from unittest.mock import Mock

import pytest

from redbox.agents.program.wire import MAX_HEADER
from redbox.core.domain import Caller, JobKey, JobShape, Owner, Role, UnixUser
from redbox.jobs.errors import NotAcceptable
from redbox.jobs.record.marks import Marks
from redbox.jobs.settings import JobsSettings
from redbox.jobs.submit.submit_request import (
    MOST_WORDS_BYTES,
    PutRequest,
    appends,
    default_directory,
    directory_of,
    job_name,
    put_request,
    refuse_endless_directives,
    shape_of,
)
from redbox_api.models import JobRequest
from redbox_shared import sbatch_options

KEY = JobKey(Owner("prod", "physics", "default"), "0aa61111-2222")
ALICE = UnixUser("alice", 2001)
CALLER = Caller("alice", KEY.owner, frozenset({Role.SUBMIT}), ALICE)
TEMPLATE = "{home}/redbox/{namespace}/{name}"


@pytest.mark.parametrize(
    ("name", "folder"),
    [("fit", "fit"), ("fit %j", "fit _j"), ("a\\b", "a_b"), ("{home}", "_home}"), ("..", "..")],
)
def test_a_jobs_name_is_one_folder_and_no_pattern_of_slurms(name: str, folder: str) -> None:
    request = JobRequest(batch="#!/bin/sh\n", name=name)
    made = default_directory(TEMPLATE, KEY, request)
    assert made.startswith(f"{{home}}/redbox/physics/{folder}-")
    assert "%" not in made


DEFAULT = default_directory(TEMPLATE, KEY, JobRequest(batch="#!/bin/sh\n"))


@pytest.mark.parametrize(
    ("lines", "folder"),
    [
        ("", DEFAULT),
        ("#SBATCH -D /scratch/run", "/scratch/run"),
        (
            "#SBATCH -N 2 --chdir=/scratch/one\n  # indented\n#SBATCH --chdir '/scratch/two b'",
            "/scratch/two b",
        ),
        ("#SBATCH -D .", DEFAULT),
        ("#SBATCH -D out/a", f"{DEFAULT}/out/a"),
        ("#SBATCH --chdir", DEFAULT),
        ("#SBATCH -D '/a\x07b'", DEFAULT),
        ("true\n#SBATCH -D /scratch/run", DEFAULT),
        ("#SBATCH hetjob\n#SBATCH -D /scratch/run", DEFAULT),
    ],
)
def test_a_script_names_its_folder_as_for_sbatch_and_the_field_wins(lines: str, folder: str) -> None:
    script = f"#!/bin/sh\n{lines}\necho\n"
    assert directory_of(TEMPLATE, KEY, JobRequest(batch=script)) == folder
    named = JobRequest(batch=script, working_directory="/home/alice/run")
    assert directory_of(TEMPLATE, KEY, named) == "/home/alice/run"


@pytest.mark.parametrize(
    ("lines", "options", "said"),
    [
        ("", [], None),
        ("#SBATCH --open-mode=append", [], True),
        ("#SBATCH --ntasks=1 --open-mode append", [], True),
        ("#SBATCH --open-mode='truncate'", [], False),
        ("#SBATCH --open=a\n#SBATCH --open-mode=t", [], False),
        ("#SBATCH --open-mode=truncate", ["--nice", "--open-mode=append"], True),
        ("#SBATCH --time=1 # --open-mode=append", [], None),
        ("# --open-mode=append", [], None),
        ("sleep 1\n#SBATCH --open-mode=append", [], None),
    ],
)
def test_a_job_says_whether_its_runs_append_to_one_file(
    lines: str,
    options: list[str],
    said: bool | None,  # noqa: FBT001 (what a job says, or nothing)
) -> None:
    assert appends(JobRequest(batch=f"#!/bin/sh\n{lines}\necho\n", options=options)) is said


@pytest.mark.parametrize(
    "script",
    [
        "#SBATCH " + "--op" * 20_000,
        "#SBATCH -" + "h" * 80_000,
        "#PBS " + "-o " * 20_000,
        "#SBATCH --time=1\n" * 3_000,
    ],
    ids=["abbreviations", "letters", "PBS", "lines"],
)
def test_a_script_with_endless_options_is_refused_before_they_are_parsed(script: str) -> None:
    """Of the longest script it would keep red-box from all others for hours: time grows with the square."""
    request = JobRequest(batch=f"#!/bin/sh\n{script}\n")
    with pytest.raises(NotAcceptable, match="#SBATCH lines have"):
        put_request(CALLER, ALICE, KEY, request, marks=Marks(b"secret", "hpc1"), settings=JobsSettings())


@pytest.mark.parametrize("line", ["", "#", " \t"])
def test_of_a_script_of_endless_lines_only_the_first_are_read(line: str) -> None:
    """3.9 million of them kept red-box from all others for 5 s."""
    request = JobRequest(batch="#!/bin/sh\n" + f"{line}\n" * 2_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(NotAcceptable, match="more than 256 KiB come before its first command"):
            refuse_endless_directives(request)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("word", ["x", "\x01", "ä", "\U0001f600"])
@pytest.mark.parametrize("field", ["arguments", "options"])
def test_more_words_than_the_agents_header_holds_are_refused(field: str, word: str) -> None:
    """Each submit failed, and was tried again without end."""
    prefix = "--constraint=" if field == "options" else ""
    most = [prefix + word * 1000] * (MOST_WORDS_BYTES // len((prefix + word * 1000).encode()))
    put_of(JobRequest(batch="#!/bin/sh\n", **{field: most}))
    assert len(json.dumps(most)) < MAX_HEADER - 50_000
    with pytest.raises(NotAcceptable, match=f"^{field}: more than 32 KiB in all, "):
        put_of(JobRequest(batch="#!/bin/sh\n", **{field: [*most, prefix + word * 1000]}))
    with pytest.raises(NotAcceptable, match="more than 32 KiB in all, "):
        put_of(JobRequest(batch="#!/bin/sh\n", output="/" * 4000, **{field: most}))


def put_of(request: JobRequest) -> PutRequest:
    return put_request(CALLER, ALICE, KEY, request, marks=Marks(b"secret", "hpc1"), settings=JobsSettings())


def test_the_options_of_a_script_are_split_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A submit looks for several: each look took 60 ms of the event loop for the longest that is allowed."""
    splits = Mock(side_effect=sbatch_options._split)
    monkeypatch.setattr(sbatch_options, "_split", splits)
    request = JobRequest(batch="#!/bin/sh\n" + "#SBATCH -J 'quoted'\n" * 100)
    put_request(CALLER, ALICE, KEY, request, marks=Marks(b"secret", "hpc1"), settings=JobsSettings())
    assert shape_of(request) is JobShape.PLAIN
    assert splits.call_count == 100


def test_a_script_may_have_endless_lines_after_its_first_command() -> None:
    lines = "#\n" * 90_000 + "#SBATCH -J late\ntrue\n" + "\n" * 2_000_000
    request = JobRequest(batch=f"#!/bin/sh\n{lines}")
    refuse_endless_directives(request)
    assert job_name(request) == "late"


def test_a_line_ends_where_it_ends_for_sbatch() -> None:
    assert job_name(JobRequest(batch="#!/bin/sh\n# \x0c#SBATCH -J other\n")) == "redbox"


@pytest.mark.parametrize("options", ["--op" * 4_000, "-" + "h" * 16_000, "--open" * 2_500])
def test_options_as_long_as_they_may_be_are_parsed(options: str) -> None:
    request = JobRequest(
        batch=f"#!/bin/sh\n#SBATCH {options}\n#SBATCH --open-mode=append\n" + "x\n" * 1_000_000
    )
    put = put_request(CALLER, ALICE, KEY, request, marks=Marks(b"secret", "hpc1"), settings=JobsSettings())
    assert appends(put.submission.request)
