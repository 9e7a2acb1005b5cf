"""The page of the HTTP API says what the OpenAPI document does."""

import json

from redbox_bed.core.places import CHECKOUT
from redbox_release.site.http_api import http_api_page

DOCUMENT = json.loads((CHECKOUT / "docs/reference/openapi.json").read_text())
PAGE = http_api_page(DOCUMENT)


def test_every_request_and_every_object_has_its_heading() -> None:
    for path, operations in DOCUMENT["paths"].items():
        for method in operations:
            assert f"### {method.upper()} `{path}` " in PAGE
    for name in DOCUMENT["components"]["schemas"]:
        assert f"### {name} {{: #object-{name.lower()} }}" in PAGE


def test_every_field_and_every_parameter_has_a_row() -> None:
    for schema in DOCUMENT["components"]["schemas"].values():
        for field in schema.get("properties", {}):
            assert f"| `{field}` |" in PAGE
    parameters = [
        parameter["name"]
        for operations in DOCUMENT["paths"].values()
        for operation in operations.values()
        for parameter in operation.get("parameters", ())
    ]
    assert parameters
    assert not [name for name in parameters if f"| `{name}` | " not in PAGE]
