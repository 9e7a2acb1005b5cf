"""Output patterns, as slurmstepd resolved them on 24.11 and 22.05: the files that were really made."""

from __future__ import annotations

import pytest

from redbox.core.domain import UnixUser
from redbox.core.output_patterns import PatternValues, output_glob, resolve_pattern, resolve_unless_array
from redbox.core.workload_manager import JobOutput

JOB = PatternValues("57", "alice", "nm", "/home/alice/pat", first_node="n1")
TASK = PatternValues("58", "alice", "nm", "/home/alice/pat", array_job_id="57", array_task=3, first_node="n1")


@pytest.mark.parametrize(
    ("pattern", "made"),
    [
        ("j=%j", "j=57"),
        ("A=%A", "A=57"),
        ("a=%a", "a=4294967294"),
        ("J=%J", "J=57"),
        ("N=%N", "N=n1"),
        ("n=%n", "n=0"),
        ("s=%s", "s=batch"),
        ("t=%t", "t=0"),
        ("u=%u", "u=alice"),
        ("x=%x", "x=nm"),
        ("W=%W", "W=%W"),
        ("pp=%%j", "pp=%j"),
        ("6j=%6j", "6j=000057"),
        ("12j=%12j", "12j=0000000057"),
        ("15j=%15j", "15j=0000000057"),
        ("0j=%0j", "0j=57"),
        ("4N=%4N", "4N=n1"),
        ("4x=%4x", "4x=nm"),
        ("4s=%4s", "4s=batch"),
        ("4t=%4t", "4t=0000"),
        (r"bs\j=%j", "bsj=%j"),
        (r"bsbs=\\%j", r"bsbs=\%j"),
        ("q=%q", "q=%q"),
        ("end%", "end%"),
        ("%%%j", "%57"),
        ("%5%j", "557"),
        ("sp ace%jü", "sp ace57ü"),
    ],
)
def test_a_jobs_pattern_becomes_the_file_that_slurm_makes(pattern: str, made: str) -> None:
    assert resolve_pattern(pattern, JOB) == f"/home/alice/pat/{made}"


@pytest.mark.parametrize(
    ("pattern", "made"),
    [("%A_%a", "57_3"), ("%j", "58"), ("4a=%4a", "4a=0003"), ("b=%b", "b=3"), ("4A=%4A", "4A=0057")],
)
def test_a_tasks_pattern_becomes_the_file_that_slurm_makes(pattern: str, made: str) -> None:
    assert resolve_pattern(pattern, TASK) == f"/home/alice/pat/{made}"


def test_a_path_that_depends_on_the_node_is_unknown_before_there_is_one() -> None:
    assert resolve_pattern("out.%N", PatternValues("57", "alice", "nm", "/w")) is None
    assert resolve_pattern("out.%j", PatternValues("57", "alice", "nm", "/w")) == "/w/out.57"


def test_an_absolute_pattern_stays_where_it_is() -> None:
    assert resolve_pattern("/scratch/%u/%x.log", JOB) == "/scratch/alice/nm.log"


@pytest.mark.parametrize(
    ("path", "found", "pattern"),
    [
        ("/home/alice/slurm-57.out", "/home/alice", "slurm-57.ou[t]"),
        ("/home/alice/a[1]*.out", "/home/alice", "a[[]1][*].out"),
        ("/home/alice/pat/slurm-%A_%a.out", "/home/alice/pat", "slurm-57_*.out"),
        ("slurm-%A_%4a.out", "/home/alice/pat", "slurm-57_*.out"),
        ("/scratch/%a/out-%j", "/scratch", "*/out-*"),
        ("/scratch/%a/out", "/scratch", "*/ou[t]"),
        ("/home/alice/.slurm-57.out", "/home/alice", ".slurm-57.ou[t]"),
        ("/home/alice/!x", "/home/alice", "![x]"),
    ],
)
def test_the_listing_that_shows_an_output_or_one_of_any_task(path: str, found: str, pattern: str) -> None:
    """With a wildcard in its last part: a name alone is looked up, and may be cached as missing."""
    output = JobOutput(path, "57", "nm", UnixUser("alice", 2001), "/home/alice/pat")
    assert output_glob(output) == (found, pattern)


@pytest.mark.parametrize(
    ("pattern", "path", "of_array"),
    [
        ("slurm-%j.out", "/home/alice/pat/slurm-57.out", "/home/alice/pat/slurm-%j.out"),
        ("slurm-%A_%a.out", "/home/alice/pat/slurm-%A_%a.out", "/home/alice/pat/slurm-%A_%a.out"),
        ("/scratch/out-%N", None, "/scratch/out-%N"),
        ("/dev/null", "/dev/null", "/dev/null"),
    ],
)
def test_the_output_of_a_job_that_no_poll_has_shown(pattern: str, path: str | None, of_array: str) -> None:
    values = PatternValues("57", "alice", "nm", "/home/alice/pat")
    assert resolve_unless_array(pattern, values, is_array=False) == path
    assert resolve_unless_array(pattern, values, is_array=True) == of_array
