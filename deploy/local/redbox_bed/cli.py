# ruff: noqa: FBT002, PLR0917 (typer makes options of a function's parameters)
"""The commands of `deploy/local/bed`: words in, sentences and exit codes out. The work is lifecycle.py's."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Sequence
from enum import StrEnum
from ipaddress import IPv4Address
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

from redbox_bed import lifecycle, slow_home, status
from redbox_bed.bed import Bed, saved_options
from redbox_bed.core.errors import BedError, NotPossibleError
from redbox_bed.core.places import Places
from redbox_bed.core.plan import Release, Source, choose_options, make_plan
from redbox_bed.core.progress import Progress
from redbox_bed.delivery import deliver, leave_existing
from redbox_bed.preflight import check_root
from redbox_bed.prepare import hosted, walkthrough

LOG_LINES = "200"
app = typer.Typer(
    name="bed",
    help="A real Slurm beside a real Kubernetes on this machine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


class Output(StrEnum):
    """How to print what was found."""

    TABLE = "table"
    JSON = "json"


class Switch(StrEnum):
    """Power."""

    ON = "on"
    OFF = "off"


class Link(StrEnum):
    """A cable."""

    UP = "up"
    DOWN = "down"


@app.command()
def up(
    slurm: Annotated[
        str | None, typer.Option(metavar="|".join(Release), help="Slurm's release (default 24.11).")
    ] = None,
    no_accounting: Annotated[bool, typer.Option("--no-accounting", help="No slurmdbd.")] = False,
    slow_home: Annotated[bool, typer.Option("--slow-home", help="/home as late as NFS or Lustre.")] = False,
    hpc2: Annotated[bool, typer.Option("--hpc2", help="A second Slurm cluster.")] = False,
    no_kube: Annotated[bool, typer.Option("--no-kube", help="No Kubernetes.")] = False,
    fast: Annotated[
        bool, typer.Option("--fast", help="Jobs start in 1 s, not in Slurm's usual 3 s.")
    ] = False,
    mutating_policies: Annotated[
        bool, typer.Option("--mutating-policies", help="The API server has MutatingAdmissionPolicies.")
    ] = False,
) -> None:
    """Bring the bed up, or repair it."""
    flags = {"accounting": not no_accounting, "slow_home": slow_home, "hpc2": hpc2, "fast": fast}
    flags["mutating_policies"] = mutating_policies
    asked: dict[str, object] = {
        name: value for name, value in flags.items() if value is (name != "accounting")
    }
    asked |= asked_by_environment() | ({"kube": Source.NONE} if no_kube else {})
    if slurm is not None:
        asked["release"] = Release.read(slurm)
    check_root(os.geteuid())
    places = Places.of()
    progress = _interruptible(Progress(), "`up` goes on from here, `down` removes what there is")
    bed = Bed(make_plan(choose_options(saved_options(places), asked)), places)
    lifecycle.up(bed, progress)
    progress("the bed is up")


@app.command()
def redbox(
    unless_current: Annotated[
        bool, typer.Option("--unless-current", help="Leave it alone if it is this very checkout's.")
    ] = False,
) -> None:
    """Install red-box on login and the operator in Kubernetes, as their administrators would."""
    check_root(os.geteuid())
    progress = _interruptible(Progress(), "`redbox` starts again")
    deliver(Bed.open(), progress, unless_current=unless_current)


@app.command(name="walkthrough")
def prepare_walkthrough() -> None:
    """Give the bed what docs/users needs: sessions, claims, images, kubectl slurm."""
    check_root(os.geteuid())
    progress = _interruptible(Progress(), "`walkthrough` goes on from here")
    walkthrough.prepare(Bed.open(), progress)


@app.command(name="hosted")
def prepare_hosted() -> None:
    """Give the bed what deploy/chart-slurm needs: images, the cluster's DNS, volumes."""
    check_root(os.geteuid())
    progress = _interruptible(Progress(), "`hosted` goes on from here")
    hosted.prepare(Bed.open(), progress)


@app.command()
def down() -> None:
    """Take the bed down and leave nothing behind (but the cache)."""
    check_root(os.geteuid())
    progress = _interruptible(Progress(), "`down` goes on from here")
    leave_existing(Places.of(), progress)
    lifecycle.down(Places.of(), progress)


@app.command(name="status")
def show_status(output: Annotated[Output, typer.Option(help="table or json")] = Output.TABLE) -> None:
    """Say what of the bed runs; exit code 0 if all of it does."""
    bed_status = status.inspect(Bed.open())
    if output is Output.JSON:
        print(json.dumps(bed_status.as_json(), indent=1))
    else:
        console = Console(highlight=False)
        console.print(status.table(bed_status))
        for note in (*bed_status.faults, *bed_status.notes):
            console.print(note)
    raise typer.Exit(0 if bed_status.well else 1)


@app.command(name="exec", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
def execute(
    words: Annotated[list[str], typer.Argument(metavar="HOST [--user USER] [--] COMMAND...")],
) -> None:
    """Run a command on a host, as root or as another user."""
    host, user, command = parse_exec(words)
    env = {"TERM": os.environ.get("TERM", "dumb")}
    argv = Bed.open().host(host).command(command, user, env)
    os.execvp(argv[0], argv)  # noqa: S606 (becomes the command, so that its signals and exit code are its own)


def parse_exec(words: Sequence[str]) -> tuple[str, str, list[str]]:
    """Host, user and command; the user stands before or after the host, all else is the command's."""
    host, user, rest = "", "root", list(words)
    while rest:
        word = rest.pop(0)
        if word in {"-u", "--user"} and rest:
            user = rest.pop(0)
        elif word.startswith("--user="):
            user = word.removeprefix("--user=")
        elif not host:
            host = word
        else:
            command = rest if word == "--" else [word, *rest]
            if command:
                return host, user, command
    raise NotPossibleError("exec needs a host and a command, as in `exec login --user alice -- sinfo`")


@app.command()
def logs(
    part: Annotated[str, typer.Argument(help="A daemon (slurmctld), or one of a host (n1/slurmd).")],
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it grows.")] = False,
) -> None:
    """Show the end of a daemon's log."""
    files = find_logs(Bed.open().places, part)
    os.execvp("tail", ["tail", "-n", LOG_LINES, *(["-F"] if follow else []), "--", *map(str, files)])  # noqa: S606


def find_logs(places: Places, part: str) -> list[Path]:
    """The logs of a daemon on all hosts that have it, or on the one that is named."""
    host, _, daemon = part.rpartition("/")
    files = sorted(places.state.glob(f"hosts/{host or '*'}/own/var/log/bed/{daemon}.log"))
    if not files:
        parts = sorted({file.stem for file in places.state.glob("hosts/*/own/var/log/bed/*.log")})
        raise NotPossibleError(f"there is no log of {part!r}; there are logs of: {', '.join(parts)}")
    return files


@app.command()
def power(host: str, switch: Switch) -> None:
    """Cut a host's power, or give it back."""
    bed = Bed.open()
    progress = Progress()
    with lifecycle.locked(bed.places, progress):
        if switch is Switch.OFF:
            bed.host(host).power_off()
        else:
            lifecycle.start_host(bed, bed.host(host), progress)


@app.command()
def link(host: str, state: Link) -> None:
    """Unplug a host's cable, or plug it in."""
    Bed.open().host(host).link(up=state is Link.UP)


@app.command(name="slow-home")
def command_slow_home(
    command: Annotated[list[str], typer.Argument(help="hang, resume, status, … (see deploy/local/slowfs)")],
    host: Annotated[list[str] | None, typer.Option(help="Only there (default: every Slurm host).")] = None,
) -> None:
    """Tell the slow /home what to do."""
    bed = Bed.open()
    names = host or [spec.name for spec in bed.plan.hosts if bed.plan.has_slow_home(spec)]
    if not names:
        raise NotPossibleError("this bed's /home is not slow; make a bed with `up --slow-home`")
    for name in names:
        print(f"{name}: {slow_home.command(bed, bed.host(name), *command)}")


def asked_by_environment() -> dict[str, object]:
    """Options that BED_SLURM, BED_RELEASE, BED_KUBE, BED_PORT_OFFSET and BED_ADDRESS stand for."""
    asked: dict[str, object] = {}
    for name, variable in (("slurm", "BED_SLURM"), ("kube", "BED_KUBE")):
        value = os.environ.get(variable)
        if value:
            if value not in set(Source):
                raise NotPossibleError(f"{variable}={value} is not known: use {', '.join(Source)}")
            asked[name] = Source(value)
    release = os.environ.get("BED_RELEASE")
    if release:
        asked["release"] = Release.read(release)
    offset = os.environ.get("BED_PORT_OFFSET")
    if offset:
        if not offset.isdecimal() or int(offset) > _LARGEST_OFFSET:
            raise NotPossibleError(f"BED_PORT_OFFSET={offset} is not a number from 0 to {_LARGEST_OFFSET}")
        asked["port_offset"] = int(offset)
    address = os.environ.get("BED_ADDRESS")
    if address:
        try:
            asked["address"] = str(IPv4Address(address))
        except ValueError as error:
            raise NotPossibleError(f"BED_ADDRESS={address} is not an IPv4 address of this machine") from error
    return asked


def _interruptible(progress: Progress, then: str) -> Progress:
    """End at once on Ctrl-C: every step can be interrupted, and threads do not receive an exception."""

    def leave(number: int, _: FrameType | None) -> None:
        progress.stop()
        print(f"\nbed: interrupted; {then}", file=sys.stderr, flush=True)
        os._exit(128 + number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)
    return progress


_LARGEST_OFFSET = 40000


def main(run: Callable[[], object] = app) -> None:
    """Print the sentence of a failure that has one, without a traceback."""
    try:
        run()
    except BedError as error:
        log = f" (log: {error.log})" if error.log else ""
        print(f"bed: {error}{log}", file=sys.stderr)
        sys.exit(1)
