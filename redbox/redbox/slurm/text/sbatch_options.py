"""sbatch's options that a request may give unchanged. Pure.

Only full names of this list reach sbatch: an abbreviation or an option without its value could consume the
mark that follows it. Options that are fields of the request are refused.
"""

from __future__ import annotations

import re

from redbox.slurm.errors import RequestRefused
from redbox_shared.sbatch_options import ALLOWED, FIELDS, RESERVED, WITH_VALUE, WITHOUT_VALUE

IN_SLURMJOBS = {"dependency": "dependsOn"}
"""Fields that have another name in a SlurmJob than in red-box's API."""
NEVER_IN_SCRIPT = {
    "wait": "sbatch would wait for the job's end",
    "test-only": "nothing would be submitted",
    "cluster": "the job would go to a cluster that this red-box does not watch",
    "clusters": "the job would go to a cluster that this red-box does not watch",
    "uid": "only root may submit for others",
    "gid": "only root may submit for others",
    "wrap": "the script is the job",
    "help": "nothing would be submitted",
    "usage": "nothing would be submitted",
    "version": "nothing would be submitted",
}
OPTION = re.compile(r"--([a-z][a-z0-9-]*)(?:=(.*))?", re.DOTALL)


def read_options(options: list[str]) -> list[str]:
    return [_read_option(option) for option in options]


def _read_option(option: str) -> str:
    found = OPTION.fullmatch(option)
    if found is None:
        raise RequestRefused(
            f"options: {option!r} is not of the form --name or --name=value with sbatch's full name."
        )
    name, value = found[1], found[2]
    if name in FIELDS:
        other = f" (of a SlurmJob: {IN_SLURMJOBS[name]})" if name in IN_SLURMJOBS else ""
        raise RequestRefused(f"options: --{name} has a field of its own: use {FIELDS[name]}{other}.")
    if name in RESERVED:
        raise RequestRefused(f"options: --{name} cannot be given: red-box sets it or does not support it.")
    if name not in ALLOWED:
        raise RequestRefused(f"options: red-box does not support sbatch's --{name} (full names only).")
    if name in WITH_VALUE and not value:
        raise RequestRefused(f"options: --{name} needs a value: --{name}=value.")
    if name in WITHOUT_VALUE and value is not None:
        raise RequestRefused(f"options: --{name} takes no value.")
    return option
