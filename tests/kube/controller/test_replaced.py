"""Owned objects with fields that never change: they are deleted for such a change, and created again."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import pytest

from redbox_kube.api.kinds import STATEFUL_SET
from redbox_kube.api.objects import ApiRefused, Object, ResourcePath
from redbox_kube.controller.owned import DesiredObject
from tests.kube.controller.owner import owned_objects, owner, shown
from tests.kube.fakes import FakeApiServer

BARN = ResourcePath(STATEFUL_SET, "barn", "alice")
REFUSED = ApiRefused(HTTPStatus.UNPROCESSABLE_ENTITY, 'StatefulSet.apps "barn" is invalid')


class NotingApiServer(FakeApiServer):
    """Notes the options of deletions."""

    def __init__(self) -> None:
        super().__init__()
        self.deletions: list[tuple[str, dict[str, Any]]] = []

    async def delete(self, where: ResourcePath, **options: Any) -> HTTPStatus:
        self.deletions.append((where.name, options))
        return await super().delete(where, **options)


@pytest.fixture
def api() -> NotingApiServer:
    return NotingApiServer()


def barn(service: str = "a", *, labels: Object | None = None) -> DesiredObject:
    selector = {"matchLabels": labels or {"app": "barn"}}
    spec = {"serviceName": service, "selector": selector, "template": {"spec": {"containers": []}}}
    return DesiredObject(STATEFUL_SET, "barn", {"spec": spec})


async def test_an_object_is_replaced_and_its_pods_stay(api: NotingApiServer) -> None:
    async with owned_objects(api, replaced=[STATEFUL_SET]) as owned:
        await owned.apply(owner(), [barn()])
        await shown(owned, api)
        uid = api.objects[BARN]["metadata"]["uid"]
        did = await owned.apply(owner(), [barn("b")])
        assert "StatefulSet barn deleted, because such a change is refused" in did
        assert api.deletions == [("barn", {"uid": uid, "version": "", "propagationPolicy": "Orphan"})]
        await shown(owned, api)
        assert await owned.apply(owner(), [barn("b")]) == "StatefulSet barn created"
    assert api.objects[BARN]["spec"]["serviceName"] == "b"


async def test_pods_that_a_new_selector_leaves_out_go(api: NotingApiServer) -> None:
    """The new object would not take them, and their names would be taken."""
    async with owned_objects(api, replaced=[STATEFUL_SET]) as owned:
        await owned.apply(owner(), [barn()])
        await shown(owned, api)
        await owned.apply(owner(), [barn(labels={"app": "stable"})])
    assert [options["propagationPolicy"] for _, options in api.deletions] == ["Background"]


async def test_the_end_of_the_old_object_is_awaited(api: NotingApiServer) -> None:
    """The garbage collector leaves the pods without an owner first."""
    async with owned_objects(api, replaced=[STATEFUL_SET]) as owned:
        await owned.apply(owner(), [barn()])
        body = api.objects[BARN]
        api.put(BARN, {**body, "metadata": {**body["metadata"], "finalizers": ["orphan"]}})
        await shown(owned, api)
        await owned.apply(owner(), [barn("b")])
        await shown(owned, api)
        writes = api.writes
        assert await owned.apply(owner(), [barn("b")]) == ""
        assert api.writes == writes
        api.remove(BARN)
        await shown(owned, api)
        assert await owned.apply(owner(), [barn("b")]) == "StatefulSet barn created"


@pytest.mark.parametrize("replaced", [[], [STATEFUL_SET]])
async def test_an_object_stays_if_its_kind_is_not_replaced_or_a_new_one_is_refused_too(
    api: NotingApiServer, replaced: list[Any]
) -> None:
    async with owned_objects(api, replaced=replaced) as owned:
        await owned.apply(owner(), [barn()])
        await shown(owned, api)
        if replaced:
            api.fail(REFUSED, verb="create", kind="StatefulSet")
        with pytest.raises(ApiRefused, match="is invalid"):
            await owned.apply(owner(), [barn("b")])
    assert api.objects[BARN]["spec"]["serviceName"] == "a"


async def test_nothing_is_replaced_after_a_refusal_of_another_kind(api: NotingApiServer) -> None:
    async with owned_objects(api, replaced=[STATEFUL_SET]) as owned:
        await owned.apply(owner(), [barn()])
        await shown(owned, api)
        api.fail(ApiRefused(HTTPStatus.FORBIDDEN, "a quota"), verb="apply", kind="StatefulSet")
        with pytest.raises(ApiRefused, match="a quota"):
            await owned.apply(owner(), [barn("b")])
    assert not api.deletions
