"""Section `volumes` of the settings."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from redbox.core.yaml_document import Section

PLACEHOLDERS = ("{home}", "{user}")


def _template(directory: str) -> str:
    rest = directory.replace("{home}", "/home", 1) if directory.startswith("{home}") else directory
    rest = rest.replace("{user}", "user")
    if not rest.startswith("/") or ".." in rest.split("/"):
        raise ValueError("must be absolute, or begin with {home}, and have no `..`")
    if re.search(r"[{}\x00-\x1f]", rest):
        raise ValueError(f"may have {' and '.join(PLACEHOLDERS)} ({{home}} at its beginning), and no other")
    return directory


class VolumesSettings(Section):
    """Folders for Kubernetes' volumes (StorageClass redbox.dev/directory), on a file system of all nodes."""

    directory: Annotated[str, AfterValidator(_template)] = "{home}/redbox/volumes"
    """Where each user's folders are made, by that user; {home} and {user} are replaced."""
    per_user: Annotated[int, Field(ge=0)] = 1000
    """Folders of one Unix user at most; 0: no new ones."""
