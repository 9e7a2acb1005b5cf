"""The reference page of the kinds lists each field once."""

from __future__ import annotations

from typing import Any

from redbox_operator.api.crds import all_crds
from redbox_reference.kinds_page import kinds_page

PAGE = kinds_page(all_crds())
LINKED = "[SlurmJob (`redbox.dev/v1alpha1`, short `sj`)](#slurmjob-redboxdevv1alpha1-short-sj)"


def crd(kind: str, spec: dict[str, Any], status: dict[str, Any]) -> dict[str, Any]:
    parts = {"spec": {"properties": spec}, "status": {"properties": status}}
    schema = {"description": "A thing.", "properties": parts}
    version = {"name": "v1", "schema": {"openAPIV3Schema": schema}}
    return {
        "spec": {
            "names": {"kind": kind, "shortNames": []},
            "group": "x.dev",
            "scope": "Namespaced",
            "versions": [version],
        }
    }


def text(words: str) -> dict[str, str]:
    return {"type": "string", "description": words}


def test_the_status_of_jobs_is_listed_once_and_other_kinds_link_to_it() -> None:
    assert PAGE.count("| `phase` |") == 1
    assert PAGE.count(f"The status is that of {LINKED}.") == 3


def test_each_field_of_the_specs_and_the_status_of_our_own_kinds_is_listed() -> None:
    for each in all_crds():
        schema = each["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
        for part in ("spec", "status"):
            assert not [
                name for name in schema["properties"][part]["properties"] if f"| `{name}` |" not in PAGE
            ]


def test_a_table_with_all_rows_of_an_earlier_one_lists_only_its_own() -> None:
    shared = {"phase": text("The phase."), "message": text("A sentence.")}
    page = kinds_page(
        [crd("A", {"x": text("X.")}, shared), crd("B", {"y": text("Y.")}, {**shared, "z": text("Z.")})]
    )
    assert page.count("`phase`") == 1
    assert page.endswith(
        "The status is that of [A (`x.dev/v1`)](#a-xdevv1), with:\n\n"
        "| status | type | what it means |\n|---|---|---|\n| `z` | string | Z. |\n"
    )


def test_an_object_with_the_fields_of_an_earlier_one_refers_to_it() -> None:
    amounts = {"type": "object", "properties": {"cpus": text("CPUs."), "gpus": text("GPUs.")}}
    page = kinds_page([crd("A", {"total": amounts, "free": {**amounts, "description": "What is free."}}, {})])
    assert "| `total.cpus` | string | CPUs. |" in page
    assert "| `free` | object | What is free. Fields as in `total`. |" in page
    assert "free.cpus" not in page
