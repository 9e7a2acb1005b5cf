"""The Secrets and ConfigMaps of namespaces in which pods mount them: their versions, and values on request.

One watch of metadata for each kind and namespace: no value of a Secret is in it, and an object that nobody
mounts costs a few bytes. A changed one is read once, however many pods mount it: its values are kept for as
long as it takes to send them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from redbox_kube.api.informer import Informer, Place
from redbox_kube.api.kinds import CONFIG_MAP, SECRET
from redbox_kube.api.objects import Object, ObjectClient, ResourcePath
from redbox_resourced.pods.pod_references import values_of
from redbox_resourced.translation.files.live_sources import ABSENT, object_word, version_of
from redbox_resourced.translation.limits import BYTES_OF_A_VALUE

KINDS = {"secret": SECRET, "configMap": CONFIG_MAP}
IDLE_S = 600.0
"""After the last pod of a namespace that mounts any."""
KEPT_S = 20.0
MOST_KEPT_BYTES = 32 * 1024 * 1024
"""Of values that are being sent; beyond that an object is read for each pod."""


class ObjectPlace(NamedTuple):
    """A Secret or a ConfigMap; `kind` is the field of a volume."""

    kind: str
    namespace: str
    name: str

    @property
    def path(self) -> ResourcePath:
        return ResourcePath(KINDS[self.kind], self.name, self.namespace)


class ObjectRead(NamedTuple):
    """An object as it was read: its word, and its values; no values where it does not exist."""

    word: str
    body: Object | None


Watched = tuple[str, str]
"""Kind and namespace."""


@dataclass
class _Watch:
    informer: Informer
    task: asyncio.Task[None]
    wanted_at: float


class WatchedObjects:
    """Of all pods. `changed` is called with what has another version, or was listed."""

    def __init__(
        self,
        objects: ObjectClient,
        changed: Callable[[ObjectPlace], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._objects = objects
        self._changed = changed
        self._now = now
        self._watches: dict[Watched, _Watch] = {}
        self._contents: dict[ObjectPlace, str] = {}
        """The words of objects whose last change was read."""
        self._reads: dict[ObjectPlace, asyncio.Task[ObjectRead]] = {}
        self._kept_bytes = 0

    def keep(self, wanted: set[Watched], group: asyncio.TaskGroup) -> None:
        """Watch these, and those that were wanted not long ago."""
        now = self._now()
        for watched in wanted:
            if watched not in self._watches:
                self._watches[watched] = self._begin(watched, group, now)
            self._watches[watched].wanted_at = now
        for watched, watch in list(self._watches.items()):
            if now - watch.wanted_at > IDLE_S:
                watch.task.cancel()
                del self._watches[watched]
                gone = [place for place in self._contents if (place.kind, place.namespace) == watched]
                for place in gone:
                    del self._contents[place]

    def version(self, place: ObjectPlace) -> str | None:
        """Its version, or ABSENT; None where it is not known."""
        watch = self._watches.get((place.kind, place.namespace))
        if watch is None or not watch.informer.listed.is_set():
            return None
        return str(watch.informer.items.get((place.namespace, place.name), ABSENT))

    def has_changed(self, place: ObjectPlace, word: str) -> bool:
        """Whether its content may be another than this word stands for, as far as no read is needed."""
        version = self.version(place)
        if version is None or version == word.partition(".")[0]:
            return False
        read_version, _, content = self._contents.get(place, "").partition(".")
        return not (content and (read_version, content) == (version, word.partition(".")[2]))

    async def read(self, place: ObjectPlace) -> ObjectRead:
        """Those who ask at the same time share one read."""
        task = self._reads.get(place)
        if task is None:
            task = self._reads[place] = asyncio.create_task(self._read(place))
            task.add_done_callback(lambda done: self._keep(place, done))
        return await asyncio.shield(task)

    async def _read(self, place: ObjectPlace) -> ObjectRead:
        body = await self._objects.get(place.path)
        found = None if body is None else values_of(body)
        word = self._contents[place] = await asyncio.to_thread(object_word, found)
        return ObjectRead(word, found)

    def _keep(self, place: ObjectPlace, done: asyncio.Task[ObjectRead]) -> None:
        """For a while, if its read succeeded and there is room."""
        failed = done.cancelled() or done.exception() is not None
        size = 0 if failed else _size_of(done.result().body)
        if failed or self._kept_bytes + size > MOST_KEPT_BYTES:
            self._remove(place, done)
            return
        self._kept_bytes += size
        asyncio.get_running_loop().call_later(KEPT_S, self._drop, place, done, size)

    def _drop(self, place: ObjectPlace, done: asyncio.Task[ObjectRead], size: int) -> None:
        self._kept_bytes -= size
        self._remove(place, done)

    def _remove(self, place: ObjectPlace, done: asyncio.Task[ObjectRead]) -> None:
        if self._reads.get(place) is done:
            del self._reads[place]

    def _begin(self, watched: Watched, group: asyncio.TaskGroup, now: float) -> _Watch:
        kind, namespace = watched
        informer = Informer(
            self._objects,
            ResourcePath(KINDS[kind], namespace=namespace),
            reduced=lambda body: version_of(body["metadata"]),
            metadata=True,
            on_change=lambda places: self._note(kind, places),
        )
        return _Watch(informer, group.create_task(informer.run()), now)

    def _note(self, kind: str, places: set[Place]) -> None:
        for namespace, name in places:
            place = ObjectPlace(kind, namespace, name)
            task = self._reads.get(place)
            if task is not None and not _is_version(task, self.version(place)):
                del self._reads[place]  # its bytes are counted until their time is up
            self._changed(place)


def _is_version(read: asyncio.Task[ObjectRead], version: str | None) -> bool:
    """Not as long as it is not done: it may have been answered before the change."""
    if not read.done() or read.cancelled() or read.exception() is not None:
        return False
    body = read.result().body
    return version == (ABSENT if body is None else version_of(body["metadata"]))


def _size_of(body: Object | None) -> int:
    parts = [(body or {}).get(part) or {} for part in ("data", "binaryData")]
    return sum(len(key) + len(value) + BYTES_OF_A_VALUE for part in parts for key, value in part.items())
