"""The roles of containers: Slurm's daemons under the supervisor, the servers beside them, and the trial."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from redbox_slurmpod import entry
from redbox_slurmpod.homes import make_homes
from redbox_slurmpod.pod import this_pod
from redbox_slurmpod.poke import POKE_SOCKET
from redbox_slurmpod.sack.server import Sack, listen_at
from redbox_slurmpod.status_endpoint import StatusEndpoint, receive_pokes
from redbox_slurmpod.supervision.supervisor import SupervisedDaemon, Supervisor
from redbox_slurmpod.tls.certificate import ReloadedCertificate
from redbox_slurmpod.tls.front import TlsFront
from redbox_slurmpod.tls.server import ConnectionLimits, TlsServer, listen
from redbox_slurmpod.trial.scratch_cluster import Folders, try_configuration

log = logging.getLogger(__name__)
_NOTIFY_SOCKET = Path("/run/redbox/notify.sock")
_RETRY_S = 5
_FAILED = 1


def slurmctld(arguments: argparse.Namespace) -> int:
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


def slurmd(arguments: argparse.Namespace) -> int:
    daemon = entry.slurmd(this_pod(), arguments.options, started=time.time())
    return asyncio.run(_run_supervised(daemon))


async def _run_supervised(daemon: SupervisedDaemon) -> int:
    return await Supervisor(daemon, _NOTIFY_SOCKET).run()


def sackd(arguments: argparse.Namespace) -> int:
    return asyncio.run(_run_supervised(entry.sackd(arguments.options)))


def slurmdbd(arguments: argparse.Namespace) -> int:
    command, environment = entry.slurmdbd(arguments.options)
    os.execve(command[0], command, environment)  # noqa: S606 - the container's own program


def login(_: argparse.Namespace) -> int:
    command = entry.login()
    os.execv(command[0], command)  # noqa: S606 - the container's own program


def munged(arguments: argparse.Namespace) -> int:
    command = entry.munged(arguments.socket)
    os.execv(command[0], command)  # noqa: S606 - the container's own program


def sack(arguments: argparse.Namespace) -> int:
    server = Sack(arguments.keys, arguments.cluster)
    with listen_at(arguments.socket) as listening:
        return _until_stopped(server.serve(listening), str(arguments.socket))


def front(arguments: argparse.Namespace) -> int:
    certificate = ReloadedCertificate(
        arguments.tls, asks_clients=arguments.ask_clients or bool(arguments.client)
    )
    if certificate.context() is None:
        return _FAILED  # the reason is in the log
    limits = ConnectionLimits(arguments.connections, arguments.connections_per_address)
    server = TlsServer(certificate, TlsFront(arguments.target).handle, client=arguments.client, limits=limits)
    with listen(arguments.address, arguments.port) as listening:
        return _until_stopped(server.run(listening), f"port {listening.getsockname()[1]}")


def trial(_: argparse.Namespace) -> int:
    return try_configuration(Folders())


def homes(arguments: argparse.Namespace) -> int:
    users, folder, message = (Path(each) for each in ("/etc/redbox/users", "/home", "/dev/termination-log"))
    return make_homes(arguments.digest, users, folder, message)


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


ROLES: Mapping[str, Callable[[argparse.Namespace], int]] = {
    "slurmctld": slurmctld,
    "slurmd": slurmd,
    "sackd": sackd,
    "slurmdbd": slurmdbd,
    "login": login,
    "munged": munged,
    "sack": sack,
    "front": front,
    "homes": homes,
    "trial": trial,
}
