"""`redbox check`: every problem of this login node, each with its cure."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from redbox.commands.exit_codes import exit_with, say
from redbox.commands.output import OutputFormat, OutputOption, show_list
from redbox.core.clock import SystemClock
from redbox.core.yaml_document import DocumentError
from redbox.settings import load_settings
from redbox.setup.checks.all_checks import check_everything, check_token
from redbox.setup.checks.findings import Finding, exit_status
from redbox.setup.checks.machine import Machine
from redbox.setup.install.layout import Layout
from redbox_api.log import configure_log


def check(
    *,
    personal: Annotated[
        bool, typer.Option("--personal", help="Check your personal red-box (redbox init --transport self).")
    ] = False,
    token_file: Annotated[
        Path | None, typer.Option(help="Check instead whether red-box accepts the token in this file.")
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Report every problem of this installation, each with its cure. Exits with 1 if there is a fault.

    Run it as root: only root can check secrets, the journal and sudo's rules.
    """
    configure_log(sys.stderr)
    layout = Layout.of_current_user() if personal else Layout()
    findings = _check_token_file(token_file, layout) if token_file else check_everything(Machine(), layout)
    if output is OutputFormat.TABLE:
        for finding in findings:
            say(str(finding))
        say(_summary(findings), err=True)
    else:
        rows = [{"level": f.level.name.lower(), "what": f.what, "cure": f.cure} for f in findings]
        show_list(rows, {}, output)
    raise typer.Exit(exit_status(findings))


def _check_token_file(path: Path, layout: Layout) -> list[Finding]:
    try:
        settings = load_settings(layout.settings)
        token = path.read_text(encoding="ascii").strip()
    except (DocumentError, OSError, UnicodeDecodeError) as error:
        exit_with(str(error))
    return [check_token(token, settings, SystemClock())]


def _summary(findings: list[Finding]) -> str:
    counts = Counter(finding.level.name.lower() for finding in findings)
    levels = ("fault", "warning", "note")
    return ", ".join(f"{counts[level]} {level}{'s' * (counts[level] != 1)}" for level in levels)
