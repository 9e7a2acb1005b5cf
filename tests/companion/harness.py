"""A pod as a companion finds it: its environment, its files, and the termination_message that it leaves."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, "-m", "redbox_companion")


@dataclass
class Pod:
    """The folder and environment that a companion finds in its pod."""

    folder: Path
    environ: dict[str, str]

    def run(self, *arguments: str, timeout: float = 90) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*COMMAND, *arguments], env=self.environ, capture_output=True, timeout=timeout, check=False
        )

    def start(self, **streams: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(COMMAND, env=self.environ, **streams)

    def want_results(self, *patterns: str, when: str = "Always") -> Path:
        """Have it collect results; the folder that they come to is returned."""
        folder = self.folder / "results"
        folder.mkdir(exist_ok=True)
        self.environ["REDBOX_RESULTS_FOLDER"] = str(folder)
        self.environ["REDBOX_RESULTS"] = json.dumps({"from": patterns, "when": when})
        return folder

    @property
    def termination_message(self) -> dict[str, Any]:
        raw = (self.folder / "termination").read_bytes()
        assert len(raw) <= 4096
        termination_message: dict[str, Any] = json.loads(raw)
        return termination_message
