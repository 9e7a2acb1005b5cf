"""A compute node with a runtime that writes down how it was called."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from redbox.slurm.submit.container_script import ContainerPaths

RUNTIME = f"""#!{sys.executable}
import fcntl, json, os, sys, time
calls = os.environ["CALLS"]
names = ("APPTAINER_DOCKER_USERNAME", "APPTAINER_DOCKER_PASSWORD", "SINGULARITY_DOCKER_PASSWORD")
seen = {{"argv": sys.argv[1:], "credentials": {{name: os.environ.get(name) for name in names}}}}
with open(calls, "a") as file:
    file.write(json.dumps(seen) + "\\n")
if sys.argv[1:3] == ["pull", "--help"]:
    print("  -U, --allow-unsigned   do not require a signed container")
elif sys.argv[2:3] == ["pull"]:
    if os.environ.get("PULL_FAILS"):
        sys.exit(13)
    open(sys.argv[-2], "w").write(sys.argv[-1])
    with open(calls + ".index", "w") as index:
        fcntl.flock(index, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails beside another pull
        time.sleep(float(os.environ.get("PULL_HANGS", 0.05)))
sys.exit(int(os.environ.get("EXIT", 0)))
"""
SRUN = f"""#!{sys.executable}
import os, sys
with open(os.environ["CALLS"], "a") as file:
    file.write('{{"srun": ' + __import__("json").dumps(sys.argv[1:3]) + "}}\\n")
words = [word for word in sys.argv[1:] if not word.startswith("--") or "srun" in word]
first = next(i for i, word in enumerate(sys.argv) if i and not word.startswith("--"))
os.execvp(sys.argv[first], sys.argv[first:])
"""


@dataclass(frozen=True)
class Node:
    """A compute node: a PATH with the runtime, and what was called on it."""

    folder: Path

    def run(self, script: str, **env: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.folder}/bin:/usr/bin:/bin"
        return subprocess.run(
            ["/bin/sh"],
            input=script,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={"PATH": path, "CALLS": str(self.folder / "calls"), **env},
        )

    def calls(self) -> list[dict[str, object]]:
        lines = (self.folder / "calls").read_text().splitlines()
        (self.folder / "calls").unlink()
        return [json.loads(line) for line in lines]

    @property
    def places(self) -> ContainerPaths:
        return ContainerPaths(str(self.folder / "cache dir"))
