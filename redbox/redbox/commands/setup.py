"""`redbox init`, `uninstall`, `sudoers` and `sshd`: installing red-box on a host and removing it."""

from __future__ import annotations

import os
import re
import sys
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal

import typer

from redbox.agents.install_texts import render_sshd, render_sudoers
from redbox.callers.mapping.rules import MappingSettings
from redbox.commands.config_option import ConfigOption
from redbox.commands.exit_codes import exit_with, say
from redbox.core.yaml_document import DocumentError
from redbox.server.certificates import BadCertificate
from redbox.settings import SETTINGS_FILE, load_settings
from redbox.setup.install.apply import InstallError, host_names, read_existing, write_plan
from redbox.setup.install.host_service import (
    install_on_host,
    is_packaged,
    refuse_beside_package,
    remove_from_host,
)
from redbox.setup.install.layout import Layout
from redbox.setup.install.manifest import key_instructions, render_slurm_cluster
from redbox.setup.install.plan import ISSUER, OPERATOR_NAMESPACE, InitOptions, plan_init

HOST_NAME = re.compile(r"(\*\.)?[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*")


def init(
    *,
    name: Annotated[str, typer.Option(help="The name of this Slurm cluster in Kubernetes.")],
    cluster: Annotated[str, typer.Option(help="The name of the Kubernetes cluster whose jobs it runs.")],
    host: Annotated[
        list[str] | None,
        typer.Option(
            help="A name or address of this host for pods; may be repeated; the first one is the endpoint."
        ),
    ] = None,
    port: Annotated[int, typer.Option(help="The port to listen on.")] = 8443,
    issuer: Annotated[str, typer.Option(help="The issuer of the cluster's tokens.")] = ISSUER,
    namespace: Annotated[
        str, typer.Option(help="The namespace of the Red Box operator there.")
    ] = OPERATOR_NAMESPACE,
    transport: Annotated[
        Literal["sudo", "self"],
        typer.Option(help="sudo: for all users; self: for your own account only, without an administrator."),
    ] = "sudo",
    pods: Annotated[
        bool,
        typer.Option(
            "--pods",
            help="Pods run as Slurm jobs: give resourced the role volumes, enable pods in the SlurmCluster.",
        ),
    ] = False,
    sessions: Annotated[
        bool | None,
        typer.Option(
            "--sessions/--no-sessions",
            help="Let users enter their own running jobs: exec, shell, forward. At a terminal it asks.",
            show_default=False,
        ),
    ] = None,
    service: Annotated[
        bool,
        typer.Option(
            help="As root, also install the account, the systemd unit, the sudoers rule and log rotation; "
            "--no-service for hosts where other tools manage these."
        ),
    ] = True,
) -> None:
    """Install red-box on this host: settings, CA, certificate, service. Run again, it renews the certificate.

    The SlurmCluster to apply in Kubernetes goes to stdout, all other output to stderr.
    """
    layout = Layout() if transport == "sudo" else Layout.of_current_user()
    names, addresses = _names_and_addresses(host or list(host_names()))
    options = InitOptions(
        name=name,
        cluster=cluster,
        names=names,
        addresses=addresses,
        port=port,
        issuer=issuer,
        operator_namespace=namespace,
        transport=transport,
        pods=pods,
        sessions=_wants_sessions(sessions, is_new=not layout.settings.exists()),
        packaged=is_packaged(),
    )
    try:
        if transport == "sudo":
            refuse_beside_package()
        existing = read_existing(layout)
        plan = plan_init(options, existing, layout, datetime.now(UTC))
        mapping = existing.settings.mapping if existing.settings else MappingSettings()
        is_service = service and transport == "sudo" and os.geteuid() == 0
        host_notes = install_on_host(mapping.users_group) if is_service else []
        write_plan(plan, layout)
    except (InstallError, DocumentError) as error:
        exit_with(str(error))
    except BadCertificate as error:
        exit_with(f"{layout.authority_certificate}: {error}")
    except OSError as error:
        exit_with(f"{error.filename} cannot be read: {error.strerror}")
    for note in (*plan.notes, *host_notes):
        say(note, err=True)
    say(key_instructions(cluster, layout.cluster_keys(cluster)), err=True)
    say(render_slurm_cluster(plan.manifest).rstrip("\n"))


def uninstall(
    *,
    purge: Annotated[
        bool, typer.Option("--purge", help="Also remove settings, journal, audit log, account and group.")
    ] = False,
) -> None:
    """Remove red-box from this host; jobs in Slurm continue to run."""
    if os.geteuid() != 0:
        exit_with("only root can uninstall red-box: run redbox uninstall as root")
    try:
        for note in remove_from_host(Layout(), purge=purge):
            say(note, err=True)
    except (InstallError, OSError) as error:
        exit_with(str(error))


def sudoers(*, config: ConfigOption = SETTINGS_FILE) -> None:
    """Print the sudoers rule that red-box needs, for `visudo -f /etc/sudoers.d/redbox`."""
    say(render_sudoers(group=_users_group(config)).rstrip("\n"))


def sshd(*, config: ConfigOption = SETTINGS_FILE) -> None:
    """Print the sshd configuration that a login node needs for transport ssh: for sshd_config.d."""
    say(render_sshd(group=_users_group(config)).rstrip("\n"))


def _wants_sessions(given: bool | None, *, is_new: bool) -> bool:  # noqa: FBT001 (an option of the command)
    """Ask where nothing is given and there is somebody to ask; existing settings stay as they are."""
    if given is not None or not is_new or not sys.stdin.isatty():
        return bool(given)
    return typer.confirm("May users enter their own running jobs (exec, shell, port forwarding)?", err=True)


def _users_group(config: Path) -> str:
    """The group in the settings, or the default if there are none."""
    try:
        mapping = load_settings(config).mapping if config.exists() else MappingSettings()
    except DocumentError as error:
        exit_with(str(error), os.EX_CONFIG)
    return mapping.users_group


def _names_and_addresses(hosts: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    for host in hosts:
        if not host or not host.isascii():  # a certificate has the form xn--... of such a name
            exit_with(f"--host {host!r} is not a name in ASCII")
        if ":" not in host and HOST_NAME.fullmatch(host) is None:
            exit_with(f"--host {host!r} is not a host's name: write it as in login.example.org")
    addresses = tuple(host for host in hosts if ":" in host or host.replace(".", "").isdigit())
    for address in addresses:
        try:
            ip_address(address)
        except ValueError:
            exit_with(f"--host {address} is neither a name nor an IP address")
    return tuple(host for host in hosts if host not in addresses), addresses
