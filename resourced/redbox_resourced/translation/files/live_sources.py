"""What of a pod may change while its job exists: sources of its volumes, and its deadline. Pure.

Of ten thousand pods only this is kept: volumes as one text, which pods of one template share. The inputs of a
job are its versions: red-box shows them with the job, so that a change that came while resourced was away is
found without a read. They have a word for each source, in the order of the spec, and one for the deadline:

    x7Hs0a2B.q8Zk31Lp   version and content of a Secret or ConfigMap
    !                   one that is immutable: never read again
    -                   an optional one that does not exist
    Pq4rTT0s            labels and annotations in files of the downward API
    @1796212800         when the token of a service account is renewed
    d600                activeDeadlineSeconds
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from redbox_kube.api.objects import Object
from redbox_resourced.translation.api_tokens import DEFAULT_TOKEN_SOURCES, is_default_volume
from redbox_resourced.translation.errors import Unsupported
from redbox_resourced.translation.fields.sources import source_of
from redbox_resourced.translation.pod_fields import pod_field

DEFAULT_MODE = 0o644
OBJECTS = frozenset({"secret", "configMap"})
TOKEN = "serviceAccountToken"  # noqa: S105 (a field's name)
AUTHORITY = "kube-root-ca.crt"
"""The ConfigMap with the API server's CA that each default token volume names."""
FILES = frozenset({"secret", "configMap", "downwardAPI", "projected"})
CHANGING_FIELDS = ("metadata.labels", "metadata.annotations")
MOST_SOURCES = 200
"""Of a pod: later ones keep the content of the submit."""
LONGEST_VOLUMES = 16 * 1024
"""Of a pod with more in its volumes all files keep the content of the submit."""
IMMUTABLE, ABSENT = "!", "-"
RENEWED = "@"
INPUTS = re.compile(r"(?:(?:@[0-9]{1,10}|[^ @]{0,17}) )*d[0-9]{0,10}")
TEMPLATES_KEPT = 128


class LiveSource(NamedTuple):
    """A source of a volume of files, by its number there."""

    volume: str
    number: int
    kind: str
    source: Object
    mode: int
    """Of files that have none of their own."""

    @property
    def name(self) -> str:
        """Of a Secret or a ConfigMap."""
        return str(self.source.get("name") or "")

    @property
    def is_optional(self) -> bool:
        return bool(self.source.get("optional"))


@dataclass(frozen=True, slots=True)
class LiveParts:
    """What is kept of a pod."""

    volumes: str
    """JSON of those that have such sources, but for the default token volume, whose name is the pod's own."""
    token_volume: str
    """The default token volume."""
    fields: str
    """The version of its labels and annotations, as far as they are in files."""
    deadline_s: int | None


class Inputs(NamedTuple):
    """The versions that a job has."""

    sources: Sequence[str]
    deadline_s: int | None

    def __str__(self) -> str:
        return " ".join((*self.sources, f"d{self.deadline_s or ''}"))


def read_inputs(text: str) -> Inputs | None:
    """None of what is in no such form: a tenant may submit a pod's job with any text, of 4000 digits too."""
    if not INPUTS.fullmatch(text):
        return None
    *sources, deadline = text.split(" ")
    seconds = deadline.removeprefix("d")
    return Inputs(sources, int(seconds) if seconds else None)


def renewal_in(word: str) -> int | None:
    """When the token of this word is renewed."""
    return int(word.removeprefix(RENEWED)) if word.startswith(RENEWED) else None


def volume_sources(given: Object, field: str) -> Iterator[LiveSource]:
    """All sources of a volume of files, as those of a projected one; nothing of another volume."""
    kind, source = source_of(given, field)
    if kind == "secret":
        sources = [(kind, {**source, "name": source.get("secretName")})]
    elif kind == "projected":
        sources = [source_of(each, f"{field}.projected") for each in source.get("sources") or ()]
    elif kind in FILES:
        sources = [(kind, source)]
    else:
        return
    mode = source.get("defaultMode")
    for number, (kind_of_source, each) in enumerate(sources):
        yield LiveSource(
            given["name"], number, kind_of_source, each, DEFAULT_MODE if mode is None else int(mode)
        )


def live_parts(pod: Object) -> LiveParts:
    """Never raises of a pod that the API server has."""
    spec = pod["spec"]
    volumes: list[Object] = []
    token_volume, paths = "", set[str]()
    for volume in spec.get("volumes") or ():
        if not any(volume.get(kind) for kind in FILES):
            continue
        if is_default_volume(volume):
            token_volume = token_volume or str(volume["name"])
        elif any(_is_live(source) for source in _sources_of(volume)):
            volumes.append(volume)
            paths |= {path for source in _sources_of(volume) for path in _changing_paths(source)}
    text = json.dumps(volumes, sort_keys=True) if volumes else ""
    if len(text) > LONGEST_VOLUMES:
        text, paths = "", set()
    deadline = spec.get("activeDeadlineSeconds")
    return LiveParts(
        volumes=sys.intern(text),
        token_volume=token_volume,
        fields=code_of(*(pod_field(pod, path, path) for path in sorted(paths))) if paths else "",
        deadline_s=None if deadline is None else int(deadline),
    )


def live_sources(parts: LiveParts, *, has_tokens: bool) -> Sequence[LiveSource]:
    """In the order of the spec, the default token last."""
    found = [each for each in _parsed(parts.volumes) if has_tokens or each.kind != TOKEN]
    if has_tokens and parts.token_volume:
        found.append(LiveSource(parts.token_volume, 0, TOKEN, DEFAULT_TOKEN_SOURCES[0][TOKEN], DEFAULT_MODE))
    return found[:MOST_SOURCES]


@lru_cache(maxsize=TEMPLATES_KEPT)
def _parsed(volumes: str) -> tuple[LiveSource, ...]:
    listed = json.loads(volumes) if volumes else ()
    return tuple(source for volume in listed for source in _sources_of(volume) if _is_live(source))


def _sources_of(volume: Object) -> list[LiveSource]:
    try:
        return list(volume_sources(volume, ""))
    except Unsupported:  # the translation refuses the pod
        return []


def _is_live(source: LiveSource) -> bool:
    if source.kind in OBJECTS:
        return source.name not in {"", AUTHORITY}
    return source.kind == TOKEN or any(_changing_paths(source))


def _changing_paths(source: LiveSource) -> Iterator[str]:
    for item in (source.source.get("items") or ()) if source.kind == "downwardAPI" else ():
        path = (item.get("fieldRef") or {}).get("fieldPath") or ""
        if path.startswith(CHANGING_FIELDS):
            yield path


def version_of(metadata: Mapping[str, object]) -> str:
    """Of an object, by its metadata."""
    return code_of(str(metadata.get("uid")), str(metadata.get("resourceVersion")))


def object_word(body: Object | None) -> str:
    """Of a Secret or ConfigMap that was read."""
    if body is None:
        return ABSENT
    if body.get("immutable"):
        return IMMUTABLE
    content = json.dumps([body.get("data") or {}, body.get("binaryData") or {}], sort_keys=True)
    return f"{version_of(body.get('metadata') or {})}.{code_of(content)}"


def code_of(*texts: str) -> str:
    """48 bits: as many as tell one version of an object from the next."""
    digest = hashlib.blake2b("\0".join(texts).encode("utf-8", "replace"), digest_size=6).digest()
    return base64.urlsafe_b64encode(digest).decode()
