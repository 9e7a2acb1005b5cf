"""Commands that an installation runs beside the operator: CRDs brought up to date, and all taken out."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer
import yaml

from redbox_kube.api.objects import ApiError, ObjectClient
from redbox_kube.api.retrying_objects import RetryingObjects
from redbox_operator.api.constants import FIELD_MANAGER
from redbox_operator.api.crds import all_crds
from redbox_operator.install.crd_upgrade import NotEstablished, upgrade_crds
from redbox_operator.install.uninstall import CANCEL_WITHIN_S, JobsPolicy, NotUninstalled, Uninstall

T = TypeVar("T")
crds = typer.Typer(help="The kinds of Red Box (CustomResourceDefinitions).", invoke_without_command=True)


@crds.callback()
def show(context: typer.Context) -> None:
    """Print the kinds, for kubectl apply -f -; `apply` brings a cluster's up to date."""
    if context.invoked_subcommand is None:
        typer.echo(yaml.safe_dump_all(all_crds(), sort_keys=False), nl=False)


@crds.command()
def apply() -> None:
    """Bring the cluster's kinds to this release; no version in which objects are stored is dropped."""
    for line in _asked(upgrade_crds):
        typer.echo(line)


def uninstall(
    namespace: Annotated[str, typer.Option(envvar="REDBOX_NAMESPACE", help="Where the operator runs.")],
    watch_namespaces: Annotated[
        str,
        typer.Option(envvar="REDBOX_WATCH_NAMESPACES", help="Those it is limited to, comma separated."),
    ] = "",
    jobs: Annotated[JobsPolicy, typer.Option(help="What becomes of jobs in Slurm.")] = JobsPolicy.KEEP,
    cancel_within: Annotated[
        float, typer.Option(min=0, help="Seconds after which jobs that are not cancelled end the uninstall.")
    ] = CANCEL_WITHIN_S,
) -> None:
    """Lift all finalizers, and remove companions and virtual nodes, before the installation is deleted."""
    watched = [one for one in watch_namespaces.split(",") if one]

    async def act(objects: ObjectClient) -> None:
        await Uninstall(objects, namespace, watched, jobs, cancel_within, typer.echo).run()

    _asked(act, RetryingObjects)


def _asked(act: Callable[[ObjectClient], Awaitable[T]], kind: type[ObjectClient] = ObjectClient) -> T:
    """What this does at the API server; a failure is one sentence."""

    async def connected() -> T:
        objects = await kind.connect(FIELD_MANAGER)
        try:
            return await act(objects)
        finally:
            await objects.close()

    try:
        return asyncio.run(connected())
    except (ApiError, NotEstablished, NotUninstalled) as error:
        typer.echo(f"redbox-operator: {error}", err=True)
        raise typer.Exit(1) from None
