"""`redbox init` and `redbox serve`: from a fresh login node to a server that runs."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, NoReturn

import structlog
import typer

from redbox.agents.errors import AgentError
from redbox.agents.install_texts import render_sshd, render_sudoers
from redbox.callers.mapping.rules import MappingSettings
from redbox.core.yaml_document import DocumentError
from redbox.jobs.errors import JobsError, JournalFull
from redbox.observability.audit import AuditFileError
from redbox.observability.log import configure_log
from redbox.server.listeners import ListenError
from redbox.server.run import BackgroundTaskFailed
from redbox.server.run import serve as serve_settings
from redbox.settings import SETTINGS_FILE, load_settings
from redbox.setup.install.apply import NotInstalled, find, host_names, install
from redbox.setup.install.host_service import install_on_host, remove_from_host
from redbox.setup.install.layout import Layout
from redbox.setup.install.manifest import how_to_get_keys, slurm_cluster
from redbox.setup.install.plan import ISSUER, OPERATOR_NAMESPACE, Wishes, plan_init

log = structlog.get_logger(__name__)
ConfigOption = Annotated[Path, typer.Option("--config", help="The settings.", envvar="REDBOX_CONFIG")]
BROKEN = 70  # EX_SOFTWARE: what systemd should restart for
UNUSABLE = 78  # EX_CONFIG: what systemd need not restart for


def init(
    *,
    name: Annotated[str, typer.Option(help="What Kubernetes is to call this Slurm cluster.")],
    cluster: Annotated[str, typer.Option(help="The Kubernetes cluster whose jobs it runs.")],
    host: Annotated[
        list[str] | None,
        typer.Option(help="A name or address under which pods reach it; the first is the endpoint."),
    ] = None,
    port: Annotated[int, typer.Option(help="Where to listen.")] = 8443,
    issuer: Annotated[str, typer.Option(help="The issuer of that cluster's tokens.")] = ISSUER,
    namespace: Annotated[
        str, typer.Option(help="Where the Red Box operator runs there.")
    ] = OPERATOR_NAMESPACE,
    transport: Annotated[
        Literal["sudo", "self"],
        typer.Option(help="self: for your own account alone, without an administrator."),
    ] = "sudo",
    service: Annotated[
        bool,
        typer.Option(
            help="As root: also the account, the systemd unit, the sudoers rule and log rotation. Without, "
            "for hosts where something else keeps those."
        ),
    ] = True,
) -> None:
    """Write the settings, the CA and certificate, and all else that is needed here; run again, renew them.

    The SlurmCluster to apply in Kubernetes goes to stdout, everything for people to stderr.
    """
    layout = _layout(transport)
    names, addresses = _sorted_hosts(host or list(host_names()))
    wishes = Wishes(
        name=name,
        cluster=cluster,
        names=names,
        addresses=addresses,
        port=port,
        issuer=issuer,
        operator_namespace=namespace,
        transport=transport,
    )
    try:
        plan = plan_init(wishes, find(layout), layout, datetime.now(UTC))
        for_host = install_on_host() if service and transport == "sudo" and os.geteuid() == 0 else []
        install(plan, layout)
    except (NotInstalled, DocumentError) as error:
        _end(str(error), 1)
    for note in (*plan.notes, *for_host):
        typer.echo(note, err=True)
    typer.echo(how_to_get_keys(cluster, layout.cluster_keys(cluster)), err=True)
    typer.echo(slurm_cluster(plan.introduction), nl=False)


def serve(
    *,
    config: ConfigOption = SETTINGS_FILE,
) -> None:
    """Run the server until it is told to end; SIGHUP has rules, certificate and audit file read again."""
    configure_log(sys.stderr)
    try:
        settings = load_settings(config)
    except DocumentError as error:
        _end(str(error), UNUSABLE)
    try:
        asyncio.run(serve_settings(settings, config))
    except BackgroundTaskFailed as error:
        _end(str(error), BROKEN)
    except (JournalFull, OSError) as error:
        _end(_unwritable(settings.jobs.journal, error), BROKEN)  # started again, it may find room
    except (DocumentError, JobsError, AgentError, AuditFileError, ListenError) as error:
        _end(str(error), UNUSABLE)


def _unwritable(journal: Path, error: JournalFull | OSError) -> str:
    cause = error.__cause__ if isinstance(error, JournalFull) and error.__cause__ else error
    place = cause.filename if isinstance(cause, OSError) and cause.filename else journal
    why = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
    return f"It cannot start, since {place} cannot be written: {why}. Make room there, or mend its disk."


def uninstall(
    *,
    purge: Annotated[
        bool, typer.Option("--purge", help="Also settings, journal, audit, account and group.")
    ] = False,
) -> None:
    """Remove from this host what `redbox init` made; jobs in Slurm run on."""
    if os.geteuid() != 0:
        _end("run redbox uninstall as root", 1)
    try:
        notes = remove_from_host(Layout(), purge=purge)
    except (NotInstalled, OSError) as error:
        _end(str(error), 1)
    for note in notes:
        typer.echo(note, err=True)


def sudoers(*, config: ConfigOption = SETTINGS_FILE) -> None:
    """Print the one sudoers rule that red-box needs, for `visudo -f /etc/sudoers.d/redbox`."""
    typer.echo(render_sudoers(group=_users_group(config)), nl=False)


def sshd(*, config: ConfigOption = SETTINGS_FILE) -> None:
    """Print what a login node's sshd needs for the transport ssh, for a file of `/etc/ssh/sshd_config.d`."""
    typer.echo(render_sshd(group=_users_group(config)), nl=False)


def _users_group(config: Path) -> str:
    """That of the settings, where there are some already."""
    try:
        mapping = load_settings(config).mapping if config.exists() else MappingSettings()
    except DocumentError as error:
        _end(str(error), UNUSABLE)
    return mapping.users_group


def _layout(transport: str) -> Layout:
    if transport == "sudo":
        return Layout()
    runtime = os.environ.get("XDG_RUNTIME_DIR", str(Path.home() / ".local/state"))
    return Layout.personal(Path.home(), Path(runtime))


def _sorted_hosts(hosts: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    addresses = tuple(one for one in hosts if ":" in one or one.replace(".", "").isdigit())
    return tuple(one for one in hosts if one not in addresses), addresses


def _end(sentence: str, code: int) -> NoReturn:
    typer.echo(f"redbox: {sentence}", err=True)
    raise typer.Exit(code)
