"""The option --config, for commands that read the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ConfigOption = Annotated[Path, typer.Option("--config", help="The settings file.", envvar="REDBOX_CONFIG")]
