"""From what the command line asks for to a SlurmJob. Pure.

A script's #SBATCH lines stay in the script: red-box passes it to sbatch, which reads them, and a field takes
precedence over a line as an option does. Only the job's name is read from them, because it is the SlurmJob's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, NamedTuple

from kubectl_slurm.errors import BadUsage
from kubectl_slurm.sbatch.requested import Requested
from redbox_shared.sbatch_options import FIELDS, read_directives

Object = dict[str, Any]

API_VERSION = "redbox.dev/v1alpha1"
LARGEST_BATCH = 200_000  # characters that a SlurmJob holds
LARGEST_CONFIGMAP = 900_000
SCRIPT_KEY = "script.sh"
LONGEST_STEM = 48  # the API server appends five characters, and the pod's name four more
RESOURCES = {
    "nodes": ("nodes", r"[1-9][0-9]{0,4}"),
    "ntasks": ("tasks", r"[1-9][0-9]{0,6}"),
    "ntasks-per-node": ("tasksPerNode", r"[1-9][0-9]{0,4}"),
    "cpus-per-task": ("cpusPerTask", r"[1-9][0-9]{0,4}"),
    "mem": ("memPerNode", r"[0-9]{1,12}[KMGT]?"),
    "mem-per-cpu": ("memPerCpu", r"[0-9]{1,12}[KMGT]?"),
    "gpus-per-node": ("gpusPerNode", r"([A-Za-z0-9_.-]{1,64}:)?[0-9]{1,6}"),
    "gres": ("gres", r"[A-Za-z0-9_.:,()/=-]{1,512}"),
    "time": ("time", r"(UNLIMITED|[0-9]+|[0-9]+:[0-5]?[0-9](:[0-5]?[0-9])?|[0-9]+-[0-9]+(:[0-9]+){0,2})"),
}
"""Options with a field, where the value has the field's form; others go to `options`, for sbatch to judge."""
NUMBERS = frozenset({"nodes", "tasks", "tasksPerNode", "cpusPerTask"})
NAMED_ELSEWHERE = frozenset({"dependency", "hold"})
DEPENDENCY_TYPES = ("afterok", "afternotok", "afterany", "after", "aftercorr")
OPTIONS = {
    **{field: name for name, field in FIELDS.items()},
    **{field: name for name, (field, _) in RESOURCES.items()},
    **dict.fromkeys(("dependsOn", "dependsOnJobs", "dependsOnAny"), "dependency"),
}
"""By the field what is typed for it."""
IN_CAMEL_CASE = "|".join(field for field in OPTIONS if field != field.lower())
FIELD = re.compile(rf"\bspec\.(?:resources\.)?([A-Za-z]+)|\b(?:resources\.)?({IN_CAMEL_CASE})\b")
OBJECT_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
JOB_ID = re.compile(r"[0-9]{1,10}(_[0-9]{1,10})?")
ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,255}")
NO_SHEBANG = (
    "{0} does not look like a batch script: its first line must begin with #!, followed by an interpreter, "
    "such as #!/bin/bash"
)


@dataclass(frozen=True)
class BatchScript:
    """A script, and the name that it came by."""

    text: str
    source: str


def wrapped(command: str) -> BatchScript:
    """As sbatch --wrap makes it."""
    return BatchScript(f"#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{command}\n", "wrap")


def read_script(data: bytes, source: str) -> BatchScript:
    """The text of a script that sbatch would take."""
    if not data.strip():
        raise BadUsage(f"{source} is empty: a batch script begins with #!, such as #!/bin/bash")
    if b"\0" in data:
        raise BadUsage(f"{source} is not text: it has a NUL byte. To run a program use --wrap")
    if not data.startswith(b"#!"):
        raise BadUsage(NO_SHEBANG.format(source))
    if b"\r\n" in data:
        raise BadUsage(
            f"{source} has DOS line breaks, which sbatch rejects: convert it by `dos2unix {source}`"
        )
    if len(data) > LARGEST_CONFIGMAP:
        raise BadUsage(
            f"{source} is too large: a script of a SlurmJob has at most {LARGEST_CONFIGMAP:,} bytes; put its "
            "data on the cluster's storage"
        )
    try:
        return BatchScript(data.decode(), source)
    except UnicodeDecodeError as error:
        raise BadUsage(f"{source} is not UTF-8 (byte {error.start}): convert it by iconv") from error


@dataclass(frozen=True)
class Manifests:
    """The SlurmJob, and the ConfigMap of a script that is too long for it."""

    slurmjob: Object
    config_map: Object | None = None


def manifests_of(
    requested: Requested, script: BatchScript | None, names_of_ids: dict[str, str] | None = None
) -> Manifests:
    """What is created; `names_of_ids` are the SlurmJobs of the Slurm job ids in --dependency."""
    options = dict(requested.sbatch)
    name = requested.last("name")
    stem = stem_of(options.get("job-name") or _name_in(script) or _source_of(requested, script))
    metadata: Object = {"name": name} if name else {"generateName": f"{stem}-"}
    spec: Object = {}
    config_map = None
    if cluster := requested.last("cluster") or requested.last("clusters"):
        spec["cluster"] = cluster
    if endpoint := requested.last("endpoint"):
        spec["endpoint"] = endpoint
    if cluster and endpoint:
        raise BadUsage("a job has one of --cluster and --endpoint")
    if script is None:
        spec["container"] = _container(requested)
    elif len(script.text) <= LARGEST_BATCH:
        spec["batch"] = script.text
    else:
        config_map = _config_map(metadata, script)
        reference = {"name": config_map["metadata"].get("name", ""), "key": SCRIPT_KEY}
        spec["batchFrom"] = {"configMapKeyRef": reference}
    if not (options.get("chdir") or "/").startswith(("/", "{home}")):
        raise BadUsage(
            f"--chdir: {options['chdir']!r} is not an absolute path: name a folder of the Slurm cluster; "
            "'{home}/run', in quotes, is below your home there"
        )
    spec |= _fields(options)
    spec |= _of_this_command(requested, options, names_of_ids or {})
    slurmjob = {"apiVersion": API_VERSION, "kind": "SlurmJob", "metadata": metadata, "spec": spec}
    return Manifests(slurmjob, config_map)


def dependency_ids(value: str | None) -> Iterator[str]:
    """The Slurm job ids among what --dependency names."""
    for dependency in _dependencies(value):
        if dependency.is_job_id and dependency.name.isdecimal():  # a task of an array is no SlurmJob
            yield dependency.name


def in_options(text: str) -> str:
    """A sentence about fields of a SlurmJob, with the options that were typed for them."""

    def option(found: re.Match[str]) -> str:
        field = found[1] or found[2]
        return f"--{OPTIONS[field]}" if field in OPTIONS else found[0]

    return FIELD.sub(option, text)


def stem_of(name: str) -> str:
    """A name as Kubernetes takes it."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return plain[:LONGEST_STEM].strip("-") or "job"


def _name_in(script: BatchScript | None) -> str | None:
    found = [line.value for line in read_directives(script.text) if line.name == "job-name"] if script else []
    return found[-1] if found else None


def _source_of(requested: Requested, script: BatchScript | None) -> str:
    if script is not None:
        return PurePosixPath(script.source).stem
    return PurePosixPath(requested.last("container") or "").name.partition(":")[0].removesuffix(".sif")


def _container(requested: Requested) -> Object:
    container: Object = {"image": requested.last("container")}
    if requested.arguments:
        container["command"], container["args"] = requested.arguments[:1], requested.arguments[1:]
    return {key: value for key, value in container.items() if value}


def _config_map(metadata: Object, script: BatchScript) -> Object:
    """Its name is the SlurmJob's, or made by the API server like the SlurmJob's."""
    own = {key: f"{value.removesuffix('-')}-script" for key, value in metadata.items()}
    if "generateName" in own:
        own["generateName"] += "-"
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": own, "data": {SCRIPT_KEY: script.text}}


def _fields(options: dict[str, str | None]) -> Object:
    """Fields of the spec, and `options` for what has none."""
    spec: Object = {}
    resources: Object = {}
    others: list[str] = []
    for name, value in options.items():
        if name in NAMED_ELSEWHERE:
            continue
        if name in FIELDS:
            spec[FIELDS[name]] = value
        elif name in RESOURCES and re.fullmatch(RESOURCES[name][1], value or ""):
            field = RESOURCES[name][0]
            resources[field] = int(value or 0) if field in NUMBERS else value
        else:
            others.append(f"--{name}" if value is None else f"--{name}={value}")
    if resources:
        spec["resources"] = resources
    if others:
        spec["options"] = others
    return spec


def _of_this_command(
    requested: Requested, options: dict[str, str | None], names_of_ids: dict[str, str]
) -> Object:
    spec: Object = {}
    if requested.arguments and requested.last("container") is None:
        spec["arguments"] = requested.arguments
    if "hold" in requested.flags:
        spec["hold"] = True
    spec |= _depends(options.get("dependency") or "", names_of_ids)
    if env := _environment(requested):
        spec["env"] = [{"name": name, "value": value} for name, value in env.items()]
    if account := requested.last("service-account"):
        spec["serviceAccountName"] = account
    if limit := requested.last("backoff-limit"):
        if not limit.isdecimal():
            raise BadUsage(f"--backoff-limit is a number of retries, not {limit!r}")
        spec["backoffLimit"] = int(limit)
    if collected := requested.own.get("collect"):
        spec["results"] = _results(collected)
    return spec


def _depends(value: str, names_of_ids: dict[str, str]) -> Object:
    """The fields for --dependency."""
    spec: Object = {}
    for kind, name, is_job_id in _dependencies(value):
        field, other = "dependsOn", {"name": names_of_ids.get(name, name)}
        if is_job_id and name not in names_of_ids:
            field, other = "dependsOnJobs", {"jobID": name}
        spec.setdefault(field, []).append({**other, **({} if kind == "afterok" else {"type": kind})})
    if "?" in value:
        spec["dependsOnAny"] = True
        if others := spec.get("dependsOnJobs"):
            raise BadUsage(f"--dependency: with ? each is a SlurmJob, and {others[0]['jobID']} is none")
    return spec


class _NamedDependency(NamedTuple):
    kind: str
    name: str
    is_job_id: bool  # Slurm's, and not the name of a SlurmJob


def _dependencies(value: str | None) -> Iterator[_NamedDependency]:
    """Each of `afterok:a:b,afterany:12`, or of `afterok:a?afterok:b`."""
    if not value:
        return
    if "?" in value and "," in value:
        raise BadUsage("--dependency: all by a comma, or any by ?, not both")
    for part in re.split("[,?]", value):
        kind, *names = part.split(":")
        if kind not in DEPENDENCY_TYPES or not names or not all(names):
            raise BadUsage(
                f"--dependency: {part!r} is not TYPE:NAME with one of {', '.join(DEPENDENCY_TYPES)} and the "
                "name of a SlurmJob"
            )
        yield from (_dependency(kind, name) for name in names)


def _dependency(kind: str, text: str) -> _NamedDependency:
    """By an id, or by a name that a SlurmJob can have: for any other the job would wait for ever."""
    if JOB_ID.fullmatch(text):
        return _NamedDependency(kind, text, is_job_id=True)
    name = text.removeprefix("slurmjob.redbox.dev/").removeprefix("slurmjob/")
    if OBJECT_NAME.fullmatch(name):
        return _NamedDependency(kind, name, is_job_id=False)
    why = "it is neither a SlurmJob's name nor a Slurm job id"
    if "+" in name:
        why = "a SlurmJob cannot wait for minutes after a start"
    raise BadUsage(f"--dependency: {text!r}: {why}; name a SlurmJob or a Slurm job id")


def _environment(requested: Requested) -> dict[str, str]:
    exported = [word for given in requested.own.get("export", ()) for word in given.split(",")]
    words = [word for word in exported if word not in {"", "NONE", "NIL"}] + requested.own.get("env", [])
    env: dict[str, str] = {}
    for word in words:
        name, has_value, value = word.partition("=")
        if name == "ALL" and not has_value:
            raise BadUsage(
                "--export=ALL: the environment of this machine is not the cluster's: name what the job "
                "needs, --export=NAME=VALUE"
            )
        if not has_value or not ENV_NAME.fullmatch(name):
            raise BadUsage(f"--export: {word!r} is not NAME=VALUE")
        env[name] = value
    return env


def _results(collected: Sequence[str]) -> Object:
    paths, claims = [], set()
    for given in collected:
        path, separator, claim = given.rpartition("=")
        if not separator or not path or not claim:
            raise BadUsage(f"--collect: {given!r} is not PATH=PVC, as in --collect 'plots/*.svg=results'")
        paths.append(path)
        claims.add(claim)
    if len(claims) > 1:
        raise BadUsage(
            f"--collect: a SlurmJob has one volume for its results, not {', '.join(sorted(claims))}"
        )
    return {"from": paths, "volume": {"persistentVolumeClaim": {"claimName": claims.pop()}}}
