"""The command line of `redbox-hosting`."""

import asyncio
import sys
from typing import Annotated

import typer

from redbox_api.log import configure_log
from redbox_hosting.api.crds import hosting_crds
from redbox_hosting.application import HostingOptions, run_hosting_operator
from redbox_hosting.attach import AttachedRedbox, attach
from redbox_hosting.cluster_uninstall import WorkersFate, end_workers
from redbox_hosting.controllers.context import DefaultImages, OperatorPods
from redbox_hosting.uninstall import refuse_while_in_use
from redbox_kube.install.crd_commands import crd_commands, listed, run_once, say
from redbox_kube.runtime.version_option import add_version_option

app = typer.Typer(name="redbox-hosting", help="Runs Slurm clusters in Kubernetes.", no_args_is_help=True)
add_version_option(app, "redbox-hosting")
app.add_typer(crd_commands("redbox-hosting", hosting_crds), name="crds")

ServedNamespaces = Annotated[
    str,
    typer.Option(
        envvar="REDBOX_SERVE_NAMESPACES", help="The namespaces of its Slurm clusters, comma separated."
    ),
]


@app.command()
def run(
    *,
    namespace: Annotated[str, typer.Option(envvar="REDBOX_NAMESPACE", help="The operator's own namespace.")],
    serve_namespaces: ServedNamespaces,
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
    node_conditions: Annotated[
        str,
        typer.Option(
            envvar="REDBOX_NODE_CONDITIONS",
            help="Types of conditions of Kubernetes nodes that drain the workers there, comma separated.",
        ),
    ] = "",
    health_port: Annotated[
        int, typer.Option(envvar="REDBOX_HEALTH_PORT", help="Port of /healthz, /readyz and /metrics.")
    ] = 8080,
) -> None:
    """Run the operator until SIGTERM."""
    configure_log(sys.stderr)
    options = HostingOptions(
        namespaces=_served(serve_namespaces),
        operator=OperatorPods(namespace),
        images=DefaultImages(image, database_image),
        reads_nodes=reads_nodes,
        node_conditions=listed(node_conditions),
        health_port=health_port,
    )
    asyncio.run(run_hosting_operator(options))


@app.command(name="attach-redbox")
def attach_redbox(
    name: Annotated[str, typer.Argument(help="The red-box's Service, Secret and ConfigMap.")],
    namespace: Annotated[str, typer.Option(envvar="REDBOX_NAMESPACE", help="Their namespace.")],
) -> None:
    """Make the keys of a red-box for a hosted cluster once, renew its certificate, publish what is public."""
    redbox = AttachedRedbox(name, namespace)
    say(run_once("redbox-hosting", lambda objects: attach(objects, redbox)))


@app.command(name="end-workers")
def end_workers_of(
    controller: Annotated[str, typer.Argument(help="The Controller.")],
    namespace: Annotated[str, typer.Option(envvar="REDBOX_NAMESPACE", help="Its namespace.")],
    workers: Annotated[WorkersFate, typer.Option(help="What becomes of its workers.")] = WorkersFate.REFUSE,
) -> None:
    """End the workers of one cluster before it is uninstalled, or refuse that."""
    run_once("redbox-hosting", lambda objects: end_workers(objects, namespace, controller, workers, say=say))


@app.command()
def uninstall(serve_namespaces: ServedNamespaces) -> None:
    """Refuse while Controllers or NodeSets are left, which only a running operator lets go."""
    namespaces = _served(serve_namespaces)
    run_once("redbox-hosting", lambda objects: refuse_while_in_use(objects, namespaces))


def _served(namespaces: str) -> list[str]:
    served = listed(namespaces)
    if not served:
        raise typer.BadParameter("name one namespace at least", param_hint="--serve-namespaces")
    return served
