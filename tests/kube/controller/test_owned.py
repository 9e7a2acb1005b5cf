"""Owned objects are as desired, and nothing is written where nothing differs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from prometheus_client import Counter

from redbox_kube.api.kinds import CONFIG_MAP, POD
from redbox_kube.api.objects import ApiRefused, Object, ResourcePath
from redbox_kube.controller.owned import DesiredObject, NotOurs, projection, revision
from redbox_kube.status.status_writer import DeletionForbidden, StatusWriter
from tests.kube.controller.owner import at, config_map, owned_objects, owner, shown
from tests.kube.fakes import FakeApiServer


async def test_what_is_desired_is_created_and_what_no_longer_is_goes() -> None:
    api = FakeApiServer()
    async with owned_objects(api) as owned:
        did = await owned.apply(owner(), [config_map("a"), config_map("b")])
        assert did == "ConfigMap a created, ConfigMap b created"
        await shown(owned, api)
        assert await owned.apply(owner(), [config_map("b")]) == "ConfigMap a deleted"
    assert api.names("ConfigMap") == ["b"]
    (reference,) = api.objects[at("b")]["metadata"]["ownerReferences"]
    assert reference == {
        "apiVersion": "example.dev/v1",
        "kind": "Farm",
        "name": "cows",
        "uid": "farm-1",
        "controller": True,
    }


async def test_nothing_is_asked_where_nothing_differs() -> None:
    api = FakeApiServer()
    async with owned_objects(api) as owned:
        await owned.apply(owner(), [config_map()])
        api.put(at("a"), api.objects[at("a")], status={"somebody": "else's"})
        await shown(owned, api)
        asked = len(api.asked)
        assert await owned.apply(owner(), [config_map()]) == ""
    assert len(api.asked) == asked


async def test_only_a_change_of_what_is_desired_is_written() -> None:
    api = FakeApiServer()
    async with owned_objects(api) as owned:
        await owned.apply(owner(), [config_map()])
        await shown(owned, api)
        assert await owned.apply(owner(), [config_map(text="muh")]) == "ConfigMap a changed"
        await shown(owned, api)
        api.put(at("a"), {**api.objects[at("a")], "data": {"text": "by hand"}})
        await shown(owned, api)
        assert await owned.apply(owner(), [config_map(text="muh")]) == "ConfigMap a changed"
    assert api.objects[at("a")]["data"] == {"text": "muh"}


class Normalizing(FakeApiServer):
    """Stores 1000m as 1, as the API server does with quantities."""

    async def apply(self, where: ResourcePath, body: Object, **options: Any) -> Object:
        written = await super().apply(where, body, **options)
        return self.put(where, {**written, "data": {"cpu": "1"}})


async def test_fields_that_the_api_server_stores_in_another_form_are_written_once() -> None:
    api = Normalizing()
    desired = DesiredObject(CONFIG_MAP, "a", {"data": {"cpu": "1000m"}})
    async with owned_objects(api) as owned:
        await owned.apply(owner(), [desired])
        await shown(owned, api)
        assert await owned.apply(owner(), [desired]) == ""


async def test_parts_are_pruned_each_for_itself() -> None:
    api = FakeApiServer()
    async with owned_objects(api) as owned:
        await owned.apply(owner(), [config_map("a")], part="one")
        await owned.create(owner(), DesiredObject(POD, "worker", {"spec": {}}))
        await shown(owned, api)
        await owned.apply(owner(), [], part="two")
        assert api.names("ConfigMap") == ["a"]
        await owned.apply(owner(), [], part="one")
    assert api.names("ConfigMap") == []
    assert api.names("Pod") == ["worker"]


async def test_an_object_moves_to_another_part_and_stays() -> None:
    api = FakeApiServer()
    async with owned_objects(api) as owned:
        await owned.apply(owner(), [config_map("a")], part="one")
        await shown(owned, api)
        assert await owned.apply(owner(), [config_map("a")], part="two") == "ConfigMap a changed"
        assert await owned.apply(owner(), [], part="one") == ""  # the watch still shows the old part
        await shown(owned, api)
        assert await owned.apply(owner(), [], part="one") == ""
        assert await owned.apply(owner(), [], part="two") == "ConfigMap a deleted"


class Listing(FakeApiServer):
    """The items of its lists have no apiVersion and kind, as those of the API server."""

    async def pages(self, *which: Any, **more: Any) -> AsyncIterator[tuple[list[Object], str]]:
        async for page, version in super().pages(*which, **more):
            yield [{"metadata": each["metadata"], "data": each["data"]} for each in page], version


async def test_a_builder_may_write_whole_manifests() -> None:
    api = Listing()
    whole = DesiredObject(CONFIG_MAP, "a", {"apiVersion": "v1", "kind": "ConfigMap", "data": {"text": "moo"}})
    async with owned_objects(api) as owned:
        await owned.apply(owner(), [whole])
    async with owned_objects(api) as restarted:
        assert await restarted.apply(owner(), [whole]) == ""


async def test_an_object_that_somebody_created_anew_is_not_taken_over() -> None:
    api = FakeApiServer()
    async with owned_objects(api) as owned:
        await owned.apply(owner(), [config_map("a")])
        await shown(owned, api)
        api.remove(at("a"))
        theirs = api.put(at("a"), data={"text": "mine"})
        with pytest.raises(ApiRefused, match="uid"):  # the watch still shows ours
            await owned.apply(owner(), [config_map("a", text="muh")])
    assert api.objects[at("a")] == theirs


async def test_an_object_of_somebody_else_is_never_written() -> None:
    api = FakeApiServer()
    theirs = api.put(at("a"), data={"text": "mine"})
    async with owned_objects(api) as owned:
        with pytest.raises(NotOurs, match="ConfigMap a exists and does not belong to Farm cows: delete it"):
            await owned.apply(owner(), [config_map("a")])
        with pytest.raises(NotOurs):
            await owned.create(owner(), config_map("a"))
    assert api.objects[at("a")] == theirs


async def test_an_object_of_an_earlier_owner_of_the_name_is_not_taken_over() -> None:
    """The garbage collector deletes it, and the next reconciliation creates another one."""
    api = FakeApiServer()
    async with owned_objects(api) as owned:
        await owned.apply(owner("farm-1"), [config_map()])
        await shown(owned, api)
        with pytest.raises(NotOurs):
            await owned.apply(owner("farm-2"), [config_map()])


async def test_what_is_created_once_is_never_changed() -> None:
    api = FakeApiServer()
    async with owned_objects(api) as owned:
        first = await owned.create(owner(), config_map(text="the key"))
        await shown(owned, api)
        again = await owned.create(owner(), config_map(text="another key"))
        assert again["data"] == first["data"] == {"text": "the key"}
        assert api.asked.count("create ConfigMap") == 1


def test_a_revision_is_that_of_the_content() -> None:
    assert revision({"a": 1, "b": [1]}) == revision({"b": [1], "a": 1}) != revision({"a": 1, "b": [2]})


def test_a_projection_has_only_what_was_wanted() -> None:
    existing = {"spec": {"containers": [{"name": "a", "image": "x", "defaulted": 1}], "more": 2}}
    wanted = {"spec": {"containers": [{"name": "a", "image": "y"}]}}
    assert projection(existing, wanted) == {"spec": {"containers": [{"name": "a", "image": "x"}]}}
    longer = {"spec": {"containers": [{"name": "a"}, {"name": "injected"}]}}
    assert projection(longer, wanted) == longer


async def test_nothing_is_deleted_where_a_newer_release_has_written() -> None:
    api = FakeApiServer()
    writes = Counter("writes", "Writes.", ("kind", "verb"), registry=None)
    writer = StatusWriter(api.client, writes, why_not_delete=lambda namespace: f"{namespace} is newer")
    api.put(at("a"))
    with pytest.raises(DeletionForbidden, match="alice is newer"):
        await writer.delete(at("a"), "")
    assert at("a") in api.objects
