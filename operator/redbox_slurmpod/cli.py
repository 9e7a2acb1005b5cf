"""The program `redbox-slurmpod`, entry point of the Slurm image: a command for each role and hook."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from redbox_slurmpod import entry
from redbox_slurmpod.node.instance_id import ensure_instance_id
from redbox_slurmpod.node.pre_stop import PreStop
from redbox_slurmpod.sack.server import SOCKET, Sack, listen_at
from redbox_slurmpod.sack.tokens import KeysUnusable
from redbox_slurmpod.status_endpoint import POKE_SOCKET, StatusEndpoint, poke, receive_pokes
from redbox_slurmpod.supervision.supervisor import SupervisedDaemon, Supervisor
from redbox_slurmpod.tls.certificate import ReloadedCertificate
from redbox_slurmpod.tls.front import TlsFront
from redbox_slurmpod.tls.server import ConnectionLimits, TlsServer, listen

log = logging.getLogger("redbox_slurmpod")
_NOTIFY_SOCKET = Path("/run/redbox/notify.sock")
_TLS = Path("/etc/redbox/tls")
_CONTAINER_LOG = Path("/proc/1/fd/2")
_RETRY_S = 5
_FAILED = 1


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    _log_to(_CONTAINER_LOG if arguments.hook else None)
    try:
        return int(arguments.run(arguments))
    except (OSError, KeysUnusable) as error:
        log.error("%s: %s", arguments.role, error)  # noqa: TRY400 - a sentence for the pod's log
        return _FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="redbox-slurmpod", description="Runs one role of a hosted Slurm cluster."
    )
    roles = parser.add_subparsers(dest="role", required=True)

    def role(name: str, run: object, text: str, *, hook: bool = False) -> argparse.ArgumentParser:
        added = roles.add_parser(name, help=text, description=text)
        added.set_defaults(run=run, hook=hook)
        return added

    ctld = role("slurmctld", _slurmctld, "slurmctld under the supervisor, with the status endpoint")
    ctld.add_argument(
        "--status-port", type=int, default=0, help="of the status endpoint; without it there is none"
    )
    ctld.add_argument("--tls", type=Path, default=_TLS, help="folder with tls.crt, tls.key and ca.crt")
    ctld.add_argument("--client", default="", help="the only name in a client certificate that is accepted")
    for name, run in (("slurmd", _slurmd), ("slurmdbd", _slurmdbd)):
        role(name, run, f"{name} with its files prepared")
    for each in (ctld, roles.choices["slurmd"], roles.choices["slurmdbd"]):
        each.add_argument("options", nargs="*", help="of the daemon, after --")

    sack = role("sack", _sack, "the authentication socket for a login pod")
    sack.add_argument("--cluster", required=True, help="ClusterName of slurm.conf")
    sack.add_argument(
        "--keys", type=Path, default=entry.CONFIGURATION, help="folder of slurm.jwks or slurm.key"
    )
    sack.add_argument("--socket", type=Path, default=SOCKET)

    front = role("front", _front, "TLS before slurmrestd's Unix socket")
    front.add_argument("--port", type=int, required=True)
    front.add_argument("--address", default="0.0.0.0", help="to listen on; :: for IPv6 too")  # noqa: S104
    front.add_argument("--target", type=Path, required=True, help="slurmrestd's socket")
    front.add_argument("--tls", type=Path, default=_TLS, help="folder with tls.crt, tls.key and ca.crt")
    front.add_argument(
        "--ask-clients", action="store_true", help="refuse clients without a certificate of ca.crt"
    )
    front.add_argument("--client", default="", help="the only name in a client certificate that is accepted")
    front.add_argument("--connections", type=int, default=ConnectionLimits.total)
    front.add_argument("--connections-per-address", type=int, default=ConnectionLimits.per_address)

    role("pre-stop", _pre_stop, "preStop hook of a slurmd pod", hook=True)
    role("instance-id", _instance_id, "write the pod's uid into its node's record")
    role("poke", _poke, "ResumeProgram and SuspendProgram of slurmctld", hook=True)
    return parser


# ---------------------------------------------------------------------------------------------- daemons
def _slurmctld(arguments: argparse.Namespace) -> int:
    daemon = entry.slurmctld(arguments.options)
    return asyncio.run(_run_slurmctld(daemon, arguments))


async def _run_slurmctld(daemon: SupervisedDaemon, arguments: argparse.Namespace) -> int:
    supervisor = Supervisor(daemon, _NOTIFY_SOCKET)
    status = StatusEndpoint(entry.CONFIGURATION, lambda: supervisor.status)
    serving = asyncio.create_task(_serve_status(status, arguments)) if arguments.status_port else None
    try:
        return await supervisor.run()
    finally:
        if serving:
            serving.cancel()


async def _serve_status(status: StatusEndpoint, arguments: argparse.Namespace) -> None:
    """Whatever fails here must not end slurmctld: it is reported, and served again."""
    while True:
        try:
            certificate = ReloadedCertificate(arguments.tls, asks_clients=True)
            server = TlsServer(certificate, status.handle, client=arguments.client)
            with (
                receive_pokes(POKE_SOCKET, status.poked) as receiver,
                listen("0.0.0.0", arguments.status_port) as listening,  # noqa: S104 - the pod's address
            ):
                try:
                    await server.run(listening)
                finally:
                    asyncio.get_running_loop().remove_reader(receiver)
        except Exception:
            log.exception("the status endpoint failed")
        await asyncio.sleep(_RETRY_S)


def _slurmd(arguments: argparse.Namespace) -> int:
    daemon = entry.slurmd(_pod(), arguments.options, started=time.time())
    return asyncio.run(_run_supervised(daemon))


async def _run_supervised(daemon: SupervisedDaemon) -> int:
    return await Supervisor(daemon, _NOTIFY_SOCKET).run()


def _slurmdbd(arguments: argparse.Namespace) -> int:
    command, environment = entry.slurmdbd(arguments.options)
    os.execve(command[0], command, environment)  # noqa: S606 - the container's own program


def _sack(arguments: argparse.Namespace) -> int:
    sack = Sack(arguments.keys, arguments.cluster)
    with listen_at(arguments.socket) as listening:
        return _until_stopped(sack.serve(listening), str(arguments.socket))


def _front(arguments: argparse.Namespace) -> int:
    certificate = ReloadedCertificate(
        arguments.tls, asks_clients=arguments.ask_clients or bool(arguments.client)
    )
    if certificate.context() is None:
        return _FAILED  # the reason is in the log
    limits = ConnectionLimits(arguments.connections, arguments.connections_per_address)
    server = TlsServer(certificate, TlsFront(arguments.target).handle, client=arguments.client, limits=limits)
    with listen(arguments.address, arguments.port) as listening:
        return _until_stopped(server.run(listening), f"port {listening.getsockname()[1]}")


def _until_stopped(serving: Coroutine[Any, Any, None], place: str) -> int:
    """As PID 1 a program gets only the signals that it handles."""

    async def serve() -> None:
        task = asyncio.ensure_future(serving)
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        log.info("listening on %s", place)
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(serve())
    return 0


# ---------------------------------------------------------------------------------------------- hooks
def _pre_stop(_: argparse.Namespace) -> int:
    pod = _pod()
    PreStop(pod.node, pod.uid).run()
    return 0


def _instance_id(_: argparse.Namespace) -> int:
    pod = _pod()
    ensure_instance_id(pod.node, pod.uid, pod.address)
    return 0


def _poke(_: argparse.Namespace) -> int:
    poke()
    return 0


def _pod() -> entry.Pod:
    return entry.Pod(socket.gethostname(), os.environ.get("POD_UID", ""), os.environ.get("POD_IP", ""))


def _log_to(file: Path | None) -> None:
    """stderr; for a hook, whose output Kubernetes drops, the container's log where it may be written."""
    stream = sys.stderr
    if file is not None:
        with contextlib.suppress(OSError):
            stream = file.open("a")
    logging.basicConfig(stream=stream, level=logging.INFO, format="redbox-slurmpod: %(message)s")
