"""Daemons under the supervisor, ended with their test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.slurmpod.harness import Supervised


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Callable[..., Supervised]]:
    started: list[Supervised] = []

    def start(**options: bool | float) -> Supervised:
        started.append(Supervised(tmp_path, **options))  # type: ignore[arg-type]
        return started[-1]

    yield start
    for each in started:
        each.clean()
