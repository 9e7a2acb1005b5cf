"""What resourced keeps of a claim that waits for a volume."""

from __future__ import annotations

import pickle

from redbox_resourced.volumes.claims import read_claim
from redbox_resourced.volumes.names import SELECTED_NODE
from tests.resourced.volumes.factories import claim

MANY = 20_000


def test_what_is_kept_of_a_claim_is_bounded_however_much_its_author_wrote() -> None:
    selector = {"matchLabels": {f"l{number}": "x" for number in range(MANY)}}
    kept = read_claim(claim(selector=selector, accessModes=["ReadWriteMany"] * MANY))
    assert kept is not None
    assert len(pickle.dumps(kept)) < 2_000
    assert (kept.has_selector, kept.access_modes) == (True, ("ReadWriteMany",))


def test_a_claim_with_names_that_nothing_has_is_left_alone() -> None:
    given = claim()
    given["metadata"]["annotations"][SELECTED_NODE] = "n" * MANY
    assert read_claim(given) is None
