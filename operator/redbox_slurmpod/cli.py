"""The program `redbox-slurmpod`, entry point of the Slurm image: a command for each role and hook."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

_TLS = Path("/etc/redbox/tls")
_KEYS = Path("/etc/slurm")
_SACK_SOCKET = Path("/run/slurm/sack.socket")
_CONTAINER_LOG = Path("/proc/1/fd/2")
_FAILED = 1
_LOGGED_ELSEWHERE = frozenset({"epilog", "poke", "pre-stop"})
"""Kubernetes and Slurm drop what these print."""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    _log_to(_CONTAINER_LOG if arguments.role in _LOGGED_ELSEWHERE else None)
    try:
        return _run(arguments)
    except OSError as error:
        logging.getLogger(__name__).error("%s: %s", arguments.role, error)  # noqa: TRY400 - a sentence
        return _FAILED


def _run(arguments: argparse.Namespace) -> int:
    """Import what the role needs: a hook is a small process."""
    if arguments.hook:
        from redbox_slurmpod.hooks import HOOKS  # noqa: PLC0415

        HOOKS[arguments.role]()
        return 0
    from redbox_slurmpod.daemons import ROLES  # noqa: PLC0415

    return ROLES[arguments.role](arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="redbox-slurmpod", description="Runs one role of a hosted Slurm cluster."
    )
    roles = parser.add_subparsers(dest="role", required=True)

    def role(name: str, text: str, *, hook: bool = False) -> argparse.ArgumentParser:
        added = roles.add_parser(name, help=text, description=text)
        added.set_defaults(hook=hook)
        return added

    ctld = role("slurmctld", "slurmctld under the supervisor, with the status endpoint")
    ctld.add_argument("--status-port", type=int, default=0, help="of the status endpoint; none without it")
    _add_tls(ctld)
    slurmd = role("slurmd", "slurmd of a dynamic node under the supervisor")
    slurmdbd = role("slurmdbd", "slurmdbd with private copies of its files")
    sackd = role("sackd", "sackd of a login pod under the supervisor")
    for each in (ctld, slurmd, sackd, slurmdbd):
        each.add_argument("options", nargs="*", help="of the daemon, after --")

    role("login", "sshd of a login pod")
    munged = role("munged", "munged of a worker, with a private copy of the site's key")
    munged.add_argument("--socket", type=Path, required=True)
    sack = role("sack", "the authentication socket of a login pod")
    sack.add_argument("--cluster", required=True, help="ClusterName of slurm.conf")
    sack.add_argument("--keys", type=Path, default=_KEYS, help="folder of slurm.jwks or slurm.key")
    sack.add_argument("--socket", type=Path, default=_SACK_SOCKET)

    front = role("front", "TLS before slurmrestd's Unix socket")
    front.add_argument("--port", type=int, required=True)
    front.add_argument("--address", default="0.0.0.0", help="to listen on; :: for IPv6 too")  # noqa: S104
    front.add_argument("--target", type=Path, required=True, help="slurmrestd's socket")
    front.add_argument(
        "--ask-clients", action="store_true", help="refuse clients without a certificate of ca.crt"
    )
    front.add_argument("--connections", type=int, default=128)
    front.add_argument("--connections-per-address", type=int, default=32)
    _add_tls(front)

    makes_homes = role("homes", "a folder for each user who has none")
    makes_homes.add_argument("--digest", required=True, help="of the users whose homes are to be made")
    role("trial", "one slurmctld and one slurmd that run a new configuration, and the result")
    role("pre-stop", "preStop hook of a slurmd pod", hook=True)
    role("epilog", "Epilog of slurmd: what a job left on its worker goes", hook=True)
    role("instance-id", "write the pod's uid into its node's record", hook=True)
    role("poke", "ResumeProgram and SuspendProgram of slurmctld", hook=True)
    return parser


def _add_tls(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tls", type=Path, default=_TLS, help="folder with tls.crt, tls.key and ca.crt")
    parser.add_argument("--client", default="", help="the only name in a client certificate that is accepted")


def _log_to(file: Path | None) -> None:
    """stderr, or the container's log where it may be written."""
    stream = sys.stderr
    if file is not None:
        with contextlib.suppress(OSError):
            stream = file.open("a")
    logging.basicConfig(stream=stream, level=logging.INFO, format="redbox-slurmpod: %(message)s")
