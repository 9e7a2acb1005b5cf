"""The hook of `helm uninstall`: what keeps the chart in its place."""

from __future__ import annotations

import pytest

from redbox_hosting.api import names
from redbox_hosting.uninstall import MOST_NAMED, refuse_while_in_use
from redbox_kube.api.objects import ResourcePath
from redbox_kube.install.crd_commands import CommandFailed
from tests.kube.fakes import FakeApiServer


async def test_an_uninstall_names_what_has_to_go_first() -> None:
    api = FakeApiServer()
    api.put(ResourcePath(names.CONTROLLERS, "slurm", "hpc"))
    api.put(ResourcePath(names.NODE_SETS, "cpu", "hpc"))
    with pytest.raises(CommandFailed, match=r"^NodeSet hpc/cpu, Controller hpc/slurm: delete them first"):
        await refuse_while_in_use(api.client, ["hpc"])
    await refuse_while_in_use(api.client, ["elsewhere"])


async def test_of_many_only_some_are_named() -> None:
    api = FakeApiServer()
    for number in range(MOST_NAMED + 1):
        api.put(ResourcePath(names.NODE_SETS, f"cpu-{number}", "hpc"))
    with pytest.raises(CommandFailed, match=f"hpc/cpu-{MOST_NAMED - 1} and others: delete") as refused:
        await refuse_while_in_use(api.client, ["hpc"])
    assert f"cpu-{MOST_NAMED}" not in str(refused.value)
