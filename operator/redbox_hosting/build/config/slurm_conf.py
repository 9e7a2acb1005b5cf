"""slurm.conf and the files next to it, from the objects of one cluster. Pure.

The text has a marker that slurmctld shows in its licenses: only the configuration that it runs has it.
A dynamic node needs no line: it registers with the feature that is its NodeSet's name.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from redbox_hosting.api import names
from redbox_hosting.api.controller import ControllerSpec
from redbox_hosting.api.fields import Profile, Sharing
from redbox_hosting.api.nodeset import NodeSet
from redbox_hosting.build.config.gres_conf import gres_conf
from redbox_hosting.build.config.partitions import RemovedPartition, node_set_names, partition_lines
from redbox_hosting.build.config.releases import SlurmRelease
from redbox_shared.hosted_settings.keys import (
    CONFIG_FILES,
    NOT_LISTED,
    REFUSED_FILES,
    RELIED_ON,
    SLURM_KEYS,
)
from redbox_shared.hosted_settings.lines import ConfLine, ConfRefusal, include_lines, read_lines

MARKER = "redbox-config-"
FILE_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
SCRIPT_KEYS = ("Prolog", "Epilog", "PrologSlurmctld", "EpilogSlurmctld")
EPILOG = "0-redbox-epilog"
"""Slurm runs epilogs in the reverse order of their names: those of users still find the job's files."""
EPILOG_TEXT = """\
#!/bin/sh
# Ends what a job left on its worker. Slurm drains a node whose epilog fails.
export SHARED_NODE_SETS={shared}
/usr/bin/timeout 60 /usr/local/bin/redbox-slurmpod epilog
exit 0
"""
NOT_SCRIPTS = (".conf", ".json", ".jwks", ".key", ".lua", ".yaml")
"""Endings of files that Slurm reads itself."""
JWT_KEY = "/etc/slurm/jwt.key"
JWKS = "/etc/slurm/jwks.json"
MOST_JOBS = 10_000
"""Slurm's default. The operator reads them all, within the JOB_LIMITS of its client."""
NODE_STATES_KEPT = "DRAIN,DOWN,FAIL,MAINTENANCE"
PLAIN = {
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/none",
    "JobAcctGatherType": "jobacct_gather/linux",
}
PRIVILEGED = {
    "ProctrackType": "proctrack/cgroup",
    "TaskPlugin": "task/cgroup,task/affinity",
    "JobAcctGatherType": "jobacct_gather/cgroup",
}
CGROUP_CONF = {
    Profile.PLAIN: "CgroupPlugin=disabled\n",
    Profile.PRIVILEGED: "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\nConstrainCores=yes\n"
    "ConstrainRAMSpace=yes\nConstrainDevices=yes\n",
}
DEFAULTS = {
    "DefMemPerCPU": "128",
    "KillWait": "30",
    "MpiDefault": "none",
    "PropagateResourceLimits": "NONE",
    "SchedulerParameters": "batch_sched_delay=0,sched_min_interval=0",
    "SelectTypeParameters": "CR_Core_Memory",
    "SlurmctldTimeout": "60",
    "TreeWidth": "64",
}
"""Settings that users may replace."""


@dataclass(frozen=True, slots=True)
class SlurmdbdAddress:
    """The slurmdbd that slurmctld reports to."""

    host: str
    port: int = names.PORT_SLURMDBD


@dataclass(frozen=True, slots=True)
class ClusterInputs:
    """All that a cluster's configuration is made from.

    `config_files` and `scripts` are the contents of the users' ConfigMaps; `scripts` by key of slurm.conf.
    """

    name: str
    namespace: str
    spec: ControllerSpec
    release: SlurmRelease
    node_sets: tuple[NodeSet, ...] = ()
    accounting: SlurmdbdAddress | None = None
    removed_partitions: tuple[RemovedPartition, ...] = ()
    config_files: Mapping[str, str] = field(default_factory=dict)
    scripts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def profile(self) -> Profile:
        return self.spec.redbox.profile


@dataclass(frozen=True, slots=True)
class ClusterFiles:
    """The files of /etc/slurm but for the keys, their hash, and what was refused.

    A configuration with refusals is not to be applied: a line that is left out may be what matters.
    """

    files: Mapping[str, str]
    digest: str
    partitions: tuple[ConfLine, ...]
    refused: tuple[ConfRefusal, ...]

    @property
    def marker(self) -> str:
        """The license that slurmctld has once it runs this configuration."""
        return MARKER + self.digest


def cluster_files(inputs: ClusterInputs) -> ClusterFiles:
    """Every file of the cluster's configuration."""
    user = read_lines(inputs.spec.extra_conf or "", SLURM_KEYS)
    node_sets = sorted(inputs.node_sets, key=lambda node_set: node_set.name)
    partitions = partition_lines(
        inputs.spec.redbox.partitions,
        (line for line in user.lines if line.key == "PartitionName"),
        node_sets,
        inputs.removed_partitions,
    )
    own_sets = [line for line in user.lines if line.key == "NodeSet"]
    settings = _settings(inputs) | _user_settings(dict(user.settings))
    lines = [f"{key}={value}" for key, value in settings.items()]
    own_scripts = [("Epilog", EPILOG, _epilog(node_sets))] if inputs.profile is Profile.PLAIN else []
    scripts, refused_scripts = _scripts(own_scripts, inputs.scripts)
    lines += [f"{key}={_script_path(key, name)}" for key, name, _ in scripts]
    lines += [str(line) for line in _node_sets(node_sets, own_sets, partitions.lines)]
    lines += [str(line) for line in partitions.lines]
    given, refused_files = _config_files(inputs.config_files)
    files = {
        "cgroup.conf": CGROUP_CONF[inputs.profile],
        "gres.conf": gres_conf(node_sets, inputs.spec.redbox.max_nodes),
        **given,
        **{name: text for _, name, text in scripts},
    }
    text = "".join(f"{line}\n" for line in lines)
    licenses = dict(user.settings).get("Licenses", "").strip('"')
    digest = _digest(files | {"slurm.conf": text + licenses})
    licenses = ",".join(filter(None, [licenses, f"{MARKER}{digest}:1"]))
    return ClusterFiles(
        files={"slurm.conf": f"{text}Licenses={licenses}\n", **files},
        digest=digest,
        partitions=partitions.lines,
        refused=(*user.refused, *partitions.refused, *refused_scripts, *refused_files),
    )


def are_of(files: Mapping[str, str], digest: str) -> bool:
    """Whether these are the files with this digest: in a ConfigMap, others may have written them."""
    marked = rf"(.*\n)Licenses=(?:([^\n]+),)?{re.escape(MARKER + digest)}:1\n"
    found = re.fullmatch(marked, files.get("slurm.conf", ""), re.DOTALL)
    return found is not None and _digest({**files, "slurm.conf": found[1] + (found[2] or "")}) == digest


def client_conf(
    cluster_name: str,
    host: str,
    port: int,
    accounting: SlurmdbdAddress | None = None,
    *,
    has_munge: bool = False,
) -> str:
    """slurm.conf for clients of a slurmctld that runs elsewhere."""
    auth = (
        {"AuthType": "auth/munge", "CredType": "cred/munge"}
        if has_munge
        else {"AuthType": "auth/slurm", "CredType": "cred/slurm", "AuthInfo": "use_client_ids"}
    )
    settings = {
        "ClusterName": cluster_name,
        "SlurmctldHost": host,
        "SlurmctldPort": str(port),
        **auth,
        "AuthAltTypes": "auth/jwt",
        **(_accounting(accounting) if accounting else {}),
    }
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _settings(inputs: ClusterInputs) -> dict[str, str]:
    """Those that the operator relies on, then those that users may replace."""
    host = names.controller_host(inputs.name)
    service = names.controller_name(inputs.name)
    auth = f"jwt_key={JWT_KEY}" + (f",jwks={JWKS}" if inputs.spec.jwks_key_ref else "")
    relied_on = {
        "ClusterName": inputs.spec.name_in_slurm(inputs.namespace, inputs.name),
        "SlurmctldHost": f"{host}({host}.{service}.{inputs.namespace})",
        "SlurmctldAddr": f"{names.controller_address(inputs.name)}.{inputs.namespace}",
        "SlurmctldPort": str(names.PORT_SLURMCTLD),
        "SlurmdPort": str(names.PORT_SLURMD),
        "SlurmUser": "slurm",
        "SlurmdUser": "root",
        "AuthType": "auth/slurm",
        "CredType": "cred/slurm",
        "AuthInfo": "use_client_ids",
        "AuthAltTypes": "auth/jwt",
        "AuthAltParameters": auth,
        "StateSaveLocation": "/var/spool/slurmctld",
        "SlurmdSpoolDir": "/var/spool/slurmd",
        "SlurmctldPidFile": "/run/slurmctld/slurmctld.pid",
        "SlurmdPidFile": "/run/slurm/slurmd.pid",
        "LogTimeFormat": "iso8601_ms,format_stderr",
        "SlurmctldSyslogDebug": "quiet",
        "SlurmdSyslogDebug": "quiet",
        "SlurmctldParameters": "enable_configless",
        "SlurmdParameters": "config_overrides",
        "MaxJobCount": str(MOST_JOBS),
        "MaxNodeCount": str(inputs.spec.redbox.max_nodes),
        "ReturnToService": "1",
        "SlurmdTimeout": "60",
        "SuspendExcStates": NODE_STATES_KEPT,
        "SelectType": "select/cons_tres",
        "GresTypes": "gpu",
        "MailProg": "/bin/true",
        "LaunchParameters": "enable_nss_slurm",
        "SrunPortRange": "60001-61100",
        **(PRIVILEGED if inputs.profile is Profile.PRIVILEGED else PLAIN),
        **_accounting(inputs.accounting),
    }
    if inputs.spec.metrics and inputs.spec.metrics.enabled and inputs.release.has_metrics:
        relied_on["MetricsType"] = "metrics/openmetrics"
    return relied_on | DEFAULTS


def _accounting(address: SlurmdbdAddress | None) -> dict[str, str]:
    if address is None:
        return {"AccountingStorageType": "accounting_storage/none"}
    return {
        "AccountingStorageType": "accounting_storage/slurmdbd",
        "AccountingStorageHost": address.host,
        "AccountingStoragePort": str(address.port),
    }


def _user_settings(settings: dict[str, str]) -> dict[str, str]:
    """Licenses come with the marker, and launches keep what the operator relies on."""
    made = {key: value for key, value in settings.items() if key != "Licenses"}
    if "LaunchParameters" in made:
        given = made["LaunchParameters"].strip('"')
        made["LaunchParameters"] = f"enable_nss_slurm,{given}"
    return made


def _node_sets(
    node_sets: Iterable[NodeSet], own: Iterable[ConfLine], partitions: Iterable[ConfLine]
) -> list[ConfLine]:
    """Of each NodeSet, and of those that are gone while a partition still names them."""
    user = {line.name: line for line in own}
    wanted = {node_set.name for node_set in node_sets}
    wanted |= {name for line in partitions for name in node_set_names(line)} - user.keys()
    return [ConfLine("NodeSet", name, (("Feature", name),)) for name in sorted(wanted)] + [
        line for name, line in user.items() if name not in wanted
    ]


def _epilog(node_sets: Iterable[NodeSet]) -> str:
    shared = [each.node_prefix for each in node_sets if each.spec.redbox.sharing is Sharing.SHARED]
    return EPILOG_TEXT.format(shared=shlex.quote(" ".join(shared)))


def _scripts(
    own: Iterable[tuple[str, str, str]], scripts: Mapping[str, Mapping[str, str]]
) -> tuple[list[tuple[str, str, str]], list[ConfRefusal]]:
    """Key of slurm.conf, file name and text of each script."""
    made = list(own)
    refused = []
    taken = {name for _, name, _ in made}
    for key in SCRIPT_KEYS:
        for name, text in sorted(scripts.get(key, {}).items()):
            if not FILE_NAME.fullmatch(name) or name.endswith(NOT_SCRIPTS):
                refused.append(ConfRefusal(f"{key} {name[:100]!r}", "it is not a name for a script"))
            elif name in taken:
                refused.append(ConfRefusal(f"{key} {name}", "another script has this name"))
            else:
                made.append((key, name, text))
            taken.add(name)
    return made, refused


def _script_path(key: str, name: str) -> str:
    """Scripts of workers come with the configuration if they have no path; those of slurmctld need one."""
    return f"/etc/slurm/{name}" if key.endswith("Slurmctld") else name


def _config_files(given: Mapping[str, str]) -> tuple[dict[str, str], list[ConfRefusal]]:
    made, refused = {}, []
    for name, text in sorted(given.items()):
        if name not in CONFIG_FILES:
            why = REFUSED_FILES.get(name, NOT_LISTED.replace("keys", "files"))
            refused.append(ConfRefusal(f"file {name[:100]!r}", why))
        elif included := [*include_lines(text)]:
            refused.append(ConfRefusal(f"file {name!r}: {included[0]}", RELIED_ON))
        else:
            made[name] = text
    return made, refused


def _digest(files: Mapping[str, str]) -> str:
    """Long enough that nobody makes other files with the same one."""
    hashed = hashlib.sha256()
    for name, text in sorted(files.items()):
        for part in (name.encode(), text.encode("utf-8", "replace")):
            hashed.update(len(part).to_bytes(8) + part)
    return hashed.hexdigest()[:32]
