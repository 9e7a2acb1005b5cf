"""The command line of `redbox-resourced`."""

import asyncio
import sys
from pathlib import Path
from typing import Annotated

import typer

from redbox_api.log import configure_log
from redbox_clusters.redbox_token import ServiceAccountName
from redbox_kube.runtime.version_option import add_version_option
from redbox_resourced.application import ResourcedSettings, run_resourced
from redbox_resourced.nodes.manifest import KubeletAddress
from redbox_resourced.partitions.overrides import InvalidOverrides
from redbox_resourced.pods_condition import PodGrants
from redbox_shared.tls_buffers import share_tls_buffer

app = typer.Typer(
    name="redbox-resourced", help="Publishes Slurm's partitions in Kubernetes.", no_args_is_help=True
)
add_version_option(app, "redbox-resourced")


@app.command()
def run(
    *,
    namespace: Annotated[
        str, typer.Option(envvar="REDBOX_NAMESPACE", help="The namespace in which resourced runs.")
    ],
    ip: Annotated[
        str, typer.Option(envvar="POD_IP", help="Where the API server reaches virtual nodes' kubelet API.")
    ],
    account: Annotated[
        str, typer.Option(envvar="REDBOX_SERVICE_ACCOUNT", help="The service account of resourced.")
    ] = "redbox-resourced",
    port: Annotated[int, typer.Option(envvar="REDBOX_KUBELET_PORT", help="The kubelet API's port.")] = 10250,
    state: Annotated[
        Path,
        typer.Option(
            envvar="REDBOX_STATE_FOLDER",
            help="Keeps the serving certificate's key over a restart of this pod.",
        ),
    ] = Path("/var/lib/redbox-resourced"),
    serving: Annotated[
        Path | None,
        typer.Option(
            envvar="REDBOX_SERVING_FOLDER",
            help="A folder with tls.crt and tls.key for the kubelet API; without it one is requested.",
        ),
    ] = None,
    health_port: Annotated[
        int, typer.Option(envvar="REDBOX_HEALTH_PORT", help="For /healthz, /readyz and /metrics.")
    ] = 8080,
    most_nodes: Annotated[
        int,
        typer.Option(
            envvar="REDBOX_VIRTUAL_NODES", min=0, help="Maximum number of virtual nodes of a SlurmCluster."
        ),
    ] = 20,
    gone_after: Annotated[
        float,
        typer.Option(
            envvar="REDBOX_GONE_AFTER",
            min=0,
            help="Seconds without the partition in Slurm after which its virtual node is deleted.",
        ),
    ] = 600.0,
    old_keys: Annotated[
        bool, typer.Option(envvar="REDBOX_OLD_KEYS", help="Also publish wlm.sylabs.io/* labels.")
    ] = False,
    overrides: Annotated[
        Path | None,
        typer.Option(
            envvar="REDBOX_OVERRIDES", help="A file of limits and features that Slurm does not report."
        ),
    ] = None,
    pods: Annotated[
        bool,
        typer.Option(
            envvar="REDBOX_PODS", help="Pods that are not of SlurmJobs run too: the chart gives the rights."
        ),
    ] = False,
    pod_namespaces: Annotated[
        str,
        typer.Option(envvar="REDBOX_POD_NAMESPACES", help="Where the chart lets Secrets be read: a,b."),
    ] = "",
    api_token_namespaces: Annotated[
        str,
        typer.Option(
            envvar="REDBOX_API_TOKEN_NAMESPACES", help="Where the chart lets pods have API tokens: a,b."
        ),
    ] = "",
    volumes: Annotated[
        bool,
        typer.Option(
            envvar="REDBOX_VOLUMES", help="Make folders for claims of provisioner redbox.dev/directory."
        ),
    ] = False,
) -> None:
    """Publish partitions until SIGTERM."""
    configure_log(sys.stderr)
    share_tls_buffer()
    settings = ResourcedSettings(
        account=ServiceAccountName(namespace, account),
        address=KubeletAddress(ip, port),
        state_folder=state,
        serving_folder=serving,
        health_port=health_port,
        node_limit=most_nodes,
        gone_after_s=gone_after,
        old_keys=old_keys,
        overrides=overrides,
        pods=PodGrants(pods, _names(pod_namespaces), _names(api_token_namespaces)),
        volumes=volumes,
    )
    try:
        asyncio.run(run_resourced(settings))
    except InvalidOverrides as error:
        sys.exit(f"redbox-resourced: {error}")


def _names(listed: str) -> tuple[str, ...]:
    return tuple(filter(None, listed.split(",")))
