"""The command line of `redbox-hosting`."""

import asyncio
import sys
from typing import Annotated

import typer

from redbox_api.log import configure_log
from redbox_hosting.api.crds import hosting_crds
from redbox_hosting.application import HostingOptions, run_hosting_operator
from redbox_hosting.controllers.context import DefaultImages, OperatorPods
from redbox_kube.install.crd_commands import crd_commands
from redbox_kube.runtime.version_option import add_version_option

app = typer.Typer(name="redbox-hosting", help="Runs Slurm clusters in Kubernetes.", no_args_is_help=True)
add_version_option(app, "redbox-hosting")
app.add_typer(crd_commands("redbox-hosting", hosting_crds), name="crds")


@app.command()
def run(
    *,
    namespace: Annotated[str, typer.Option(envvar="REDBOX_NAMESPACE", help="The operator's own namespace.")],
    serve_namespaces: Annotated[
        str,
        typer.Option(
            envvar="REDBOX_SERVE_NAMESPACES", help="The namespaces of its Slurm clusters, comma separated."
        ),
    ],
    image: Annotated[
        str,
        typer.Option(
            envvar="REDBOX_SLURM_IMAGE",
            help="The image of Slurm for Controllers that name none. Its tag begins with the release.",
        ),
    ] = "",
    database_image: Annotated[
        str, typer.Option(envvar="REDBOX_DATABASE_IMAGE", help="The image of MariaDB.")
    ] = "",
    reads_nodes: Annotated[
        bool,
        typer.Option(
            envvar="REDBOX_READS_NODES", help="Read Kubernetes nodes: cordons, and machines that are lost."
        ),
    ] = False,
    health_port: Annotated[
        int, typer.Option(envvar="REDBOX_HEALTH_PORT", help="Port of /healthz, /readyz and /metrics.")
    ] = 8080,
) -> None:
    """Run the operator until SIGTERM."""
    configure_log(sys.stderr)
    served = [name.strip() for name in serve_namespaces.split(",") if name.strip()]
    if not served:
        raise typer.BadParameter("name one namespace at least", param_hint="--serve-namespaces")
    options = HostingOptions(
        namespaces=served,
        operator=OperatorPods(namespace),
        images=DefaultImages(image, database_image),
        reads_nodes=reads_nodes,
        health_port=health_port,
    )
    asyncio.run(run_hosting_operator(options))
