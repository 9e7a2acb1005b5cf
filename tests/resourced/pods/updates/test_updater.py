"""Jobs of pods follow what the pods are made of: each change is read once, and sent once to each pod."""

from __future__ import annotations

import time

from redbox_api.errors import Busy, NotAccepted
from redbox_api.models import Phase, Problem
from redbox_kube.api.objects import ApiRefused
from redbox_resourced.translation.files.live_sources import Inputs, read_inputs
from tests.resourced.pods.factories import pod_job
from tests.resourced.pods.updates.life import Life, config, path, running, until
from tests.resourced.translation.factories import TOKEN_VOLUME

LABELS = {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}


async def test_a_changed_object_is_read_once_for_all_pods_that_mount_it() -> None:
    life = Life()
    life.put("c", a="1")
    life.put("other", b="1")
    for number in range(5):
        life.submit(config(), config("other"), name=f"p{number}")
    async with running(life):
        assert life.updates == []
        life.put("c", a="2", new="3")
        await until(lambda: len(life.updates) == 5)
        await life.quiet()
        assert life.sent == [{"a": "2", "new": "3"}] * 5
        assert {name for name, _ in life.updates} == {f"p{number}" for number in range(5)}
        (source,) = life.updates[0][1].sources
        assert (source.volume, source.source) == ("v-c", 0)
        assert (life.reads("ConfigMap"), life.reads("Pod")) == (1, 0)


async def test_of_a_projected_volume_only_the_changed_source_is_read_and_sent() -> None:
    life = Life()
    life.put("c", a="1")
    life.put("s", "secret", password="old")
    projected = {"sources": [{"configMap": {"name": "c"}}, {"secret": {"name": "s"}}], "defaultMode": 0o400}
    life.submit({"name": "v", "projected": projected})
    async with running(life):
        life.put("s", "secret", password="new")
        await until(lambda: life.updates)
        await life.quiet()
        (source,) = life.updates[0][1].sources
        assert (source.source, [file.mode for file in source.files]) == (1, [0o400])
        assert (life.sent, life.reads("Secret"), life.reads("ConfigMap")) == ([{"password": "new"}], 1, 0)


async def test_what_changed_while_resourced_was_away_is_found_by_the_jobs_row() -> None:
    life = Life()
    life.put("c", a="1")
    life.put("same", b="1")
    life.submit(config(), config("same"))
    life.put("c", a="2")
    async with running(life):
        await until(lambda: life.updates)
        await life.quiet()
        assert (life.sent, life.reads("ConfigMap")) == ([{"a": "2"}], 1)


async def test_a_change_of_metadata_alone_is_read_once_and_not_sent() -> None:
    life = Life()
    life.put("c", a="1")
    life.submit(config())
    async with running(life):
        life.put("c", a="1")  # another resourceVersion
        await until(lambda: life.reads("ConfigMap") == 1)
        for _ in range(3):
            life.show()
        await life.quiet()
        assert (life.updates, life.reads("ConfigMap")) == ([], 1)
        life.put("c", a="2")
        await until(lambda: life.updates)
        assert life.sent == [{"a": "2"}]


async def test_an_immutable_object_is_never_read_again() -> None:
    life = Life()
    life.put("c", immutable=True, a="1")
    life.submit(config())
    async with running(life):
        life.put("c", immutable=True, a="2")
        await life.quiet()
        assert (life.updates, life.reads("ConfigMap")) == ([], 0)


async def test_an_optional_object_that_appears_is_shown_and_vanishes_again() -> None:
    life = Life()
    life.submit(config(optional=True))
    async with running(life):
        life.put("c", a="1")
        await until(lambda: len(life.updates) == 1)
        life.api.remove(path("configMap", "c"))
        await until(lambda: len(life.updates) == 2)
        assert life.sent == [{"a": "1"}, {}]


async def test_a_required_object_that_is_deleted_keeps_its_last_content() -> None:
    life = Life()
    life.put("c", a="1")
    life.submit(config())
    async with running(life):
        life.api.remove(path("configMap", "c"))
        await life.quiet()
        assert (life.updates, life.reads("ConfigMap")) == ([], 0)
        life.put("c", a="again")
        await until(lambda: life.updates)
        assert life.sent == [{"a": "again"}]


async def test_a_required_key_that_is_gone_keeps_the_files_with_an_event_and_no_further_read() -> None:
    life = Life()
    life.put("c", a="1")
    life.submit(config(items=[{"key": "a", "path": "sub/a"}]))
    async with running(life):
        life.put("c", b="1")
        await until(lambda: life.api.events)
        for _ in range(3):
            life.show()
        await life.quiet()
        (event,) = life.api.events
        assert (event["reason"], event["type"]) == ("FailedMount", "Warning")
        assert "has no key 'a'" in event["message"]
        assert (life.updates, life.reads("ConfigMap")) == ([], 1)
        life.put("c", a="2")
        await until(lambda: life.updates)
        assert life.sent == [{"sub/a": "2"}]


async def test_changed_labels_reach_the_files_that_show_them() -> None:
    life = Life()
    life.submit({"name": "v", "downwardAPI": {"items": [LABELS]}})
    async with running(life):
        life.change_pod(labels={"a": "2"})
        await until(lambda: life.updates)
        await life.quiet()
        assert (life.sent, life.reads("Pod")) == ([{"labels": 'a="2"'}], 1)


async def test_a_token_is_renewed_at_four_fifths_of_its_life() -> None:
    life, before = Life(), time.time()
    source = {"serviceAccountToken": {"path": "t", "audience": "vault", "expirationSeconds": 1000}}
    life.submit({"name": "v", "projected": {"sources": [source]}}, TOKEN_VOLUME, tokens=True)
    async with running(life):
        words, _ = read_inputs(life.jobs["train"].pod_inputs or "") or Inputs([], None)
        first, second = words
        assert before + 749 <= int(first[1:]) <= time.time() + 800
        assert int(second[1:]) > int(first[1:]) + 60_000
        life.now = int(first[1:]) - 1
        life.show()
        await life.quiet()
        assert life.updates == []
        life.now = int(first[1:])
        life.show()
        await until(lambda: life.updates)
        assert life.sent == [{"t": "token of alice/default for vault"}]
        assert life.api.token_lifetimes == [1000]


async def test_where_no_token_is_issued_the_old_one_stays_and_an_event_says_so() -> None:
    life = Life()
    life.submit(TOKEN_VOLUME, tokens=True)
    life.api.fail(ApiRefused(403, "denied by policy"), verb="token")
    async with running(life):
        life.now = 4e9
        life.show()
        await until(lambda: life.api.events)
        assert "failed to fetch token: denied by policy" in life.api.events[0]["message"]
        assert life.updates == []


async def test_a_lowered_deadline_is_sent_and_a_later_one_is_not() -> None:
    life = Life()
    life.submit(activeDeadlineSeconds=600)
    async with running(life):
        life.change_pod(activeDeadlineSeconds=900)
        await life.quiet()
        assert life.updates == []
        life.change_pod(activeDeadlineSeconds=60)
        await until(lambda: life.updates)
        assert life.updates[0][1].active_deadline_s == 60
        life.show()
        await life.quiet()
        assert len(life.updates) == 1


async def test_a_red_box_that_cannot_write_is_asked_again_and_an_event_says_why() -> None:
    life = Life()
    life.put("c", a="1")
    life.submit(config())
    life.refusal = Busy(Problem(type="about:blank", title="Busy", status=503, detail="Disk quota exceeded"))
    async with running(life):
        life.put("c", a="2")
        for _ in range(2):
            await life.quiet()
            life.now += 1000
            life.show()
        await until(lambda: life.api.events)
        assert "Disk quota exceeded" in life.api.events[0]["message"]
        life.refusal = None
        life.now += 1000
        life.show()
        await until(lambda: life.updates)
        assert life.sent == [{"a": "2"}]


async def test_what_red_box_never_takes_is_said_at_once() -> None:
    life = Life()
    life.put("c", a="1")
    life.submit(config())
    life.refusal = NotAccepted(Problem(type="about:blank", title="No", status=422, detail="too many bytes"))
    async with running(life):
        life.put("c", a="2")
        await until(lambda: life.api.events)
        assert "too many bytes" in life.api.events[0]["message"]


async def test_a_row_that_was_sent_before_the_update_does_not_bring_it_twice() -> None:
    life = Life()
    life.put("c", a="1")
    life.submit(config())
    async with running(life):
        before = life.jobs["train"]
        life.put("c", a="2")
        await until(lambda: life.updates)
        life.jobs["train"] = before
        life.show()
        await life.quiet()
        assert len(life.updates) == 1


async def test_pods_that_have_ended_or_came_before_updates_cost_nothing() -> None:
    life = Life()
    life.put("c", a="1")
    life.submit(config(), name="ended")
    life.jobs["ended"] = pod_job(Phase.SUCCEEDED, pod_inputs=life.jobs["ended"].pod_inputs)
    life.show("ended")
    life.submit(config(), name="early")
    life.jobs["early"] = pod_job(Phase.RUNNING)
    life.show("early")
    async with running(life):
        life.put("c", a="2")
        await life.quiet()
        assert (life.updates, life.reads("ConfigMap")) == ([], 0)
        assert not any("watch" in asked for asked in life.api.asked)


async def test_no_value_of_a_secret_is_listed_or_watched_and_no_other_namespace() -> None:
    life = Life()
    life.put("s", "secret", password="old")
    life.submit({"name": "v", "secret": {"secretName": "s"}})
    async with running(life):
        watched = [request for request in life.api.requests if request.verb in {"list", "watch"}]
        assert {(request.where.kind.name, request.where.namespace) for request in watched} == {
            ("Secret", "alice")
        }
