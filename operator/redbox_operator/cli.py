"""The command line of `redbox-operator`."""

import asyncio
import sys
from typing import Annotated

import typer

from redbox_api.log import configure_log
from redbox_kube.redbox_token import ServiceAccountName
from redbox_kube.runtime.version_option import add_version_option
from redbox_operator.application import Options, run_operator
from redbox_operator.install import commands

app = typer.Typer(
    name="redbox-operator",
    help="Turns SlurmJobs into companions, and Slurm's states into their status.",
    no_args_is_help=True,
)
app.add_typer(commands.crds, name="crds")
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
    health_port: Annotated[
        int, typer.Option(envvar="REDBOX_HEALTH_PORT", help="Port of /healthz, /readyz and /metrics.")
    ] = 8080,
) -> None:
    """Run the operator until SIGTERM."""
    configure_log(sys.stderr)
    own = ServiceAccountName(namespace, account)
    options = Options(own, image, health_port, commands.listed(watch_namespaces), commands.listed(host_paths))
    asyncio.run(run_operator(options))
