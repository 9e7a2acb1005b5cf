"""The batch script: checks before sbatch runs, and where its output goes by default. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from redbox.slurm.errors import RequestRefused
from redbox.slurm.text.sbatch_options import NEVER_IN_SCRIPT
from redbox_api.models import MAX_SCRIPT_BYTES
from redbox_shared.sbatch_options import Directive

DEFAULT_OUTPUT = "slurm-%j"
DEFAULT_ARRAY_OUTPUT = "slurm-%A_%a"


def encode_script(script: str) -> bytes:
    """The script's bytes; RequestRefused where sbatch or the node's kernel would not run them."""
    try:
        data = script.encode()
    except UnicodeEncodeError as error:
        raise RequestRefused(
            f"batch: the script contains a character that cannot be encoded as UTF-8 (at {error.start})."
        ) from error
    if not script.strip():
        raise RequestRefused("batch: the script is empty.")
    if len(data) > MAX_SCRIPT_BYTES:
        raise RequestRefused(
            f"batch: the script has {len(data)} bytes, more than the limit of {MAX_SCRIPT_BYTES}: "
            "stage large data as files."
        )
    if b"\0" in data:
        raise RequestRefused("batch: this is a binary, not a script. Submit a script that runs it.")
    if b"\r\n" in data:
        raise RequestRefused(
            "batch: the script has DOS line ends (CR LF), which Slurm does not run: "
            "convert it, for example with dos2unix."
        )
    if not data.startswith(b"#!"):
        raise RequestRefused(
            "batch: the script's first line must name its interpreter, for example #!/bin/sh, "
            "with nothing before it."
        )
    return data


def check_directives(directives: Iterable[Directive]) -> None:
    """Refuse options with which sbatch would not submit one job that red-box can watch."""
    for directive in directives:
        reason = NEVER_IN_SCRIPT.get(directive.name)
        if reason is not None:
            raise RequestRefused(f"batch: line {directive.line} has --{directive.name}: {reason}. Remove it.")


def with_default_outputs(script: bytes, *, array: bool) -> bytes:
    """The script with separate stdout and stderr in its first #SBATCH lines: later lines override them."""
    stem = DEFAULT_ARRAY_OUTPUT if array else DEFAULT_OUTPUT
    lines = f"#SBATCH --output={stem}.out\n#SBATCH --error={stem}.err\n".encode()
    shebang, newline, rest = script.partition(b"\n")
    return shebang + (newline or b"\n") + lines + rest
