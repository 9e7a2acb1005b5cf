"""`kubectl slurm` as a user of the bed types it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redbox_bed.bed import Bed
from tests.e2e.harness.redbox_settings import put_rule_first, settings_changed
from tests.e2e.harness.slurmjobs import SlurmJobs

WITHIN_S = 120
PROGRAMS = Path(sys.executable).parent
ROLES = ["operator", "reader", "requeue"]
NODE_PORT = 18777
SERVES = f"cd $(mktemp -d); echo of $SLURM_JOB_ID >index.html; exec python3 -m http.server {NODE_PORT}"
Ended = subprocess.CompletedProcess[str]


@dataclass(frozen=True)
class Plugin:
    """`kubectl slurm` of a user whose kubeconfig is the bed's, in alice's namespace."""

    bed: Bed
    env: dict[str, str]
    inside: tuple[str, ...] = ()
    """What stands before it where it runs in the bed's network."""

    def __call__(
        self, command: str, *words: str, stdin: str = "", env: dict[str, str] | None = None
    ) -> Ended:
        return subprocess.run(
            [*self.inside, *self.argv(command, *words)],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=WITHIN_S,
            env={**self.env, **(env or {})},
        )

    def argv(self, command: str, *words: str) -> list[str]:
        return ["kubectl", "slurm", command, "--namespace=alice", *words]

    def well(self, command: str, *words: str, stdin: str = "") -> str:
        """Its output; a failure fails the test."""
        ended = self(command, *words, stdin=stdin)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def submitted(self, *words: str, stdin: str = "") -> str:
        """The name of a new SlurmJob that Slurm has."""
        return self.well("submit", "--parsable", *words, stdin=stdin).strip()


@contextmanager
def plugin_on(bed: Bed, home: Path) -> Iterator[Plugin]:
    """Red Box is installed; sessions and requeues are allowed, as the HPC administrator would."""
    SlurmJobs.on(bed)
    path = f"{bed.places.state / 'bin'}:{PROGRAMS}:{os.environ['PATH']}"
    env = {"PATH": path, "HOME": str(home), "KUBECONFIG": str(bed.places.kubeconfig), "LANG": "C.UTF-8"}
    plugin = Plugin(bed, {**env, "TERM": "xterm"})
    with settings_changed(bed.host("login"), allow_sessions_and_requeues):
        yield plugin
        plugin("cancel", "--all", "--wait")
        kubectl = str(bed.places.state / "bin/kubectl")
        words = [kubectl, "delete", "slurmjobs", "--all", "--namespace=alice", "--timeout=60s"]
        subprocess.run(words, check=True, env=plugin.env, capture_output=True)


def allow_sessions_and_requeues(settings: dict[str, Any]) -> None:
    """As the HPC administrator does it."""
    where = {"cluster": "bed", "namespaces": ["redbox-system"], "service_accounts": ["redbox-operator"]}
    put_rule_first(settings, {**where, "roles": ROLES})
    settings["exec"] = {"enabled": True}
