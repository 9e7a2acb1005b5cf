"""`convert`: manifests of Slinky's slurm-operator become those of hosted Slurm. It asks no server."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from kubectl_slurm.errors import BadUsage, PluginError
from kubectl_slurm.options import CommandParser
from kubectl_slurm.terminal.documents import NO_YAML, as_yaml
from kubectl_slurm.terminal.screen import note

TEXT = """\
Convert manifests of Slinky's slurm-operator (slinky.slurm.net/v1beta1) to hosted Slurm's. The manifests are
written to stdout, and to stderr one line for each field that is dropped, changed, or means something else.
Objects of other kinds are passed through."""
EPILOG = """\
exit codes: 0 converted; 1 converted, but for what is `not done`, which the API server or the operator would
refuse; 2 nothing is written, as FILE could not be read.

A chart's values are rendered first:
  helm template slurm oci://ghcr.io/slinkyproject/charts/slurm -n hpc -f values.yaml | \
kubectl slurm convert -f -"""
STDIN = "-"
EXIT_OPEN, EXIT_UNREAD = 1, 2


def run(command: str, words: Sequence[str], given: Sequence[str], environment: Mapping[str, str]) -> int:
    del given, environment
    options = _parser(command).parse_args(words)
    try:
        from kubectl_slurm.slinky.conversion import convert  # noqa: PLC0415 (needs an extra)
        from kubectl_slurm.slinky.documents import read_documents  # noqa: PLC0415
    except ModuleNotFoundError:
        raise PluginError(NO_YAML) from None
    documents = [each for path in options.filename for each in read_documents(*_read(path))]
    if not documents:
        raise BadUsage(f"{', '.join(options.filename)} has no manifest")
    conversion = convert(documents, profile=options.profile, image=options.image)
    sys.stdout.write("---\n".join(map(_written, conversion.documents)))
    for each in conversion.notes:
        note(str(each))
    note(f"{conversion.converted} of {len(documents)} objects converted.")
    return EXIT_OPEN if conversion.is_open else 0


def _parser(command: str) -> CommandParser:
    parser = CommandParser(
        prog=f"kubectl slurm {command}",
        description=TEXT,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "-f", "--filename", action="append", required=True, metavar="FILE", help="a file, or - for stdin"
    )
    parser.add_argument(
        "--image",
        default="",
        metavar="IMAGE",
        help="the image of Slurm; without it, that of the operator's chart",
    )
    parser.add_argument(
        "--profile",
        choices=("Plain", "Privileged"),
        default="Plain",
        help="Privileged keeps privileges of workers, which Plain drops",
    )
    return parser


def _read(path: str) -> tuple[str, str]:
    """The text, and its name in messages."""
    from kubectl_slurm.slinky.documents import MOST_BYTES  # noqa: PLC0415 (needs an extra)

    source = "stdin" if path == STDIN else path
    try:
        if path == STDIN:
            content = sys.stdin.buffer.read(MOST_BYTES + 1)
        else:
            with Path(path).open("rb") as file:
                content = file.read(MOST_BYTES + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise BadUsage(f"{path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadUsage(f"{source} is not UTF-8 text") from error
    if len(content) > MOST_BYTES:
        raise BadUsage(f"{source} is larger than {MOST_BYTES >> 20} MiB")
    return text, source


def _written(document: dict[str, object] | str) -> str:
    if isinstance(document, dict):
        return as_yaml(document)
    return document if document.endswith("\n") else f"{document}\n"
