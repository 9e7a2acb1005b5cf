"""The bed's Kubernetes as its administrator has it: kubectl, and the API server without kubectl.

What a test shows of kubectl is done by kubectl. What only prepares, looks at or removes objects goes to the
API server over one connection that is kept: to start kubectl takes 0.04 s of CPU, and to create or apply with
it twice as much, since it loads the schemas of all fields.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3
import yaml
from kubernetes import config

from redbox_bed import delivery
from redbox_bed.core.errors import BedError

ANSWERS_WITHIN_S = 60.0
GONE_WITHIN_S = 90.0
PAUSE_S = 0.1
DISCOVERY = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"
AS_KUBECTL = {"fieldManager": "kubectl", "fieldValidation": "Strict"}
Object = dict[str, Any]


@dataclass(frozen=True)
class Kind:
    """Where the API server serves the objects of a kind."""

    version: str
    plural: str
    is_namespaced: bool

    def path(self, name: str = "", namespace: str = "") -> str:
        root = "apis" if "/" in self.version else "api"
        place = f"namespaces/{namespace}/" if namespace and self.is_namespaced else ""
        return f"/{root}/{self.version}/{place}{self.plural}/{name}".rstrip("/")


class Kubernetes(delivery.Kubernetes):
    """kubectl when it is called; the methods do without."""

    def get(self, kind: str, name: str, namespace: str = "") -> Object:
        """The object; nothing where there is none."""
        return self._at(self._kind(kind).path(name, namespace))

    def states(self, kind: str, name: str, namespace: str, within_s: float) -> Iterator[Object]:
        """The object now and after each change until the time is over; nothing while it is not there.

        By a watch: it is seen at once, and a look each 0.2 s costs the API server as much as ten changes.
        """
        deadline = time.monotonic() + within_s
        path, query = self._kind(kind).path(namespace=namespace), {"fieldSelector": f"metadata.name={name}"}
        while (left_s := deadline - time.monotonic()) > 0:
            listed = json.loads(self._api.ask("GET", f"{path}?{urlencode(query)}"))
            yield next(iter(listed["items"]), {})
            since = {"watch": "true", "resourceVersion": listed["metadata"]["resourceVersion"]}
            for event in self._api.follow(f"{path}?{urlencode(query | since)}", left_s):
                yield {} if event["type"] == "DELETED" else event["object"]
            time.sleep(PAUSE_S)

    def list(self, kind: str, namespace: str = "", *, labels: str = "", fields: str = "") -> list[Object]:
        """Those of the namespace, or of all, that these selectors choose."""
        query = urlencode({"labelSelector": labels, "fieldSelector": fields})
        answer = self._api.ask("GET", f"{self._kind(kind).path(namespace=namespace)}?{query}")
        return list(json.loads(answer)["items"])

    @contextmanager
    def applied(self, namespace: str, *objects: Object) -> Iterator[None]:
        """Objects that are there as long as the block lasts."""
        document, there = yaml.safe_dump_all(objects), f"--namespace={namespace}"
        self(there, "apply", "--filename=-", stdin=document)
        try:
            yield
        finally:
            self(there, "delete", "--filename=-", stdin=document)

    def raw(self, path: str) -> str:
        """What `kubectl get --raw` prints."""
        return self._api.ask("GET", path).decode()

    def create(self, body: Object, **query: str) -> Object:
        """The object as the API server has made it."""
        kind, _, namespace = self._place(body)
        path = f"{kind.path(namespace=namespace)}?{urlencode(AS_KUBECTL | query)}"
        return dict(json.loads(self._api.ask("POST", path, body)))

    def apply(self, manifests: str) -> None:
        """Server-side, as the one who owns what is said; JSON or YAML, of one object or more."""
        query = urlencode({**AS_KUBECTL, "force": "true"})
        for body in filter(None, yaml.load_all(manifests, yaml.CSafeLoader)):
            kind, name, namespace = self._place(body)
            self._api.ask("PATCH", f"{kind.path(name, namespace)}?{query}", body, content=APPLY)

    def patch(
        self, kind: str, name: str, change: Object, namespace: str = "", subresource: str = "", **query: str
    ) -> None:
        """Merge this into the object."""
        path = f"{self._kind(kind).path(name, namespace)}/{subresource}".rstrip("/")
        self._api.ask("PATCH", f"{path}?{urlencode(AS_KUBECTL | query)}", change, content=MERGE)

    def delete(
        self, kind: str, *names: str, namespace: str = "", wait: bool = True, **options: object
    ) -> None:
        """Delete those that exist, and wait until they are gone; options are those of the API."""
        paths, left = [self._kind(kind).path(name, namespace) for name in names], {}
        for path in paths:
            body = {"propagationPolicy": "Background", **options}
            if answer := self._api.ask("DELETE", path, body, may_be_missing=True):
                said = json.loads(answer)
                left[path] = said.get("metadata", {}).get("uid") or said["details"]["uid"]
        deadline = time.monotonic() + GONE_WITHIN_S
        while wait and (left := {path: uid for path, uid in left.items() if _uid(self._at(path)) == uid}):
            if time.monotonic() > deadline:
                raise BedError(f"not gone within {GONE_WITHIN_S:.0f} s: {', '.join(left)}")
            time.sleep(PAUSE_S)

    @property
    def _api(self) -> ApiServer:
        return _api_server(self.kubeconfig, self.kubeconfig.stat().st_mtime_ns)

    def _at(self, path: str) -> Object:
        return dict(json.loads(self._api.ask("GET", path, may_be_missing=True) or "{}"))

    def _kind(self, name: str) -> Kind:
        """By a name that kubectl takes: of the kind, of the resource, or a short one."""
        return self._api.kind(name.lower())

    def _place(self, body: Object) -> tuple[Kind, str, str]:
        """Kind, name and namespace of an object."""
        metadata = body["metadata"]
        kind = self._api.kind(f"{body['apiVersion']} {body['kind']}")
        return kind, metadata.get("name", ""), metadata.get("namespace", "default")


class ApiServer:
    """A connection that is kept, and which kinds are served."""

    def __init__(self, kubeconfig: Path) -> None:
        self._client = config.new_client_from_config(config_file=str(kubeconfig))  # type: ignore[no-untyped-call]
        self._kinds: dict[str, Kind] = {}

    def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        content: str = "application/json",
        accept: str = "*/*",
        may_be_missing: bool = False,
    ) -> bytes:
        """The answer; nothing where what may be missing is. Raises BedError for a refusal."""
        send = self._client.rest_client.pool_manager.request
        url, headers = f"{self._client.configuration.host}{path}", {"Content-Type": content, "Accept": accept}
        sent = None if body is None else json.dumps(body)
        try:
            answer = send(method, url, body=sent, headers=headers, timeout=ANSWERS_WITHIN_S)
        except urllib3.exceptions.HTTPError as error:
            raise BedError(f"the API server does not answer {method} {path}: {error}") from error
        if answer.status == HTTPStatus.NOT_FOUND and may_be_missing:
            return b""
        if answer.status >= HTTPStatus.BAD_REQUEST:
            raise BedError(f"the API server refuses {method} {path}: {_reason(answer.data)}")
        return bytes(answer.data)

    def follow(self, path: str, within_s: float) -> Iterator[Object]:
        """The events of a watch as they come, until it ends: then all is to be looked at again."""
        url, within = f"{self._client.configuration.host}{path}", urllib3.Timeout(ANSWERS_WITHIN_S, within_s)
        send = self._client.rest_client.pool_manager.request
        with suppress(urllib3.exceptions.HTTPError):
            answer = send("GET", url, timeout=within, preload_content=False)
            try:
                if answer.status != HTTPStatus.OK:
                    return
                for event in map(json.loads, answer):
                    if event["type"] == "ERROR":
                        return
                    yield event
            finally:
                answer.close()

    def kind(self, name: str) -> Kind:
        """By one of its names; those are read again where none is it."""
        if name not in self._kinds:
            self._kinds = dict(self._served())
        if name not in self._kinds:
            raise BedError(f"the API server serves no {name}")
        return self._kinds[name]

    def _served(self) -> Iterator[tuple[str, Kind]]:
        """Each kind by all its names; the last of a name counts, so the first group's come last."""
        groups: list[Object] = []
        for root in ("/api", "/apis"):
            groups += json.loads(self.ask("GET", root, accept=DISCOVERY))["items"]
        for group in reversed(groups):
            for version in reversed(group["versions"]):
                place = "/".join(filter(None, (group["metadata"].get("name"), version["version"])))
                for resource in version["resources"]:
                    kind = Kind(place, resource["resource"], resource["scope"] == "Namespaced")
                    name = resource["responseKind"]["kind"]
                    yield f"{place} {name}", kind
                    whole = f"{kind.plural}.{group['metadata'].get('name', '')}"
                    names = (name.lower(), kind.plural, whole, *resource.get("shortNames", ()))
                    yield from ((other, kind) for other in names)


@cache
def _api_server(kubeconfig: Path, _written_ns: int) -> ApiServer:
    """One for each kubeconfig as it was written: another bed has other keys."""
    return ApiServer(kubeconfig)


def _reason(answer: bytes) -> str:
    """The message of a Status, or what came in its place."""
    try:
        return str(json.loads(answer)["message"])
    except (ValueError, LookupError, TypeError):
        return answer[:1000].decode(errors="replace")


def _uid(body: Object) -> object:
    return body.get("metadata", {}).get("uid")
