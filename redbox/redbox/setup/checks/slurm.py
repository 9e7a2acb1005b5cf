"""Checks of Slurm: commands, their answers, and settings that hide jobs or nodes from red-box."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from redbox.agents.program.guard import DEFAULT_PATH
from redbox.settings import RedboxSettings
from redbox.setup.checks.findings import Finding, fault, note, warning
from redbox.setup.checks.machine import ProcessOutput, SlurmHost
from redbox.setup.install.layout import Layout
from redbox.slurm.cluster_queries import HIDES_NODES
from redbox.slurm.commands import sacct, scontrol

TOOLS = ("sbatch", "squeue", "scancel", "scontrol", "sinfo", "sacct", "sacctmgr", "srun")
OLDEST_RELEASE = (20, 11)
TESTED_RELEASES = ("22.05", "24.11", "26.05")
"""Real clusters of them run in red-box's tests; docs/administrators/slurm-releases.md: what each lacks."""
DEADLINE_S = 60.0
PATH_SETTING = re.compile(r"^\s*path\s*=\s*(\S+)", re.MULTILINE)
SHORTEST_MIN_JOB_AGE_S = 60
CHECK_SLURMDBD = "check that slurmdbd runs: sacctmgr show cluster"
HIDES_JOBS = frozenset({"jobs", "all"})


def check_slurm(host: SlurmHost, settings: RedboxSettings, layout: Layout) -> Iterator[Finding]:
    directories = _directories(host, layout)
    paths = {name: host.find_tool(name, directories) for name in TOOLS}
    for name, path in paths.items():
        if path is None:
            cure = (
                f"install Slurm's client commands, or add their directory to path in {layout.agent_settings}"
            )
            yield fault(f"{name} is in none of {directories} of {host.where}", cure)
    tools = SlurmTools(host, settings.slurm.environment, paths)
    if paths["scontrol"] is None:
        return
    shown = tools.run(scontrol.configuration_argv())
    if shown.code != 0:
        yield fault(
            f"slurmctld does not answer: {shown.summary}", "see scontrol ping and systemctl status munge"
        )
        return
    configuration = scontrol.read_configuration(shown.stdout)
    yield from check_configuration(configuration)
    if configuration.accounting and paths["sacct"] is not None:
        yield from _check_accounting(tools)
    if configuration.accounting and paths["sacctmgr"] is not None:
        yield from _check_database(tools)
    if not settings.slurm.allow_federation:
        yield from _check_federation(tools)


@dataclass(frozen=True, slots=True)
class SlurmTools:
    """Slurm's commands on their host."""

    host: SlurmHost
    environment: Mapping[str, str]
    paths: Mapping[str, str | None]

    def run(self, command: Sequence[str]) -> ProcessOutput:
        """Run a command that begins with a tool's name."""
        argv = [self.paths[command[0]] or command[0], *command[1:]]
        return self.host.run(argv, DEADLINE_S, self.environment)


def _directories(host: SlurmHost, layout: Layout) -> str:
    """The directories in which agents look for commands."""
    content = host.read(layout.agent_settings) or b""
    match = PATH_SETTING.search(content.decode(errors="replace"))
    return match[1] if match else DEFAULT_PATH


def check_configuration(configuration: scontrol.SlurmConfiguration) -> Iterator[Finding]:
    yield from _check_release(configuration.version)
    if configuration.private_data & HIDES_JOBS:
        yield warning(
            "PrivateData hides jobs from the account redbox: red-box polls through each user's agent",
            "remove jobs from PrivateData in slurm.conf",
        )
    if configuration.private_data & HIDES_NODES:
        yield warning(
            "PrivateData hides nodes or partitions: without AdminLevel=Operator red-box shows no partition",
            "run sacctmgr modify user redbox set AdminLevel=Operator",
        )
    if configuration.stores_environment:
        yield warning(
            "AccountingStoreFlags has job_env or job_script: Slurm's database stores the secrets of jobs",
            "remove both from AccountingStoreFlags in slurm.conf, or warn your users",
        )
    if not configuration.enforces_partition_limits:
        yield note(
            "EnforcePartLimits is off: a job over its partition's limits is accepted, and pends for ever",
            "set EnforcePartLimits=ALL in slurm.conf: Slurm then rejects it at once, with the reason",
        )
    if not configuration.accounting:
        yield from _check_job_age(configuration)


def _check_release(version: str) -> Iterator[Finding]:
    """Warn of a release that is older or newer than all that red-box was tested with."""
    release, tested = _release_of(version), [_release_of(name) for name in TESTED_RELEASES]
    names = ", ".join(TESTED_RELEASES)
    if not release or release in tested:
        return
    if release < OLDEST_RELEASE:
        yield fault(f"Slurm {version} is older than 20.11", "upgrade Slurm to 20.11 or newer")
    elif release > tested[-1]:
        yield warning(
            f"Slurm {version} is newer than the releases that red-box was tested with: {names}",
            "upgrade red-box; if there is no newer one, submit a test job of each kind before your users do",
        )
    elif release < tested[0]:
        yield warning(
            f"Slurm {version} is older than the releases that red-box was tested with: {names}",
            "upgrade Slurm, or submit a test job of each kind before your users do",
        )
    else:
        yield note(f"Slurm {version} itself was not tested: red-box was tested with {names}")


def _release_of(version: str) -> tuple[int, ...]:
    """24.11 of 24.11.5; empty where the version is not shown."""
    return tuple(int(part) for part in re.findall(r"[0-9]+", version)[:2])


def _check_job_age(configuration: scontrol.SlurmConfiguration) -> Iterator[Finding]:
    yield warning(
        "Slurm keeps no accounting: the result of a job can be read only while squeue still shows it",
        "set AccountingStorageType=accounting_storage/slurmdbd in slurm.conf",
    )
    age = configuration.min_job_age_s
    if age is not None and age < SHORTEST_MIN_JOB_AGE_S:
        yield fault(
            f"MinJobAge is {age} s and there is no accounting: red-box misses the end of jobs",
            "set MinJobAge=300 in slurm.conf",
        )


def _check_accounting(tools: SlurmTools) -> Iterator[Finding]:
    listed = tools.run(sacct.field_names_argv())
    fields = set(sacct.read_field_names(listed.stdout, (*sacct.FIELDS, *sacct.TEXTS)))
    if listed.code != 0 or not fields:
        yield fault(f"sacct does not answer: {listed.summary}", CHECK_SLURMDBD)
        return
    if missing := sorted(sacct.NEEDED - fields):
        yield fault(f"sacct has no field {', '.join(missing)}", "upgrade Slurm to 20.11 or newer")
    for name, since in sacct.LATE.items():
        if name not in fields:
            yield note(f"sacct has no field {name} before Slurm {since}: red-box works without it")
    queried = tools.run(["sacct", "--allocations", "--noheader", "--jobs=1", "--format=JobID"])
    if queried.code != 0:
        yield fault(f"sacct does not answer: {queried.summary}", CHECK_SLURMDBD)


def _check_database(tools: SlurmTools) -> Iterator[Finding]:
    shown = tools.run(["sacctmgr", "--readonly", "show", "configuration"])
    match = re.search(r"^PrivateData\s*=\s*(.*)$", shown.stdout, re.MULTILINE)
    if match and set(match[1].lower().replace(" ", "").split(",")) & HIDES_JOBS:
        yield warning(
            "slurmdbd's PrivateData hides jobs from the account redbox",
            "run sacctmgr modify user redbox set AdminLevel=Operator, "
            "or remove jobs from PrivateData in slurmdbd.conf",
        )


def _check_federation(tools: SlurmTools) -> Iterator[Finding]:
    shown = tools.run(scontrol.federation_argv())
    name = scontrol.read_federation(shown.stdout) if shown.code == 0 else None
    if name is not None:
        yield fault(
            f"this cluster is in the federation {name}: jobs may move to clusters that red-box does not read",
            "remove it from the federation, or set slurm.allow_federation: true",
        )
