"""From sbatch's command line to what is asked for. Pure.

Options and their abbreviations are read as sbatch reads them, up to the script's name; what follows are the
script's arguments. sbatch's short options keep their meaning, so `-n` is --ntasks here and not kubectl's
namespace, and `-o` is the job's output, except `-o yaml` and `-o json` beside --dry-run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kubectl_slurm.errors import BadUsage
from redbox_shared.sbatch_options import (
    ALLOWED,
    FIELDS,
    LONG_FLAGS,
    NAMES,
    SHORT,
    SHORT_FLAGS,
    WITHOUT_VALUE,
)

OWN_FLAGS = frozenset({"follow", "wait", "parsable", "quiet", "help", "dry-run", "hold"})
OWN_VALUES = frozenset({
    "wrap", "container", "collect", "name", "cluster", "clusters", "endpoint", "service-account", "export",
    "env", "backoff-limit", "namespace", "context", "kubeconfig", "as", "as-group",
})  # fmt: skip
UNSUPPORTED = {
    "version": "`kubectl slurm --version` shows it",
    "test-only": "use --dry-run to see the SlurmJob",
    "get-user-env": "the job has the environment of its account on the cluster",
    "export-file": "name variables by --export=NAME=VALUE",
    "uid": "the service account decides which Unix user it is",
    "gid": "the service account decides which Unix user it is",
    "comment": "red-box uses the comment itself",
    "batch": "name features by --constraint",
}
FORMATS = frozenset({"yaml", "json", "name"})
SINGLE = 1  # letter


@dataclass
class Requested:
    """What the command line asks for: sbatch's options by their full names, and those of this command."""

    sbatch: dict[str, str | None] = field(default_factory=dict)
    flags: set[str] = field(default_factory=set)
    own: dict[str, list[str]] = field(default_factory=dict)
    script: str | None = None
    arguments: list[str] = field(default_factory=list)

    def last(self, name: str) -> str | None:
        values = self.own.get(name)
        return values[-1] if values else None

    @property
    def format(self) -> str:
        """Of --dry-run."""
        return str(self.own.get("format", ["yaml"])[-1])


def read_command_line(words: Sequence[str]) -> Requested:
    requested = Requested()
    rest = iter(words)
    for word in rest:
        if word == "--":
            _take_script(requested, list(rest))
        elif word.startswith("--"):
            name, has_value, value = word[2:].partition("=")
            _take(requested, _full_name(name), value if has_value else None, rest)
        elif word.startswith("-") and len(word) > SINGLE:
            for name, given in _read_letters(word[1:], rest):
                _take(requested, name, given, rest)
        else:
            _take_script(requested, [word, *rest])
    _take_format(requested)
    return requested


def _take_script(requested: Requested, words: list[str]) -> None:
    if "container" in requested.own or "wrap" in requested.own:
        requested.arguments = words
    elif words:
        requested.script, requested.arguments = words[0], words[1:]


def _read_letters(letters: str, rest: Iterator[str]) -> Iterator[tuple[str, str | None]]:
    while letters:
        letter, letters = letters[0], letters[1:]
        name = SHORT.get(letter)
        if name is None:
            raise BadUsage(f"sbatch has no option -{letter}: `kubectl slurm submit --help` lists them")
        if letter in SHORT_FLAGS:
            yield name, None
        else:
            yield name, letters or next(rest, None)
            return


def _full_name(name: str) -> str:
    names = NAMES | OWN_FLAGS | OWN_VALUES
    if name in names:
        return name
    longer = sorted(full for full in names if full.startswith(name))
    if len(longer) == 1:
        return longer[0]
    cure = f"which of --{', --'.join(longer[:6])}?" if longer else "`kubectl slurm submit --help` lists them"
    raise BadUsage(f"there is no option --{name}: {cure}")


def _take(requested: Requested, name: str, value: str | None, rest: Iterator[str]) -> None:
    name = "help" if name == "usage" else name
    if name in OWN_FLAGS:
        requested.flags.add(name)
        if name == "dry-run" and value not in {None, "client"}:
            raise BadUsage("--dry-run asks no server: write it alone")
        return
    if name in UNSUPPORTED:
        raise BadUsage(f"--{name} has no meaning for a SlurmJob: {UNSUPPORTED[name]}")
    if name == "verbose":
        return
    takes_value = name in OWN_VALUES or name not in LONG_FLAGS
    if takes_value and value is None:
        value = next(rest, None)
        if value is None:
            raise BadUsage(f"--{name} needs a value")
    if value is not None and name in WITHOUT_VALUE:
        raise BadUsage(f"--{name} takes no value")
    if name in OWN_VALUES:
        requested.own.setdefault(name, []).append(value or "")
    elif name in ALLOWED or name in FIELDS:
        requested.sbatch[name] = value
    else:
        raise BadUsage(f"--{name} is not supported for SlurmJobs")


def _take_format(requested: Requested) -> None:
    """`-o yaml` beside --dry-run is a format."""
    if "dry-run" in requested.flags and requested.sbatch.get("output") in FORMATS:
        requested.own["format"] = [str(requested.sbatch.pop("output"))]
