"""What is rare and takes long: `make nightly` runs it, and more of what `make test` has in a short form.

`@pytest.mark.nightly` is for a whole test, `@pytest.mark.nightly(delivery="Virtual")` for those of its runs
whose parameter has that value.
"""

from __future__ import annotations

import os

import pytest

NIGHTLY = os.environ.get("TEST_NIGHTLY") == "1"


def is_nightly(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    parameters = callspec.params if callspec else {}
    return any(
        all(parameters.get(name) == value for name, value in marker.kwargs.items())
        for marker in item.iter_markers("nightly")
    )


def size(variable: str, usual: float, nightly: float) -> float:
    """How much of something a test does; the environment's variable goes before both."""
    return float(os.environ.get(variable) or (nightly if NIGHTLY else usual))


def count(variable: str, usual: int, nightly: int) -> int:
    return int(size(variable, usual, nightly))
