"""The batch script: what is wrong with it before Slurm is asked, and where its output goes by default."""

from __future__ import annotations

from collections.abc import Iterable

from redbox.slurm.errors import RequestRefused
from redbox.slurm.text.sbatch_options import NEVER_IN_SCRIPT, Directive
from redbox_api.models import MAX_SCRIPT_BYTES

DEFAULT_OUTPUT = "slurm-%j"
DEFAULT_ARRAY_OUTPUT = "slurm-%A_%a"


def encode_script(script: str) -> bytes:
    """The script's bytes, if sbatch and the node's kernel would run them."""
    try:
        data = script.encode()
    except UnicodeEncodeError as error:
        raise RequestRefused(
            f"batch: the script holds a character that is none (at {error.start})."
        ) from error
    if not script.strip():
        raise RequestRefused("batch: the script is empty.")
    if len(data) > MAX_SCRIPT_BYTES:
        raise RequestRefused(
            f"batch: the script has {len(data)} bytes, more than the {MAX_SCRIPT_BYTES} that are taken: "
            "stage large data as files."
        )
    if b"\0" in data:
        raise RequestRefused("batch: this is a binary, not a script: let a script run it.")
    if b"\r\n" in data:
        raise RequestRefused(
            "batch: the script has DOS line ends (CR LF), which Slurm does not run: "
            "convert it, for example with dos2unix."
        )
    if not data.startswith(b"#!"):
        raise RequestRefused(
            "batch: the script's first line must name its interpreter, for example #!/bin/sh, "
            "and nothing may stand before it."
        )
    return data


def check_directives(directives: Iterable[Directive]) -> None:
    """Refuse what would make the submit something else than one job that red-box can know."""
    for directive in directives:
        why = NEVER_IN_SCRIPT.get(directive.name)
        if why is not None:
            raise RequestRefused(f"batch: line {directive.line} gives --{directive.name}: {why}. Remove it.")


def with_default_outputs(script: bytes, *, array: bool) -> bytes:
    """The script with stdout and stderr apart, as its first #SBATCH lines: any later line of its own wins."""
    stem = DEFAULT_ARRAY_OUTPUT if array else DEFAULT_OUTPUT
    lines = f"#SBATCH --output={stem}.out\n#SBATCH --error={stem}.err\n".encode()
    shebang, newline, rest = script.partition(b"\n")
    return shebang + (newline or b"\n") + lines + rest
