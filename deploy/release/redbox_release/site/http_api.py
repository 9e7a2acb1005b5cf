"""The HTTP API as a page, from its OpenAPI document: requests by what they are about, then the objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from redbox_release.site.markdown import beside_code, text_of
from redbox_release.site.places import anchor_of

_OBJECTS = "#/components/schemas/"
_PROBLEM = "application/problem+json"
_LIMITS = (("minimum", "At least"), ("maximum", "At most"), ("maxLength", "Characters, at most:"))


def http_api_page(document: Mapping[str, Any]) -> str:
    info = document["info"]
    lines = [
        "# The HTTP API",
        "",
        f"{info['summary']} {info['description']}",
        "",
        "Made from the [OpenAPI document](openapi.json).",
    ]
    about: dict[str, list[tuple[str, str, Mapping[str, Any]]]] = {}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            about.setdefault((operation.get("tags") or ["service"])[0], []).append((method, path, operation))
    for tag, requests in sorted(about.items(), key=lambda entry: (entry[0] != "jobs", entry[0])):
        lines += ["", _heading(2, tag.capitalize())]
        for method, path, operation in requests:
            lines += ["", *_request(method, path, operation)]
    lines += ["", _heading(2, "Objects"), "", "As JSON. A field without a default is required."]
    for name, schema in sorted(document["components"]["schemas"].items()):
        lines += ["", *_object(name, schema)]
    return "".join(f"{beside_code(line, text_of)}\n" for line in lines)


def _heading(level: int, text: str, anchor: str = "") -> str:
    return f"{'#' * level} {text} {{: #{anchor or anchor_of(text)} }}"


def _request(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield _heading(
        3, f"{method.upper()} `{path}`", f"{method}-{anchor_of(path.replace('/', '-').strip('-'))}"
    )
    yield ""
    yield operation.get("description") or operation.get("summary", "")
    if parameters := operation.get("parameters"):
        yield from ("", "| parameter | in | type | |", "|---|---|---|---|")
        for parameter in parameters:
            schema = parameter.get("schema", {})
            yield _row(f"`{parameter['name']}`", parameter["in"], _type(schema), _remarks(schema, parameter))
    if body := operation.get("requestBody"):
        yield from ("", f"Body: {_contents(body['content'])}.")
    if socket := operation.get("x-websocket"):
        yield from _websocket(socket)
    yield from _answers(operation["responses"])


def _answers(responses: Mapping[str, Any]) -> Iterator[str]:
    """A row for each answer; those that are a problem, in one sentence."""
    problems = {
        status: response for status, response in responses.items() if _PROBLEM in response.get("content", {})
    }
    yield from ("", "| status | | content |", "|---|---|---|")
    for status, response in responses.items():
        if status not in problems:
            said = response["description"].replace("Successful Response", "Success.")
            yield _row(f"`{status}`", said, _contents(response.get("content", {})))
    if problems:
        reasons = (
            f"`{status}` {response['description'].rstrip('.')}" for status, response in problems.items()
        )
        yield from ("", f"With a [Problem](#object-problem): {'; '.join(reasons)}.")


def _websocket(socket: Mapping[str, Any]) -> Iterator[str]:
    yield ""
    first = f" The first message is {_type(socket['firstMessage'])}." if "firstMessage" in socket else ""
    yield f"WebSocket of subprotocol `{socket['subprotocol']}`.{first}"
    if channels := socket.get("channels"):
        yield from ("", "| channel | |", "|---|---|")
        yield from (_row(f"`{number}`", f"{meaning}") for number, meaning in channels.items())


def _object(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield _heading(3, name, f"object-{name.lower()}")
    yield ""
    yield schema.get("description", "")
    if values := schema.get("enum"):
        yield from ("", f"One of {', '.join(f'`{value}`' for value in values)}.")
    if not (properties := schema.get("properties")):
        return
    required = schema.get("required", ())
    yield from ("", "| field | type | |", "|---|---|---|")
    for field, inner in properties.items():
        yield _row(f"`{field}`", _type(inner), _remarks(inner, {"required": field in required}))


def _contents(content: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{_type(inner['schema'])} (`{kind}`)" if inner.get("schema") else f"`{kind}`"
        for kind, inner in content.items()
    )


def _type(schema: Mapping[str, Any]) -> str:
    match schema:
        case {"$ref": str(reference)}:
            name = reference.removeprefix(_OBJECTS)
            found = f"[{name}](#object-{name.lower()})"
        case {"anyOf": choices} | {"oneOf": choices} | {"allOf": choices}:
            found = " or ".join(_type(choice) for choice in choices if choice.get("type") != "null")
        case {"enum": values}:
            found = ", ".join(f"`{value}`" for value in values)
        case {"const": value}:
            found = f"`{value}`"
        case {"type": "array", "items": items}:
            found = f"list of {_type(items)}"
        case {"additionalProperties": Mapping() as values}:
            found = f"map of {_type(values)}"
        case _:
            found = str(schema.get("format") or schema.get("type") or "any value")
    return found


def _remarks(schema: Mapping[str, Any], owner: Mapping[str, Any]) -> str:
    remarks = [str(schema.get("description") or owner.get("description") or "")]
    if "default" in schema and schema["default"] not in (None, [], {}):
        remarks.append(f"Default: `{schema['default']}`.")
    remarks += [f"{word} {schema[key]}." for key, word in _LIMITS if key in schema]
    if "pattern" in schema:
        remarks.append(f"Matches `{schema['pattern']}`.")
    if owner.get("required"):
        remarks.append("Required.")
    return " ".join(filter(None, remarks))


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
