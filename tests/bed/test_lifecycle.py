"""Parts of the bed that are made side by side."""

from __future__ import annotations

import threading

import pytest

from redbox_bed.core.errors import BedError
from redbox_bed.lifecycle import side_by_side


def test_a_build_that_fails_is_told_while_another_goes_on() -> None:
    told = threading.Event()

    def fails() -> None:
        raise BedError("the root node could not be built")

    def waits_for_the_word() -> None:
        assert told.wait(timeout=60)

    def tell(text: str) -> None:
        assert text.startswith("the root node could not be built; ")
        told.set()

    with pytest.raises(BedError, match="the root node"):
        side_by_side([waits_for_the_word, fails], tell)
