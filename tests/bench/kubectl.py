"""kubectl as a user of the bed has it, and the smallest pod."""

import json
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from redbox_bed.core.places import Places
from redbox_bed.images.node_images import BUSYBOX

ENDS_WITHIN_S = 60


class KubectlError(Exception):
    """A kubectl that failed, with what it said."""


@dataclass(frozen=True)
class Kubectl:
    """The bed's own kubectl, for one namespace."""

    places: Places
    namespace: str

    def command(self, *arguments: str) -> list[str]:
        program = self.places.state / "bin" / "kubectl"
        return [
            str(program),
            f"--kubeconfig={self.places.kubeconfig}",
            f"--namespace={self.namespace}",
            *arguments,
        ]

    def run(self, *arguments: str, stdin: str = "", timeout: float = ENDS_WITHIN_S) -> str:
        ended = subprocess.run(
            self.command(*arguments),
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )
        if ended.returncode:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {ended.stderr.strip()}")
        return ended.stdout

    def apply(self, thing: Mapping[str, Any]) -> None:
        self.run("apply", "-f", "-", stdin=json.dumps(thing))

    def delete_pod(self, name: str) -> None:
        self.run("delete", "pod", name, "--grace-period=0", "--force", "--ignore-not-found", "--wait=true")

    @contextmanager
    def reading(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """Have a kubectl running whose output is read meanwhile."""
        with subprocess.Popen(self.command(*arguments), stdout=subprocess.PIPE) as process:
            try:
                yield process
            finally:
                process.kill()


def pod(name: str, script: str, **spec: Any) -> dict[str, Any]:
    """Make a pod that runs a shell script and is not started again."""
    main = {
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", script],
        "volumeMounts": [
            {"name": volume["name"], "mountPath": "/shared"} for volume in spec.get("volumes", [])
        ],
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 0,
            "containers": [main],
            **spec,
        },
    }
