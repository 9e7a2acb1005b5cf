"""Commands for installation hooks: upgrade of the CRDs, and uninstall."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeVar

import typer
import yaml

from redbox_kube.api.objects import ApiError, ObjectClient
from redbox_kube.api.retrying_objects import RetryingObjects
from redbox_kube.install.crd_upgrade import NotEstablished, upgrade_crds
from redbox_operator.api.constants import FIELD_MANAGER
from redbox_operator.api.crds import all_crds
from redbox_operator.install.uninstall import CANCEL_WITHIN_S, JobsPolicy, NotUninstalled, Uninstall
from redbox_shared.printable import printable

T = TypeVar("T")
OwnNamespace = Annotated[str, typer.Option(envvar="REDBOX_NAMESPACE", help="The operator's own namespace.")]
WatchNamespaces = Annotated[
    str, typer.Option(envvar="REDBOX_WATCH_NAMESPACES", help="Namespaces, comma separated; empty: all.")
]
crds = typer.Typer(help="The CustomResourceDefinitions of Red Box.", invoke_without_command=True)


@crds.callback()
def show(context: typer.Context) -> None:
    """Print the CRDs, for kubectl apply -f -; `apply` upgrades those of a cluster."""
    if context.invoked_subcommand is None:
        typer.echo(yaml.safe_dump_all(all_crds(), sort_keys=False), nl=False)


@crds.command()
def apply() -> None:
    """Upgrade the cluster's CRDs to this release; no version with stored objects is dropped."""
    for line in _run(lambda objects: upgrade_crds(objects, all_crds())):
        _say(line)


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
        await Uninstall(objects, namespace, listed(watch_namespaces), jobs, cancel_within, _say).run()

    _run(act, RetryingObjects)


def _say(text: str, *, err: bool = False) -> None:
    typer.echo(printable(text, lines=True), err=err)


def listed(text: str) -> list[str]:
    """The items of an option that is comma separated."""
    return [item.strip() for item in text.split(",") if item.strip()]


def _run(act: Callable[[ObjectClient], Awaitable[T]], kind: type[ObjectClient] = ObjectClient) -> T:
    """Run `act` with a connection; a failure is one sentence and exit code 1."""

    async def connected() -> T:
        objects = await kind.connect(FIELD_MANAGER)
        try:
            return await act(objects)
        finally:
            await objects.close()

    try:
        return asyncio.run(connected())
    except (ApiError, NotEstablished, NotUninstalled) as error:
        _say(f"redbox-operator: {error}", err=True)
        raise typer.Exit(1) from None
