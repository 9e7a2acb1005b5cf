"""The command line of `redbox-operator`."""

import asyncio
import os
import sys
from typing import Annotated

import typer

from redbox_api.log import configure_log
from redbox_clusters.redbox_token import ServiceAccountName
from redbox_kube.install.crd_commands import crd_commands, listed
from redbox_kube.runtime.version_option import add_version_option
from redbox_operator.api.crds import all_crds
from redbox_operator.application import Options, run_operator
from redbox_operator.companion_pods.builder import CompanionProgram
from redbox_operator.companion_pods.users import LOWEST_USER, CompanionUsers
from redbox_operator.install import commands
from redbox_operator.slurmcluster.endpoint_addresses import EndpointAddresses
from redbox_operator.slurmcluster.reconciler import MOST_ENDPOINTS, EndpointRules

app = typer.Typer(
    name="redbox-operator",
    help="Turns SlurmJobs into companions, and Slurm's states into their status.",
    no_args_is_help=True,
)
app.add_typer(crd_commands("redbox-operator", all_crds), name="crds")
app.command()(commands.uninstall)
add_version_option(app, "redbox-operator")


@app.command()
def run(
    *,
    image: Annotated[str, typer.Option(envvar="REDBOX_COMPANION_IMAGE", help="The image of companions.")],
    namespace: commands.OwnNamespace,
    account: Annotated[
        str, typer.Option(envvar="REDBOX_SERVICE_ACCOUNT", help="The operator's own service account.")
    ] = "redbox-operator",
    watch_namespaces: commands.WatchNamespaces = "",
    host_paths: Annotated[
        str,
        typer.Option(
            envvar="REDBOX_HOST_PATHS",
            help="Folders on nodes that results of the old kinds may use, comma separated.",
        ),
    ] = "",
    first_companion_user: Annotated[
        int,
        typer.Option(
            envvar="REDBOX_FIRST_COMPANION_USER",
            min=LOWEST_USER,
            help="The first of the Unix users that companions have on Kubernetes' nodes.",
        ),
    ] = CompanionUsers.first,
    companion_users: Annotated[
        int,
        typer.Option(
            envvar="REDBOX_COMPANION_USERS", min=1, help="How many there are; a namespace has one of them."
        ),
    ] = CompanionUsers.count,
    most_endpoints: Annotated[
        int,
        typer.Option(
            envvar="REDBOX_MOST_ENDPOINTS",
            min=0,
            help="How many SlurmEndpoints are served, the oldest first.",
        ),
    ] = MOST_ENDPOINTS,
    endpoint_networks: Annotated[
        str,
        typer.Option(
            envvar="REDBOX_ENDPOINT_NETWORKS",
            help="The networks that SlurmEndpoints may be in, comma separated; empty: any.",
        ),
    ] = "",
    approve_serving: Annotated[
        bool,
        typer.Option(
            "--approve-serving",
            envvar="REDBOX_APPROVE_SERVING",
            help="Approve the serving certificates that resourced requests for its own pods.",
        ),
    ] = False,
    health_port: Annotated[
        int, typer.Option(envvar="REDBOX_HEALTH_PORT", help="Port of /healthz, /readyz and /metrics.")
    ] = 8080,
) -> None:
    """Run the operator until SIGTERM."""
    configure_log(sys.stderr)
    own = ServiceAccountName(namespace, account)
    try:
        addresses = EndpointAddresses.of_installation(endpoint_networks, os.environ)
    except ValueError as error:
        raise typer.BadParameter(
            f"{error}: give networks as 10.96.0.0/12", param_hint="--endpoint-networks"
        ) from error
    try:
        users = CompanionUsers(first_companion_user, companion_users)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--companion-users") from error
    options = Options(
        own,
        CompanionProgram(image, users),
        health_port,
        listed(watch_namespaces),
        listed(host_paths),
        EndpointRules(most_endpoints, addresses),
        approve_serving,
    )
    asyncio.run(run_operator(options))
