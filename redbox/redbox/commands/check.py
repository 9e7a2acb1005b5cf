"""`redbox check`: everything that is wrong with this login node, at once, each with its cure."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from redbox.commands.exit_codes import exit_with
from redbox.commands.output import Columns, OutputFormat, OutputOption, show_list
from redbox.core.clock import SystemClock
from redbox.core.yaml_document import DocumentError
from redbox.settings import load_settings
from redbox.setup.checks.all_checks import check_everything, check_token
from redbox.setup.checks.findings import Finding, exit_status
from redbox.setup.checks.machine import LocalMachine
from redbox.setup.install.layout import Layout


def check(
    *,
    personal: Annotated[
        bool, typer.Option("--personal", help="Your own red-box (redbox init --transport self).")
    ] = False,
    token_file: Annotated[
        Path | None, typer.Option(help="Tell instead what red-box would say to the token in this file.")
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Tell all that is wrong here, each with its cure. Ends with 1 where red-box would not work as it should.

    Run it as root: secrets, the journal and sudo's rules are looked at only then.
    """
    layout = _personal() if personal else Layout()
    findings = _of_token(token_file, layout) if token_file else check_everything(LocalMachine(), layout)
    if output is OutputFormat.TABLE:
        for finding in findings:
            typer.echo(str(finding))
        typer.echo(_summary(findings), err=True)
    else:
        show_list([_shown(finding) for finding in findings], NO_COLUMNS, output)
    raise typer.Exit(exit_status(findings))


NO_COLUMNS: Columns = {}


def _of_token(path: Path, layout: Layout) -> list[Finding]:
    try:
        settings = load_settings(layout.settings)
        token = path.read_text(encoding="ascii").strip()
    except (DocumentError, OSError, UnicodeDecodeError) as error:
        exit_with(str(error))
    return [check_token(token, settings, SystemClock())]


def _personal() -> Layout:
    runtime = os.environ.get("XDG_RUNTIME_DIR", str(Path.home() / ".local/state"))
    return Layout.personal(Path.home(), Path(runtime))


def _summary(findings: list[Finding]) -> str:
    counts = {
        level: sum(one.level.name == level for one in findings) for level in ("FAULT", "WARNING", "NOTE")
    }
    return ", ".join(f"{count} {level.lower()}{'s' * (count != 1)}" for level, count in counts.items())


def _shown(finding: Finding) -> dict[str, str]:
    return {"level": finding.level.name.lower(), "what": finding.what, "cure": finding.cure}
