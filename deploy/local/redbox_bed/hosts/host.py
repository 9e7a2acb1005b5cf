"""One host: boot and power-cut it, run commands and daemons in it, read and write its files, pull its cable.

A host is a PID 1 in namespaces of its own; killing it makes the kernel end all the rest. What a host is made
of is the plan's, how it comes to be is boot.sh's and init.sh's; its daemons are for others.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess, Popen
from typing import Any

from redbox_bed.core.errors import CommandError, DaemonError, HostError
from redbox_bed.core.places import Places
from redbox_bed.core.plan import Plan, Role
from redbox_bed.core.processes import Process, boot_offset, children, inner_pid
from redbox_bed.hosts import network
from redbox_bed.hosts.cgroups import Cgroups
from redbox_bed.hosts.overlay_keeper import Keeper
from redbox_bed.hosts.roots import root_path

HERE = Path(__file__).resolve().parent

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LOGS = "/var/log/bed"
CACHE = "/opt/bed/cache"
"""Where hosts that need programs from the bed's cache see it, read-only."""
BACKING = "/srv/home"
"""Where the real /home is when a slow one stands before it."""

_BOOT_SECONDS = 120
_START_SECONDS = 120
_KILL_SECONDS = 60  # slurmctld saves its state first, which takes long on a busy machine

_AS_ROOT = 'cd; unset OLDPWD; exec "$@"'
_AS_USER = (
    'exec setpriv --reuid="$0" --regid="$(id -g "$0")" --init-groups --reset-env -- '
    """/bin/sh -c 'cd 2>/dev/null || cd /; unset OLDPWD; exec "$@"' sh "$@\""""
)
# It records itself before it becomes the daemon, unless another one is on record: an interrupted `up` leaves
# starts behind, which go on beside those of the next one. The lock is not kept: its children would have it.
_DAEMON = r"""
name=$1; shift
life() { sed -n 's/.*) \([^ZX]\)/\1/p' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }
mkdir -p /run/bed
exec 8>/run/bed/$name.lock
flock 8
read -r pid start 2>/dev/null </run/bed/$name.pid
if [ -n "$start" ] && [ "$(life "$pid")" = "$start" ]; then exit; fi
echo "$$ $(life $$)" >/run/bed/$name.pid
exec 8>&- >>/var/log/bed/$name.log 2>&1 </dev/null
exec "$@"
"""

_DEVICES = (
    "null:1:3:666", "zero:1:5:666", "full:1:7:666", "random:1:8:666", "urandom:1:9:666", "tty:5:0:666",
    "fuse:10:229:666",
)  # fmt: skip
# NVIDIA's own number with no driver behind it: stat works, which is all that slurmd wants; open fails.
_GPU_DEVICES = ("nvidia0:195:0:666", "nvidia1:195:1:666")
_NODE_DEVICES = ("kmsg:1:11:600",)

_OWN_FOLDERS = ("tmp", "var/tmp", "var/log")
_OWN_FOLDERS_OF_ROLE = {
    Role.SWITCH: (),
    Role.LOGIN: ("var/lib/munge", "var/lib/redbox"),
    Role.CONTROLLER: ("var/lib/munge", "var/lib/slurm", "var/spool/slurmctld", "var/lib/mysql"),
    Role.COMPUTE: ("var/lib/munge", "var/lib/slurm", "var/spool/slurmd"),
    Role.CONTROL_PLANE: ("var/lib/etcd", "etc/kubernetes"),
    Role.NODE: ("var/lib/kubelet", "var/lib/containerd", "var/lib/cni", "etc/cni", "etc/kubernetes"),
}


@dataclass(frozen=True)
class Daemon:
    """A program that stays in the foreground; its log is in LOGS, its pid in /run/bed/<name>.pid."""

    name: str
    argv: tuple[str, ...]
    user: str = "root"
    env: Mapping[str, str] = field(default_factory=dict)


class Host:
    """A handle: cheap to create, and valid across reboots of the host."""

    def __init__(self, plan: Plan, places: Places, name: str, cgroups: Cgroups | None = None) -> None:
        self.spec = plan.host(name)
        self._plan = plan
        self._places = places
        self._cgroups = cgroups or Cgroups.of_machine(places.name)
        self._folder = places.host(name)

    def __repr__(self) -> str:
        return f"<Host {self.spec.name}>"

    @property
    def name(self) -> str:
        return self.spec.name

    # ------------------------------------------------------------------------- power and cable
    def process(self) -> Process | None:
        """The host's PID 1 as a process of the machine."""
        return Process.load(self._folder / "pid")

    def pid(self) -> int | None:
        process = self.process()
        return process.pid if process else None

    def boot(self) -> bool:
        """Boot and plug it in unless it runs. True if it was booted."""
        if self.process():
            return False
        self._cgroups.kill(self.name)
        # Groups of containers that the power cut left empty: the kubelet would try each of them for 3 s.
        self._cgroups.remove(self.name)
        self._cgroups.create(self.name)
        self._make_own_folders()
        self._start().save(self._folder / "pid")
        self._cgroups.settle(self.name)
        return True

    def plug_in(self) -> None:
        """Connect it to the switch, unless it is; the switch gets its bridge and routes."""
        if self.spec.role is Role.SWITCH:
            network.ensure_switch(self._plan, self.need_pid())
        else:
            network.ensure_cable(self._plan, self.spec, self._switch(), self.need_pid())

    def delegate_group(self, path: str) -> None:
        """Make a control group for a daemon of the host that manages groups itself."""
        self._cgroups.delegate(self.name, path)

    def power_off(self) -> None:
        """Cut its power: everything in it dies at once; folders that are its own stay."""
        self._cgroups.kill(self.name)
        (self._folder / "pid").unlink(missing_ok=True)

    def link(self, *, up: bool) -> None:
        """Plug or unplug its cable; its own interface stays up, as when a switch's port goes dark."""
        network.set_link(self.spec, self._switch(), up=up)

    def linked(self) -> bool:
        return network.link_is_up(self.spec, self._switch())

    def _switch(self) -> int:
        return Host(self._plan, self._places, self._plan.switch.name, self._cgroups).need_pid()

    def need_pid(self) -> int:
        pid = self.pid()
        if pid is None:
            raise HostError(
                f"the host {self.name} is not running; `up` boots it", log=self._folder / "boot.log"
            )
        return pid

    def _own_paths(self) -> tuple[str, ...]:
        return _OWN_FOLDERS + _OWN_FOLDERS_OF_ROLE[self.spec.role]

    def _make_own_folders(self) -> None:
        """Each begins as the root has it: the owners, and MariaDB's first tables."""
        root = root_path(self._places, self.spec.root)
        for path in self._own_paths():
            own = self._folder / "own" / path
            if not own.exists():
                own.parent.mkdir(parents=True, exist_ok=True)
                unfinished = own.with_name(own.name + ".unfinished")
                shutil.rmtree(unfinished, ignore_errors=True)
                subprocess.run(
                    ["cp", "-a", "--sparse=always", str(root / path), str(unfinished)],
                    check=True,
                    timeout=_START_SECONDS,
                )
                unfinished.rename(own)
        self._places.home(self.spec.cluster).mkdir(parents=True, exist_ok=True)

    def _init_environment(self) -> dict[str, str]:
        gpus = any(
            node.name == self.name and node.gpus for cluster in self._plan.clusters for node in cluster.nodes
        )
        kube = self.spec in self._plan.kube_hosts
        slow = self._plan.has_slow_home(self.spec)
        return {
            "PATH": PATH,
            "PYTHON": sys.executable,
            "NAME": self.name,
            "TREE": str(self._places.tree(self.spec.cluster) / "merged"),
            "OWN": str(self._folder / "own"),
            "OWN_PATHS": " ".join(self._own_paths()),
            "HOMES": str(self._places.home(self.spec.cluster)),
            "HOMES_AT": BACKING if slow else "/home",
            "CGROUPS": self._cgroups.description,
            "DEVICES": " ".join(_DEVICES + _GPU_DEVICES * gpus + _NODE_DEVICES * kube),
            "BINDS": f"{self._places.cache}:{CACHE}" if kube or slow else "",
        }

    def _start(self) -> Process:
        keeper = Keeper(self._places, self._cgroups).process()
        if keeper is None:
            raise HostError(
                f"{self.name} cannot boot: the process that holds the bed's mounts is not running; run `up`"
            )
        log = self._folder / "boot.log"
        read_end, write_end = os.pipe()
        command = [
            "sh",
            str(HERE / "boot.sh"),
            str(keeper.pid),
            *self._cgroups.birth_files(self.name),
        ]
        command += ["--", "sh", str(HERE / "init.sh")]
        with os.fdopen(read_end) as answer:
            with log.open("wb") as errors, os.fdopen(write_end, "w") as pid_pipe:
                subprocess.run(
                    command,
                    env=self._init_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=pid_pipe,
                    stderr=errors,
                    check=True,
                    timeout=_BOOT_SECONDS,
                    cwd="/",
                )
            line = (
                answer.readline()
            )  # not all of it: what is left in the machine's pid namespace keeps the pipe open
        process = Process.of(int(line)) if line.strip() else None
        if process is None:
            raise HostError(f"the host {self.name} did not boot: {log.read_text().strip()[-500:]}", log=log)
        return process

    # ------------------------------------------------------------------------- commands
    def command(
        self, argv: Sequence[str], user: str = "root", env: Mapping[str, str] | None = None
    ) -> list[str]:
        """What runs `argv` in the host, from the machine: clean environment, the user's groups and home."""
        variables = [f"{name}={value}" for name, value in {"LANG": "C.UTF-8", **(env or {})}.items()]
        enter = [
            "sh",
            str(HERE / "enter.sh"),
            str(self.need_pid()),
            "inside" if self._cgroups.entered_inside else "outside",
            *self._cgroups.entry_files(self.name),
            "--",
        ]
        root_home = [
            "/usr/bin/env",
            "-i",
            f"PATH={PATH}",
            "HOME=/root",
            "USER=root",
            "LOGNAME=root",
            "SHELL=/bin/bash",
        ]
        program = ["/usr/bin/env", f"PATH={PATH}", *variables, *argv]
        if user == "root":
            return [*enter, *root_home, "/bin/sh", "-c", _AS_ROOT, "sh", *program]
        return [*enter, *root_home, "/bin/sh", "-c", _AS_USER, user, *program]

    def popen(
        self,
        *argv: str,
        user: str = "root",
        env: Mapping[str, str] | None = None,
        **popen_kwargs: Any,  # noqa: ANN401 (Popen's own)
    ) -> Popen[bytes]:
        """Start a command in the host, in a process group of its own: `os.killpg` reaches all of it."""
        return Popen(self.command(argv, user, env), **{"start_new_session": True, "cwd": "/", **popen_kwargs})

    def run(
        self,
        *argv: str,
        user: str = "root",
        stdin: str | bytes | None = None,
        check: bool = True,
        timeout: float = 60,
        env: Mapping[str, str] | None = None,
    ) -> CompletedProcess[str]:
        """Run a command in the host to its end; CommandError if it fails (with `check`) or takes too long."""
        done = self._run_bytes(argv, user, stdin.encode() if isinstance(stdin, str) else stdin, timeout, env)
        out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        if check and done.returncode != 0:
            raise CommandError(self.name, argv, done.returncode, out, err)
        return CompletedProcess(argv, done.returncode, out, err)

    def _run_bytes(
        self,
        argv: Sequence[str],
        user: str,
        stdin: bytes | None,
        timeout: float,
        env: Mapping[str, str] | None,
    ) -> CompletedProcess[bytes]:
        pipe = subprocess.PIPE
        with self.popen(*argv, user=user, env=env, stdin=pipe, stdout=pipe, stderr=pipe) as process:
            try:
                out, err = process.communicate(stdin or b"", timeout)
            except subprocess.TimeoutExpired as error:
                os.killpg(process.pid, signal.SIGKILL)
                out, err = process.communicate()
                raise CommandError(
                    self.name, argv, None, out.decode(errors="replace"), err.decode(errors="replace")
                ) from error
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        return CompletedProcess(argv, process.returncode, out, err)

    # ------------------------------------------------------------------------- daemons
    def ensure(self, daemon: Daemon) -> bool:
        """Start it unless it runs; True if it was started. That it is ready is for its owner to see."""
        if self.running(daemon.name):
            return False
        command = self.command(daemon.argv, daemon.user, daemon.env)
        split = command.index("--") + 1
        starter = ["/usr/bin/setsid", "-f", "/bin/sh", "-c", _DAEMON, "sh", daemon.name]
        subprocess.run(
            [*command[:split], *starter, *command[split:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            check=True,
            timeout=_START_SECONDS,
            cwd="/",
        )
        return True

    def daemon_process(self, name: str) -> Process | None:
        pid = self.pid()
        if pid is None:
            return None
        try:
            inner, started = (
                int(word) for word in Path(f"/proc/{pid}/root/run/bed/{name}.pid").read_text().split()
            )
        except (FileNotFoundError, ValueError):
            return None
        started -= boot_offset(pid)
        for child in children(pid):
            process = Process.of(child)
            if process and inner_pid(child) == inner and process.started == started:
                return process
        return None

    def running(self, name: str) -> bool:
        return self.daemon_process(name) is not None

    def daemon_pid(self, name: str) -> int | None:
        process = self.daemon_process(name)
        return process.pid if process else None

    def kill(self, name: str, signal: int = signal.SIGKILL, seconds: float = _KILL_SECONDS) -> None:
        """Signal a daemon and wait until it is gone."""
        process = self.daemon_process(name)
        if process is None:
            raise DaemonError(f"{name} is not running on {self.name}")
        process.kill(signal, seconds)

    # ------------------------------------------------------------------------- files
    def write(self, path: str, content: str | bytes, *, mode: int = 0o644, owner: str = "root:root") -> None:
        """Write a file atomically, with its final mode from the start."""
        script = (
            'umask 077; mkdir -p -m 755 "${1%/*}"; cat >"$1.new"; chown "$2" "$1.new"; chmod "$3" "$1.new"; '
            'mv -f "$1.new" "$1"'
        )
        self.run("sh", "-ec", script, "write", path, owner, f"{mode:o}", stdin=content)

    def read(self, path: str) -> bytes:
        done = self._run_bytes(["cat", "--", path], "root", None, 60, None)
        if done.returncode != 0:
            raise CommandError(
                self.name, ["cat", "--", path], done.returncode, "", done.stderr.decode(errors="replace")
            )
        return done.stdout

    def own_folder(self, path: str) -> Path:
        """Where a folder that only this host has is on the machine, also when the host is off."""
        return self._folder / "own" / path.removeprefix("/")

    def log_path(self, daemon: str) -> Path:
        """Where a daemon's log is on the machine."""
        return self.own_folder(LOGS) / f"{daemon}.log"
