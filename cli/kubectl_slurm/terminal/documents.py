"""Objects as JSON and YAML."""

from __future__ import annotations

import json
from typing import Any

from kubectl_slurm.errors import PluginError
from redbox_shared.printable import escaped, printable

NO_YAML = (
    "the Python package yaml is not installed: install red-box's wheel with the extra cli, pip install "
    "'WHEEL[cli]'"
)


def as_json(document: object) -> str:
    return escaped(json.dumps(document, indent=2, ensure_ascii=False)) + "\n"


def as_yaml(*documents: object) -> str:
    """Texts of several lines as blocks, so that a script can be read."""
    try:
        import yaml  # noqa: PLC0415 (costs 40 ms, and only this output needs it)
    except ModuleNotFoundError:
        raise PluginError(f"{NO_YAML}, or use -o json") from None

    class _BlockDumper(yaml.SafeDumper):
        def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002
            super().increase_indent(flow, False)  # noqa: FBT003

    def text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    _BlockDumper.add_representer(str, text)

    def dumped(document: object, *, allow_unicode: bool) -> str:
        text: str = yaml.dump(
            document, Dumper=_BlockDumper, sort_keys=False, allow_unicode=allow_unicode, width=110
        )
        return text

    parts = [dumped(document, allow_unicode=True) for document in documents]
    if any(printable(part, lines=True) != part for part in parts):  # else escaped, and never replaced
        parts = [dumped(document, allow_unicode=False) for document in documents]
    return "---\n".join(parts)


def listing(items: list[dict[str, Any]]) -> dict[str, Any]:
    """Objects as kubectl prints several."""
    return {"apiVersion": "v1", "kind": "List", "items": items}
