"""Volumes, with the files of Secrets, ConfigMaps and fields in them."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping

from redbox_api.pod_parts import EmptyDirVolume, FilesVolume, HostPathVolume, PodFile, PodVolume
from redbox_kube.api.objects import Object
from redbox_resourced.translation.api_tokens import is_default_volume
from redbox_resourced.translation.errors import Unsupported, refusals_of
from redbox_resourced.translation.fields.sources import source_of
from redbox_resourced.translation.files.live_sources import FILES, TOKEN, LiveSource, volume_sources
from redbox_resourced.translation.pod_fields import NODE_FIELDS, pod_field, resource_field
from redbox_resourced.translation.quantities import ceil, parse_quantity
from redbox_resourced.translation.references import PodReferences

SECRET_KINDS = frozenset({"secret", TOKEN})


def volumes(pod: Object, references: PodReferences) -> list[PodVolume]:
    found = []
    for given in pod["spec"].get("volumes") or ():
        with refusals_of(f"spec.volumes[{given['name']}]"):
            found.append(_volume(pod, given, references))
    return found


def read_only_volumes(pod: Object, references: PodReferences) -> frozenset[str]:
    """Those that no container may write to, whatever its mount says."""
    claims = [
        (volume["name"], volume.get("persistentVolumeClaim") or {})
        for volume in pod["spec"].get("volumes") or ()
    ]
    return frozenset(
        name
        for name, claim in claims
        if claim.get("readOnly") or claim.get("claimName") in references.read_only_claims
    )


def _volume(pod: Object, given: Object, references: PodReferences) -> PodVolume:
    name = given["name"]
    field = f"spec.volumes[{name}]"
    match source_of(given, field):
        case "emptyDir", empty:
            return PodVolume(name=name, empty_dir=_empty_dir(empty, field))
        case "hostPath", host_path:
            kind = host_path.get("type") or ""
            with refusals_of(f"{field}.hostPath"):
                return PodVolume(name=name, host_path=HostPathVolume(path=host_path["path"], type=kind))
        case "persistentVolumeClaim", claim:
            path = references.claims.get(claim["claimName"])
            if path is None:
                raise Unsupported(f"{field}: the claim {claim['claimName']} has no path on Slurm's nodes")
            return PodVolume(name=name, host_path=HostPathVolume(path=path, type="Directory"))
        case kind, _ if kind in FILES:
            return PodVolume(name=name, files=_files_volume(pod, given, references, field))
        case _:
            raise Unsupported(f"{field}: it names no source that this version has")


def _empty_dir(given: Object, field: str) -> EmptyDirVolume:
    """As for kubelets, 0 is not a limit."""
    limit = ceil(parse_quantity(given.get("sizeLimit") or "0", f"{field}.emptyDir.sizeLimit"))
    return EmptyDirVolume(in_memory=given.get("medium") == "Memory", size_limit=limit or None)


def _files_volume(pod: Object, given: Object, references: PodReferences, field: str) -> FilesVolume:
    sources = list(volume_sources(given, field))
    if is_default_volume(given) and not references.tokens:
        sources = [source for source in sources if source.kind != TOKEN]
    files: dict[str, PodFile] = {}
    for source in sources:
        for file in source_files(pod, source, references, field):
            files[file.path] = file  # of two with one path the later counts, as for kubelets
    secret = any(source.kind in SECRET_KINDS for source in sources)
    return FilesVolume(files=list(files.values()), secret=secret)


def source_files(pod: Object, source: LiveSource, references: PodReferences, field: str) -> Iterator[PodFile]:
    """Those that one source brings. `pod` counts for the downward API only. Raises Unsupported."""
    for file in _files(pod, source.kind, source.source, references, source.mode, field):
        references.budget.spend(file.content)
        yield file.model_copy(update={"source": source.number})


def _files(  # noqa: PLR0917
    pod: Object, kind: str, source: Object, references: PodReferences, mode: int, field: str
) -> Iterator[PodFile]:
    match kind:
        case "secret":
            yield from _chosen(references.secret(source.get("name") or ""), source, mode, field)
        case "configMap":
            yield from _chosen(references.config_map(source.get("name") or ""), source, mode, field)
        case "downwardAPI":
            yield from _written(pod, source.get("items") or (), mode, references, f"{field}.downwardAPI")
        case "serviceAccountToken":
            yield _file(source["path"], _token(source, references, field).encode(), mode)
        case _:
            raise Unsupported(f"{field}: it names no source that this version has")


def _token(source: Object, references: PodReferences, field: str) -> str:
    token = references.tokens.get(source.get("audience") or "")
    if token is None:
        raise Unsupported(
            f"{field}.projected: pods of this Slurm cluster get no API token: leave out serviceAccountToken, "
            "or ask its administrator for pods.apiTokens"
        )
    return token


def _chosen(values: Mapping[str, bytes], source: Object, mode: int, field: str) -> Iterator[PodFile]:
    if not source.get("items"):
        for key in sorted(values):
            yield _file(key, values[key], mode)
    for item in source.get("items") or ():
        if item["key"] in values:
            yield _file(item["path"], values[item["key"]], _mode(item, mode))
        elif not source.get("optional"):
            raise Unsupported(f"{field}: {source.get('name')} has no key {item['key']!r}")


def _written(
    pod: Object, items: Iterable[Object], mode: int, references: PodReferences, field: str
) -> Iterator[PodFile]:
    for item in items:
        where = f"{field}.items[{item['path']}]"
        kind, chosen = source_of(item, where)
        if kind == "resourceFieldRef":
            text = resource_field(pod, chosen, f"{where}.resourceFieldRef", references.default_limits)
        elif kind == "fieldRef":
            if chosen["fieldPath"] in NODE_FIELDS:
                raise Unsupported(f"{where}.fieldRef: {chosen['fieldPath']} is for variables, not for files")
            text = pod_field(pod, chosen["fieldPath"], f"{where}.fieldRef")
        else:
            raise Unsupported(f"{where}: it names no field")
        yield _file(item["path"], text.encode(), _mode(item, mode))


def _mode(item: Object, default: int) -> int:
    given = item.get("mode")
    return default if given is None else int(given)


def _file(path: str, content: bytes, mode: int) -> PodFile:
    return PodFile(path=path, content=base64.b64encode(content), mode=mode)
