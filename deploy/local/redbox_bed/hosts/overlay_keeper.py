"""The process whose private mount namespace holds the clusters' overlays.

So the machine's own mount table stays as it was, and every mount of the bed ends with the last of its
processes. An overlay has the root of roots.py below and a folder of the state above; all hosts of a cluster
share it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from redbox_bed.core.errors import BedError
from redbox_bed.core.places import Places
from redbox_bed.core.processes import Process
from redbox_bed.hosts.cgroups import MACHINE, Cgroups

_START = """
set -e
for file; do echo $$ >"$file"; done
exec setsid -f unshare --mount --propagation private \\
  sh -c 'echo $$; exec sleep infinity >/dev/null 2>&1 </dev/null'
"""


class Keeper:
    """Started once for each bed; without it no host can boot."""

    def __init__(self, places: Places, cgroups: Cgroups) -> None:
        self._places = places
        self._cgroups = cgroups

    @property
    def _file(self) -> Path:
        return self._places.state / "keeper.pid"

    def process(self) -> Process | None:
        return Process.load(self._file)

    def ensure(self) -> bool:
        """Start it unless it runs. True if it was started: then nothing of before has an overlay any more."""
        if self.process():
            return False
        self._cgroups.kill(MACHINE)  # one that an interrupted `up` began is on no record
        self._cgroups.create(MACHINE)
        self._cgroups.settle(MACHINE)
        answer = self._command(["sh", "-c", _START, "keeper", *self._cgroups.entry_files(MACHINE)])
        process = Process.of(int(answer or 0))
        if process is None:
            raise BedError("the process that holds the bed's mounts ended at once")
        process.save(self._file)
        return True

    def mount(self, tree: str, root: Path) -> None:
        """Mount a cluster's overlay, unless it is mounted."""
        folder = self._places.tree(tree)
        upper, work, merged = folder / "upper", folder / "work", folder / "merged"
        for path in (upper, work, merged):
            path.mkdir(parents=True, exist_ok=True)
        options = f"lowerdir={root},upperdir={upper},workdir={work}"
        self._command(
            self.inside(
                "sh",
                "-c",
                'mountpoint -q "$3" || mount -t overlay "$1" -o "$2" "$3"',
                *("mount", f"bed-{tree}", options, str(merged)),
            )
        )

    def inside(self, *argv: str) -> list[str]:
        """The command line that runs `argv` where the overlays are mounted."""
        process = self.process()
        if process is None:
            raise BedError("the bed is not up: the process that holds its mounts is not running; run `up`")
        return ["nsenter", "--target", str(process.pid), "--mount", "--", *argv]

    def in_tree(self, tree: str, *argv: str, stdin: bytes = b"") -> str:
        """Run a command with a cluster's overlay as its root, before or beside its hosts."""
        return self._command(self.inside("chroot", str(self._places.tree(tree) / "merged"), *argv), stdin)

    def _command(self, argv: list[str], stdin: bytes = b"") -> str:
        done = subprocess.run(argv, input=stdin, capture_output=True, check=False, timeout=60, cwd="/")
        if done.returncode != 0:
            raise BedError(
                f"`{' '.join(argv)[-300:]}` failed: {done.stderr.decode(errors='replace').strip()}"
            )
        return done.stdout.decode().strip()
