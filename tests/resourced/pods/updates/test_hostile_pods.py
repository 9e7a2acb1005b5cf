"""What one tenant writes costs the others nothing: neither the service nor their updates."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from redbox_api.models import Phase
from redbox_api.pod_parts import PodFile
from redbox_kube.api.objects import ApiUnreachable
from redbox_resourced.pods import pod_request
from redbox_resourced.pods.updates import changes
from redbox_resourced.pods.updates import updater as updater_module
from redbox_resourced.pods.updates.changes import PodChanges
from redbox_resourced.translation.files.volumes import source_files
from tests.resourced.pods.factories import pod_job
from tests.resourced.pods.updates.life import Life, config, path, running, until
from tests.resourced.translation.factories import TOKEN_VOLUME

MANY_KEYS: dict[str, Any] = {f"k{number}": "" for number in range(4097)}


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Grows each time a pod's sources are looked at."""
    times: list[object] = []
    original = PodChanges.due

    def counted(*args: Any) -> list[int]:
        times.append(args)
        return original(*args)

    monkeypatch.setattr(PodChanges, "due", counted)
    return times


@pytest.mark.parametrize("renewal", ["9" * 4000, "9" * 11, "x", ""])
async def test_inputs_of_any_form_leave_the_updates_of_other_pods_alone(renewal: str) -> None:
    life = Life()
    life.put("c", a="1")
    life.submit(config())
    life.submit(config(), TOKEN_VOLUME, name="hostile", tokens=True)
    (word, _, _) = (life.jobs["hostile"].pod_inputs or "").split(" ")
    life.jobs["hostile"] = pod_job(Phase.RUNNING, pod_inputs=f"{word} @{renewal} d")
    async with running(life):
        life.show("hostile")
        await life.quiet()
        life.put("c", a="2")
        await until(lambda: life.updates)
        assert [name for name, _ in life.updates] == ["train"]


async def test_a_renewal_of_the_past_is_not_tried_for_ever_where_pods_get_no_tokens(
    looked: list[object],
) -> None:
    life = Life(token_namespaces=())
    life.submit(TOKEN_VOLUME, tokens=True)
    life.now = 4e9
    async with running(life):
        life.show()
        await life.quiet()
        assert (life.updates, len(looked) <= 2) == ([], True)


async def test_a_defect_with_one_pod_is_tried_again_and_others_go_on() -> None:
    life = Life()
    life.put("c", a="1")
    life.submit(config())
    life.submit(config(), name="broken", nodeName="hpc2.debug")
    async with running(life):
        connection = life.connections.pop("hpc2.debug")  # so that a KeyError is raised
        life.put("c", a="2")
        await until(lambda: life.updates)
        await life.quiet()
        assert [name for name, _ in life.updates] == ["train"]
        life.connections["hpc2.debug"] = connection
        life.now += 1000
        life.show("broken")
        await until(lambda: len(life.updates) == 2)


async def test_a_pod_is_forgotten_where_it_was_indexed_whatever_its_words_became() -> None:
    life = Life()
    life.put("c", a="1")
    life.submit(config(), name="gone")
    life.submit(config())
    async with running(life):
        life.put("c", immutable=True, a="2")
        await until(lambda: len(life.updates) == 2)
        life.show("gone")
        life.delete("gone")
        life.show()
        life.api.remove(path("configMap", "c"))
        life.put("other", a="1")
        life.submit(config("other"), name="later")
        await life.quiet()
        life.put("other", a="2")
        await until(lambda: len(life.updates) == 3)


async def test_sources_of_many_values_are_made_a_few_at_a_time_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    life, made, threads = Life(), [0], set[int]()
    original = source_files

    def counted(*args: Any) -> Iterator[PodFile]:
        threads.add(threading.get_ident())
        for file in original(*args):
            made[0] += 1
            yield file

    monkeypatch.setattr(changes, "source_files", counted)
    monkeypatch.setattr(updater_module, "EVERY_S", 60.0)  # so that there is one update
    life.put("c", a="1")
    projected = {"sources": [{"configMap": {"name": "c"}}] * 200}
    life.submit({"name": "v", "projected": projected})
    async with running(life):
        life.put("c", **dict(list(MANY_KEYS.items())[:4096]))
        await until(lambda: life.updates)
        await life.quiet()
        ((_, update),) = life.updates
        assert 0 < len(update.sources) < 8
        assert made[0] < 100_000  # twice, since a large one is made again when it is its turn
        assert threading.get_ident() not in threads


async def test_of_a_burst_of_changes_sources_are_looked_at_once(
    monkeypatch: pytest.MonkeyPatch, looked: list[object]
) -> None:
    life = Life()
    life.put("c", a="1")
    life.submit(config())
    async with running(life):
        monkeypatch.setattr(updater_module, "SETTLE_S", 1.0)
        for number in range(50):
            life.put("c", a=f"{number}")
        await until(lambda: life.updates)
        assert life.sent == [{"a": "49"}]
        assert len(looked) < 10


async def test_a_source_that_red_box_cannot_take_does_not_keep_the_others() -> None:
    life = Life()
    for name in ("many", "large", "good"):
        life.put(name, a="1")
    items = [{"key": "a", "path": f"p{number}"} for number in range(6)]
    life.submit(config("many"), config("large", items=items), config("good"))
    async with running(life):
        life.put("many", **MANY_KEYS)
        life.put("large", a="x" * 1024 * 1024)
        life.put("good", a="2")
        await until(lambda: life.updates)
        await life.quiet()
        assert life.sent == [{"a": "2"}]
        messages = " ".join(event["message"] for event in life.api.events)
        assert "spec.volumes[v-many].files: there are too many: write at most 4096" in messages
        assert "spec.volumes[v-large]: its files have more than 5 MiB" in messages


async def test_a_source_that_red_box_refuses_does_not_keep_the_others() -> None:
    life = Life()
    life.put("bad", a="1")
    life.put("good", a="1")
    life.submit(config("bad"), config("good"))
    life.refused_volume = "v-bad"
    async with running(life):
        life.put("bad", a="2")
        life.put("good", a="2")
        await until(lambda: life.updates)
        await life.quiet()
        assert life.sent == [{"a": "2"}]
        (event,) = life.api.events
        assert 'MountVolume.SetUp failed for volume "v-bad" : No: Its files are too many' in event["message"]
        life.refused_volume = ""
        life.put("bad", a="3")
        await until(lambda: len(life.updates) == 2)


async def test_a_red_box_that_hangs_holds_up_no_other_cluster() -> None:
    life = Life()
    life.put("c", a="1")
    for number in range(updater_module.OF_A_NAMESPACE + 1):
        life.submit(config(), name=f"hung{number}")
    life.hung = "hpc1.debug"
    async with running(life):
        life.put("c", a="2")
        await until(lambda: life.waiting == updater_module.OF_A_NAMESPACE)
        life.submit(config(), name="elsewhere", nodeName="hpc2.debug")
        life.put("c", a="3")
        await until(lambda: life.updates)
        assert [name for name, _ in life.updates] == ["elsewhere"]


async def test_large_updates_are_in_memory_a_few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(updater_module, "OF_A_NAMESPACE", 8)
    life = Life()
    life.put("c", a="1")
    for number in range(8):
        life.submit(config(), name=f"p{number}")
    life.hung = "hpc1.debug"
    async with running(life):
        life.put("c", a="x" * 2 * pod_request.LARGE)
        await until(lambda: life.waiting == pod_request.LARGE_OF_A_NAMESPACE)
        await asyncio.sleep(0.2)
        assert life.waiting == pod_request.LARGE_OF_A_NAMESPACE


async def test_nothing_is_kept_of_pods_that_failed_and_are_gone() -> None:
    life = Life()
    life.put("c", a="1")
    life.submit(config())
    async with running(life):
        life.api.fail(ApiUnreachable("no answer"), verb="get", kind="ConfigMap")
        life.put("c", a="2")
        await until(lambda: life.updater.failing)
        life.delete()
        assert not life.updater.failing
