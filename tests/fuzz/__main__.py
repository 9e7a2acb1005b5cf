"""Fuzz all targets, or one, in turn for so many seconds: `make fuzz SECONDS=3600 ONLY=kubelet-exec`.

Each failure is shrunk and kept in build/fuzz/NAME; move it to tests/fuzz/corpus/NAME with what fixes it.
"""

from __future__ import annotations

import argparse
import gc
import logging
import random
import sys
import time
import traceback

from tests.fuzz.target import MEMORY_GROWTH, Target, explore, flood, keep_failure, standing
from tests.fuzz.targets.all_targets import TARGETS

TURN_S = 20.0  # of one target
BATCH = 100  # examples of one seed
SEED_STEP = 2**32  # from batch to batch of one turn
FLOOD = 100_000  # frames, once for each target; fewer where a third of its time does not suffice


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("seconds", type=float)
    parser.add_argument("--only", choices=TARGETS, action="append")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    asked = parser.parse_args()
    logging.disable(logging.WARNING)
    until = time.monotonic() + asked.seconds
    flood_s = asked.seconds / len(asked.only or TARGETS) / 3
    chosen = [TARGETS[name] for name in asked.only or TARGETS]
    seed, flooded, failed = asked.seed, set[str](), dict[str, int]()
    print(f"{len(chosen)} targets, {asked.seconds:g} s, --seed {seed}", flush=True)
    while time.monotonic() < until:
        for target in chosen:
            rest_s = until - time.monotonic()
            if rest_s > 0 and not fuzz(target, seed, min(TURN_S, rest_s), flood_s, flooded):
                failed[target.name] = seed
        seed += 1
    for name, failing_seed in failed.items():
        print(f"{name} failed: --only {name} --seed {failing_seed}; build/fuzz/{name} has the least example")
    return 1 if failed else 0


def fuzz(target: Target, seed: int, within_s: float, flood_s: float, flooded: set[str]) -> bool:
    """One turn; the first one of a target ends with a flood."""
    began = time.monotonic()
    try:
        with standing(target) as stage:
            while (left_s := began + within_s - time.monotonic()) > 0:
                explore(stage, BATCH, seed=seed, within_s=left_s)
                seed += SEED_STEP
            examples = stage.count
            if target.name not in flooded:
                flooded.add(target.name)
                grown = flood(stage, FLOOD, within_s=flood_s)
                print(f"{target.name}: memory grew by {grown >> 10} KiB by {stage.sent} frames")
                assert grown < MEMORY_GROWTH, f"memory grew by {grown} bytes"
    except Exception:  # noqa: BLE001 (whatever fails, the others go on)
        traceback.print_exc()
        print(f"{target.name}: FAILED: {keep_failure(target)}", flush=True)
        return False
    finally:
        gc.collect()
    print(f"{target.name}: {examples} examples in {time.monotonic() - began:.0f} s", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main())
