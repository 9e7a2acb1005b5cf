"""sbatch's options: their names, how sbatch reads them from words and from #SBATCH lines, and times. Pure.

red-box and the command-line plugin read them, so that both take a line for the same option.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Bounded: a user's own agent may answer anything, and Python converts no number of more than 4,300 digits.
DURATION = re.compile(r"(?:(?P<days>[0-9]{1,9})-)?(?P<rest>[0-9]{1,9}(?::[0-9]{1,9}){0,2})(?:\.[0-9]{1,9})?")
WITH_VALUE = frozenset({
    "acctg-freq", "batch", "bb", "bbf", "cluster-constraint", "constraint", "container", "container-id",
    "core-spec", "cores-per-socket", "cpu-freq", "cpus-per-gpu", "cpus-per-task", "deadline", "delay-boot",
    "distribution", "exclude", "extra", "extra-node-info", "gpu-bind", "gpu-freq", "gpus", "gpus-per-node",
    "gpus-per-socket", "gpus-per-task", "gres", "gres-flags", "hint", "input", "job-name",
    "kill-on-invalid-dep",
    "licenses", "mail-type", "mail-user", "mcs-label", "mem", "mem-bind", "mem-per-cpu", "mem-per-gpu",
    "mincpus", "network", "nodefile", "nodelist", "nodes", "ntasks", "ntasks-per-core", "ntasks-per-gpu",
    "ntasks-per-node", "ntasks-per-socket", "open-mode", "prefer", "priority", "profile", "reservation",
    "segment", "signal", "sockets-per-node", "switches", "thread-spec", "threads-per-core", "time",
    "time-min", "tmp", "tres-bind", "tres-per-task", "wait-all-nodes", "wckey",
})  # fmt: skip
WITH_OPTIONAL_VALUE = frozenset({
    "exclusive", "nice", "no-kill", "oom-kill-step", "propagate", "requeue", "resv-ports",
})  # fmt: skip
WITHOUT_VALUE = frozenset({
    "contiguous", "ignore-pbs", "no-requeue", "overcommit", "oversubscribe", "reboot",
    "spread-job", "stepmgr", "use-min-nodes",
})  # fmt: skip
ALLOWED = WITH_VALUE | WITH_OPTIONAL_VALUE | WITHOUT_VALUE
FIELDS = {
    "account": "account",
    "array": "array",
    "begin": "begin",
    "chdir": "workingDirectory",
    "dependency": "dependencies",
    "error": "error",
    "hold": "hold",
    "output": "output",
    "partition": "partition",
    "qos": "qos",
}
RESERVED = frozenset({
    "cluster", "clusters", "comment", "export", "export-file", "get-user-env", "gid", "help", "parsable",
    "quiet", "test-only", "uid", "usage", "verbose", "version", "wait", "wrap",
})  # fmt: skip
SHORT = {
    "A": "account", "a": "array", "B": "extra-node-info", "b": "begin", "C": "constraint",
    "c": "cpus-per-task", "D": "chdir", "d": "dependency", "e": "error", "F": "nodefile", "G": "gpus",
    "H": "hold", "h": "help", "i": "input", "J": "job-name", "k": "no-kill", "L": "licenses",
    "M": "clusters", "m": "distribution", "N": "nodes", "n": "ntasks", "O": "overcommit", "o": "output",
    "p": "partition", "Q": "quiet", "q": "qos", "S": "core-spec", "s": "oversubscribe", "t": "time",
    "V": "version", "v": "verbose", "W": "wait", "w": "nodelist", "x": "exclude",
}  # fmt: skip
SHORT_FLAGS = frozenset("HhkOQsVvW")
_SWITCHES = {"hold", "help", "parsable", "quiet", "test-only", "usage", "verbose", "version", "wait"}
LONG_FLAGS = _SWITCHES | WITH_OPTIONAL_VALUE | WITHOUT_VALUE
NAMES = ALLOWED | FIELDS.keys() | RESERVED
LONGEST_NAME = max(map(len, NAMES))
HET_SEPARATOR = re.compile(r"^#SBATCH[^\S\n]+(?:hetjob|packjob)\b", re.MULTILINE)
_FIRST_COMMAND = re.compile(r"^[^\S\n]*+[^\s#]", re.MULTILINE)
_DIRECTIVE = re.compile(r"^#(?P<kind>SBATCH|PBS)(?P<words>.*)", re.MULTILINE)
_PLAIN_WORDS = re.compile(r"[ \t!$-&(-\[\]-~]*")
"""Printable, without quotes, backslashes and comments."""
_SPACES = " \t\v\f\r"
_WORD = re.compile(
    r"""[ \t\v\f\r]*+((?:\\[^\t\v\f\r]?|"(?:\\.|[^"\\])*+"|'(?:\\.|[^'\\])*+'|[^ \t\v\f\r"'#\\])++)""",
    re.DOTALL,
)
_QUOTED_OR_ESCAPED = re.compile(r""""(?:\\.|[^"\\])*+"|'(?:\\.|[^'\\])*+'|\\.?""", re.DOTALL)
_ESCAPED = re.compile(r"\\(.?)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Directive:
    """One option of a script's #SBATCH (or #PBS) lines, by its full name."""

    line: int
    name: str
    value: str | None


def read_directives(script: str) -> tuple[Directive, ...]:
    """The options in the lines before the script's first command, as sbatch reads them."""
    return _read_lines(leading_lines(script))


def leading_lines(script: str) -> str:
    """All before the script's first command."""
    command = _FIRST_COMMAND.search(script)
    return script[: command.start()] if command else script


def first_component(script: str) -> str:
    """Of these lines those of a het job's first component."""
    lines = leading_lines(script)
    separator = HET_SEPARATOR.search(lines)
    return lines[: separator.start()] if separator else lines


def directive_lines(lines: str) -> list[str]:
    """Those with options."""
    return [line[0] for line in _DIRECTIVE.finditer(lines)]


@lru_cache(maxsize=8)
def _read_lines(lines: str) -> tuple[Directive, ...]:
    """Kept, since a submit needs them several times, and they may take 20 ms."""
    return tuple(_options_of(lines))


def _options_of(lines: str) -> Iterator[Directive]:
    number, counted = 1, 0
    for line in _DIRECTIVE.finditer(lines):
        number += lines.count("\n", counted, line.start())
        counted = line.start()
        words = _split(line["words"])
        if line["kind"] == "PBS":
            yield from _read_pbs(number, words)
        else:
            yield from (Directive(number, name, value) for name, value in read_words(words))


def _split(text: str) -> list[str]:
    """Words as sbatch's _get_argument reads them, which is no shell: 24.11 and 26.05 show them with -vvv.

    A backslash escapes within both kinds of quotes, and a blank; # ends the line anywhere, and so does an
    empty word.
    """
    if _PLAIN_WORDS.fullmatch(text):
        return text.split()
    words: list[str] = []
    end = 0
    while found := _WORD.match(text, end):
        end = found.end()
        word = _QUOTED_OR_ESCAPED.sub(_literal, found[1])
        if not word:
            return words
        words.append(word)
    is_unclosed = text[end:].lstrip(_SPACES).startswith(("'", '"'))
    return text.split() if is_unclosed else words  # sbatch rejects such a script


def _literal(part: re.Match[str]) -> str:
    inside = part[0] if part[0].startswith("\\") else part[0][1:-1]
    return _ESCAPED.sub(r"\1", inside)


def _read_pbs(number: int, words: list[str]) -> Iterator[Directive]:
    """Of the PBS options that sbatch supports only the paths of output matter here."""
    for word, value in zip(words, [*words[1:], None], strict=False):
        if word[:2] in ("-o", "-e"):
            yield Directive(number, "output" if word[1] == "o" else "error", word[2:] or value)


def read_words(words: list[str]) -> Iterator[tuple[str, str | None]]:
    rest = iter(words)
    for word in rest:
        if word.startswith("--"):
            name, has_value, value = word[2:].partition("=")
            name = full_name(name)
            yield name, value if has_value else (None if name in LONG_FLAGS else next(rest, None))
        elif word.startswith("-"):
            yield from _read_short(word[1:], rest)


def _read_short(letters: str, rest: Iterator[str]) -> Iterator[tuple[str, str | None]]:
    for end, letter in enumerate(letters, 1):
        name = SHORT.get(letter, letter)
        if letter not in SHORT_FLAGS:
            yield name, letters[end:] or next(rest, None)
            return
        yield name, None


def full_name(name: str) -> str:
    """Getopt accepts an abbreviation that only one name begins with."""
    return _full_name(name) if len(name) <= LONGEST_NAME else name


@lru_cache(maxsize=1024)
def _full_name(name: str) -> str:
    """Kept are short ones only: a script's may have a megabyte."""
    longer = [full for full in NAMES if full.startswith(name)]
    return longer[0] if name not in NAMES and len(longer) == 1 else name


def read_duration(text: str) -> int | None:
    """Seconds of `[days-]hours:minutes:seconds`, `minutes:seconds` or `minutes`, as of --time; else None."""
    found = DURATION.fullmatch(text)
    if found is None:
        return None
    parts = [int(part) for part in found["rest"].split(":")]
    if found["days"] is not None:  # days-hours[:minutes[:seconds]]
        hours, minutes, seconds = [*parts, 0, 0][:3]
    elif len(parts) == 3:  # noqa: PLR2004
        hours, minutes, seconds = parts
    else:
        hours, (minutes, seconds) = 0, [*parts, 0][:2]
    return ((int(found["days"] or 0) * 24 + hours) * 60 + minutes) * 60 + seconds
