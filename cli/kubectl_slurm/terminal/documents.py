"""Objects as JSON and YAML."""

from __future__ import annotations

import json
import re
from typing import Any

from kubectl_slurm.errors import PluginError

LEFT_BY_JSON = re.compile("[\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""What changes a terminal, or the order of its letters, and need not be escaped in JSON."""


def as_json(document: object) -> str:
    text = json.dumps(document, indent=2, ensure_ascii=False)
    return LEFT_BY_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def as_yaml(*documents: object) -> str:
    """Texts of several lines as blocks, so that a script can be read."""
    try:
        import yaml  # noqa: PLC0415 (costs 40 ms, and only this output needs it)
    except ModuleNotFoundError:
        raise PluginError(
            "the Python package yaml is not installed: install red-box's wheel with the extra cli, pip "
            "install 'WHEEL[cli]', or use -o json"
        ) from None

    class _BlockDumper(yaml.SafeDumper):
        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
            super().increase_indent(flow, False)  # noqa: FBT003

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    _BlockDumper.add_representer(str, text)
    parts: list[str] = [
        yaml.dump(document, Dumper=_BlockDumper, sort_keys=False, allow_unicode=True, width=110)
        for document in documents
    ]
    return "---\n".join(parts)


def listing(items: list[dict[str, Any]]) -> dict[str, Any]:
    """Objects as kubectl prints several."""
    return {"apiVersion": "v1", "kind": "List", "items": items}
