"""A bed beside the usual one, for options that no other test should meet: a Slurm alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from redbox_bed import lifecycle
from redbox_bed.bed import Bed
from redbox_bed.core.places import Places
from redbox_bed.core.plan import Options, Source, make_plan
from redbox_bed.core.progress import Progress
from tests.e2e.harness.slurm_release import chosen

PORTS_ABOVE = 1
"""tests/run leaves a few ports between the beds of its workers; a worker has one such bed at a time."""


def port_offset() -> int:
    return int(os.environ.get("BED_PORT_OFFSET", "0")) + PORTS_ABOVE


@contextmanager
def bed_beside(name: str, options: Options) -> Iterator[Bed]:
    """The same addresses as those of the usual bed, but in namespaces of its own."""
    usual = Places.of()
    places = replace(usual, state=usual.state / name)
    chosen_options = replace(
        options, release=chosen(), fast=True, kube=Source.NONE, port_offset=port_offset()
    )
    made = Bed(make_plan(chosen_options), places)
    try:
        lifecycle.up(made, Progress.silent())
        yield made
    finally:
        lifecycle.down(places, Progress.silent())
