"""A minute of fuzzing: fixed examples of each target, its corpus, and a flood after which no memory is gone.

`make fuzz SECONDS=N` goes on for hours, with other examples each time.
"""

from __future__ import annotations

import pytest

from tests.fuzz.target import MEMORY_GROWTH, Target, explore, flood, kept_example, standing
from tests.fuzz.targets.all_targets import TARGETS

LONGEST_S = 2.0  # of a target's examples, where the machine is slow
FLOOD_S = 0.5
FLOOD = 1000  # frames; 100,000 in `make fuzz`


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
def test_a_hostile_peer_gets_the_protocols_error_and_leaves_nothing_behind(target: Target) -> None:
    with standing(target) as stage:
        for path in target.corpus:
            stage.play(kept_example(path))
        explore(stage, target.in_ci, within_s=LONGEST_S)
        assert flood(stage, FLOOD, within_s=FLOOD_S) < MEMORY_GROWTH
