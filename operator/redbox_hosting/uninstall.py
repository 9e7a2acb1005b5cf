"""The hook of `helm uninstall`: nothing is left whose finalizer only the operator lifts."""

from __future__ import annotations

from collections.abc import Sequence

from redbox_hosting.api import names
from redbox_kube.api.objects import ObjectClient, ResourcePath
from redbox_kube.install.crd_commands import CommandFailed

MOST_NAMED = 8


async def refuse_while_in_use(objects: ObjectClient, namespaces: Sequence[str]) -> None:
    """Raises CommandFailed with the objects that have to go first."""
    left = [
        f"{kind.name} {namespace}/{body['metadata']['name']}"
        for namespace in namespaces
        for kind in (names.NODE_SETS, names.CONTROLLERS)
        async for body in objects.list_all(ResourcePath(kind, namespace=namespace))
    ]
    if left:
        listed = ", ".join(left[:MOST_NAMED]) + (" and others" if len(left) > MOST_NAMED else "")
        raise CommandFailed(
            f"{listed}: delete them first, NodeSets before Controllers, and wait until they are gone; "
            "with `helm uninstall --no-hooks` their pods go on without an operator"
        )
