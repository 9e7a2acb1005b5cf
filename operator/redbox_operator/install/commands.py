"""The command of the uninstall hook."""

from __future__ import annotations

from typing import Annotated

import typer

from redbox_kube.api.objects import ObjectClient
from redbox_kube.api.retrying_objects import RetryingObjects
from redbox_kube.install.crd_commands import CommandFailed, listed, run_once, say
from redbox_operator.api.constants import FIELD_MANAGER
from redbox_operator.install.uninstall import CANCEL_WITHIN_S, JobsPolicy, NotUninstalled, Uninstall

OwnNamespace = Annotated[str, typer.Option(envvar="REDBOX_NAMESPACE", help="The operator's own namespace.")]
WatchNamespaces = Annotated[
    str, typer.Option(envvar="REDBOX_WATCH_NAMESPACES", help="Namespaces, comma separated; empty: all.")
]


def uninstall(
    namespace: OwnNamespace,
    watch_namespaces: WatchNamespaces = "",
    jobs: Annotated[JobsPolicy, typer.Option(help="What happens to jobs in Slurm.")] = JobsPolicy.KEEP,
    cancel_within: Annotated[
        float,
        typer.Option(min=0, help="Seconds to wait for cancelled jobs to end; then the uninstall fails."),
    ] = CANCEL_WITHIN_S,
) -> None:
    """Lift finalizers and remove companions and virtual nodes before the installation is deleted."""

    async def act(objects: ObjectClient) -> None:
        try:
            await Uninstall(objects, namespace, listed(watch_namespaces), jobs, cancel_within, say).run()
        except NotUninstalled as error:
            raise CommandFailed(str(error)) from error

    run_once(FIELD_MANAGER, act, RetryingObjects)
