"""A server of docs/users/recipes.md: the commands of its section are typed, and its forward is kept."""

from __future__ import annotations

import re
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.error import HTTPError

from redbox_bed.bed import Bed
from redbox_bed.core.places import CHECKOUT
from tests.e2e.harness.kubectl_slurm import WITHIN_S, Plugin
from tests.ports import free_port

PAGE = (CHECKOUT / "docs/users/recipes.md").read_text()
SECTION = r"^## {}\n(.*?)(?=^## )"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FORWARD = re.compile(r"^kubectl slurm forward (\S+) (\d+)\n", re.MULTILINE)
FIND_COPIES = """\
umask 077; wanted=$(mktemp -p /run); cat >$wanted
find /home/alice /tmp /var/tmp /dev/shm -xdev -mindepth 1 -type d ! -perm /011 -prune -o \
    -type f -perm /044 -exec grep -lsFf $wanted {} +
grep -lsFf $wanted /proc/[0-9]*/cmdline
rm $wanted
"""
"""Where stdin is: in files that others may read, if the home lets them in, and in arguments."""


@dataclass(frozen=True)
class ServedRecipe:
    """One that runs, and the port of this machine that leads to it."""

    bed: Bed
    plugin: Plugin
    name: str
    port: int
    password: str

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def status_of(self, path: str) -> int:
        """The status of an answer without the password; 0 while none comes."""
        try:
            with urllib.request.urlopen(f"http://{self.address}{path}", timeout=WITHIN_S) as answer:
                return int(answer.status)
        except HTTPError as refused:
            return refused.code
        except OSError:
            return 0

    def log(self) -> str:
        return self.plugin.well("logs", self.name)

    def readable_copies(self) -> list[str]:
        """Where other users of the login node or of a node could read the password."""
        hosts = ("login", *(node.name for node in self.bed.plan.clusters[0].nodes))
        return [
            f"{host}:{path}"
            for host in hosts
            for path in self.bed.host(host)
            .run("sh", "-c", FIND_COPIES, stdin=self.password)
            .stdout.splitlines()
        ]


@contextmanager
def served(plugin: Plugin, title: str) -> Iterator[ServedRecipe]:
    """What a section has typed on a user's machine; its first block, for the login node, was done before."""
    found = re.search(SECTION.format(re.escape(title)), PAGE, re.MULTILINE | re.DOTALL)
    assert found
    _, start, show_password = BLOCK.findall(found[1])
    forward = FORWARD.search(start)
    assert forward
    name, remote = forward.groups()
    objects = (f"slurmjob/{name}", f"secret/{name}")
    _type(plugin, f"kubectl delete --ignore-not-found {' '.join(objects)}")  # of a run that failed
    try:
        _type(plugin, start[: forward.start()])
        password, port = _type(plugin, show_password), free_port()
        command = plugin.argv("forward", name, f"{port}:{remote}")
        with subprocess.Popen(command, env=plugin.env, stdout=subprocess.PIPE) as forwarding:
            try:
                assert forwarding.stdout is not None
                assert b"Forwarding from" in forwarding.stdout.readline()
                yield ServedRecipe(plugin.bed, plugin, name, port, password)
            finally:
                forwarding.terminate()
    finally:
        _type(plugin, f"kubectl delete --ignore-not-found {' '.join(objects)}")


def _type(plugin: Plugin, commands: str) -> str:
    """In alice's namespace, in a checkout."""
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        env=plugin.env,
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout
