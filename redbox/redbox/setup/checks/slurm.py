"""Checks of Slurm as red-box sees it: tools, answers, and settings that make it see less."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from redbox.agents.program.guard import DEFAULT_PATH
from redbox.settings import Settings
from redbox.setup.checks.findings import Finding, fault, note, warning
from redbox.setup.checks.machine import Machine, Ran
from redbox.setup.install.layout import Layout
from redbox.slurm.cluster_queries import HIDES_NODES
from redbox.slurm.commands import sacct, scontrol

TOOLS = ("sbatch", "squeue", "scancel", "scontrol", "sinfo", "sacct", "sacctmgr", "srun")
OLDEST = (20, 11)
DEADLINE_S = 60.0
PATH_SETTING = re.compile(r"^\s*path\s*=\s*(\S+)", re.MULTILINE)
YOUNGEST_FORGOTTEN_S = 60
HIDING = frozenset({"jobs", "all"})


def check_slurm(machine: Machine, settings: Settings, layout: Layout) -> Iterator[Finding]:
    """Ask Slurm, once for each thing that red-box will ask for."""
    if settings.workload_manager != "slurm" or settings.agents.transport == "ssh":
        return
    directories = _directories(machine, layout)
    tools = {name: machine.find_tool(name, directories) for name in TOOLS}
    for name, place in tools.items():
        if place is None:
            cure = f"install Slurm's client, or add its directory to path in {layout.agent_settings}"
            yield fault(f"{name} is in none of {directories}", cure)
    asking = Asking(machine, settings.slurm.environment, tools)
    if tools["scontrol"] is None:
        return
    shown = asking.ask(scontrol.configuration_argv())
    if shown.code != 0:
        yield fault(f"slurmctld does not answer: {shown.words}", "scontrol ping; systemctl status munge")
        return
    configuration = scontrol.read_configuration(shown.stdout)
    yield from judge_configuration(configuration)
    if configuration.accounting and tools["sacct"] is not None:
        yield from _check_accounting(asking)
    if configuration.accounting and tools["sacctmgr"] is not None:
        yield from _check_database(asking)
    if not settings.slurm.allow_federation:
        yield from _check_federation(asking)


@dataclass(frozen=True, slots=True)
class Asking:
    """Slurm's commands on this machine."""

    machine: Machine
    environment: Mapping[str, str]
    tools: Mapping[str, str | None]

    def ask(self, command: Sequence[str]) -> Ran:
        """Run a command that begins with a tool's bare name."""
        argv = [self.tools[command[0]] or command[0], *command[1:]]
        return self.machine.run(argv, DEADLINE_S, self.environment)


def _directories(machine: Machine, layout: Layout) -> str:
    """Where agents look for tools."""
    content = machine.read(layout.agent_settings) or b""
    found = PATH_SETTING.search(content.decode(errors="replace"))
    return found[1] if found else DEFAULT_PATH


def judge_configuration(configuration: scontrol.SlurmConfiguration) -> Iterator[Finding]:
    """What slurm.conf says that changes what red-box can promise."""
    release = tuple(int(part) for part in re.findall(r"[0-9]+", configuration.version)[:2])
    if release and release < OLDEST:
        yield fault(f"Slurm {configuration.version} is older than 20.11", "red-box needs 20.11 or newer")
    if configuration.private_data & HIDING:
        yield warning(
            "PrivateData hides jobs from the account redbox: it polls through each user's own agent",
            "one call for all needs a PrivateData without jobs",
        )
    if configuration.private_data & HIDES_NODES:
        yield warning(
            "PrivateData hides nodes or partitions: no partition is shown unless redbox is an operator",
            "sacctmgr modify user redbox set AdminLevel=Operator",
        )
    if configuration.stores_environment:
        yield warning(
            "AccountingStoreFlags has job_env or job_script: jobs' secrets are kept in the database",
            "take them out of AccountingStoreFlags, or tell your users",
        )
    if not configuration.enforces_partition_limits:
        yield note(
            "EnforcePartLimits is off: a job over its partition's limits is accepted, and pends for ever",
            "EnforcePartLimits=ALL refuses it at once, with the reason",
        )
    if not configuration.accounting:
        yield from _judge_memory(configuration)


def _judge_memory(configuration: scontrol.SlurmConfiguration) -> Iterator[Finding]:
    yield warning(
        "Slurm keeps no accounting: what became of a job is known only while squeue still shows it",
        "AccountingStorageType=accounting_storage/slurmdbd",
    )
    age = configuration.min_job_age_s
    if age is not None and age < YOUNGEST_FORGOTTEN_S:
        yield fault(
            f"MinJobAge is {age} s and there is no accounting: jobs are forgotten before their end is seen",
            "MinJobAge=300",
        )


def _check_accounting(asking: Asking) -> Iterator[Finding]:
    listed = asking.ask(sacct.field_names_argv())
    known = set(sacct.read_field_names(listed.stdout))
    if listed.code != 0 or not known:
        yield fault(f"sacct does not answer: {listed.words}", "is slurmdbd up? see sacctmgr show cluster")
        return
    if missing := sorted(sacct.NEEDED - known):
        yield fault(f"sacct knows no {', '.join(missing)}", "red-box needs Slurm 20.11 or newer")
    for name, since in sacct.LATE.items():
        if name not in known:
            yield note(f"sacct knows no {name} before Slurm {since}: red-box does without")
    asked = asking.ask(["sacct", "--allocations", "--noheader", "--jobs=1", "--format=JobID"])
    if asked.code != 0:
        yield fault(f"sacct does not answer: {asked.words}", "is slurmdbd up? see sacctmgr show cluster")


def _check_database(asking: Asking) -> Iterator[Finding]:
    shown = asking.ask(["sacctmgr", "--readonly", "show", "configuration"])
    private = re.search(r"^PrivateData\s*=\s*(.*)$", shown.stdout, re.MULTILINE)
    if private and set(private[1].lower().replace(" ", "").split(",")) & HIDING:
        yield warning(
            "slurmdbd's PrivateData hides jobs from the account redbox",
            "give redbox AdminLevel=Operator, or take jobs out of PrivateData in slurmdbd.conf",
        )


def _check_federation(asking: Asking) -> Iterator[Finding]:
    shown = asking.ask(scontrol.federation_argv())
    name = scontrol.read_federation(shown.stdout) if shown.code == 0 else None
    if name is not None:
        yield fault(
            f"this cluster is in the federation {name}: jobs may move to clusters that red-box does not see",
            "take it out of the federation, or say slurm.allow_federation: true",
        )
