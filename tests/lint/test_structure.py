"""Folders are layers that a reader can hold in mind, and a class name stands for one thing."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter, defaultdict
from pathlib import Path

from tests.lint.sources import ROOT, sources

MOST_MODULES = 13
PACKAGES = {
    "redbox/redbox",
    "redbox/redbox_api",
    "redbox/redbox_shared",
    "companion/redbox_companion",
    "operator/redbox_clusters",
    "operator/redbox_kube",
    "operator/redbox_hosting",
    "operator/redbox_operator",
    "operator/redbox_slurmpod",
    "resourced/redbox_resourced",
    "cli/kubectl_slurm",
}
BED = "deploy/local/redbox_bed"


def modules(*packages: str) -> list[Path]:
    return [
        path
        for package in packages
        for path in sources(ROOT / package)
        if path.suffix == ".py" and path.name != "__init__.py"
    ]


def crowded_folders(paths: list[Path]) -> dict[str, int]:
    counts = Counter(str(path.parent) for path in paths)
    return {folder: count for folder, count in counts.items() if count > MOST_MODULES}


def shared_class_names(paths: list[Path]) -> dict[str, list[str]]:
    places: dict[str, list[str]] = defaultdict(list)
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text(), str(path))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{path.name}:{node.lineno}")
    return {name: found for name, found in places.items() if len(found) > 1}


def test_no_folder_holds_more_modules_than_a_reader_can_overlook() -> None:
    assert crowded_folders(modules(*PACKAGES, BED)) == {}


def test_a_public_class_name_stands_for_one_thing_in_the_distribution() -> None:
    assert shared_class_names(modules(*PACKAGES)) == {}


def test_every_package_has_a_contract_of_layers() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layered = {
        container
        for contract in settings["contracts"]
        if contract["type"] == "layers" and contract.get("exhaustive")
        for container in contract["containers"]
    }
    assert {Path(package).name for package in PACKAGES} | {"redbox_bed"} <= layered


def test_a_crowded_folder_and_a_shared_name_are_found(tmp_path: Path) -> None:
    for number in range(MOST_MODULES + 1):
        (tmp_path / f"m{number}.py").write_text("class Same: ...\nclass _Private: ...\n")
    paths = sorted(tmp_path.glob("*.py"))
    assert crowded_folders(paths) == {str(tmp_path): MOST_MODULES + 1}
    assert list(shared_class_names(paths)) == ["Same"]
