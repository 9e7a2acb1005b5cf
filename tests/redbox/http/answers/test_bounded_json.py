"""What a body may cost is bounded before it is parsed, and its errors before they are built."""

from __future__ import annotations

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from redbox.http.answers import bounded_json
from redbox.http.answers.bounded_json import count_values, validated
from redbox.http.answers.problems import ContentTooLargeProblem, UnprocessableProblem
from redbox_api.models import JobRequest
from tests.redbox.http.fakes import SCRIPT

JOB = TypeAdapter(JobRequest)
POD = {"name": "p", "namespace": "physics", "uid": "u-1"}
CONTAINER = {"name": "c", "image": "docker://busybox"}


def pod_with(volumes: list[Any], **container: Any) -> bytes:
    return json.dumps(
        {"pod": {**POD, "containers": [{**CONTAINER, **container}], "volumes": volumes}}
    ).encode()


def volume(number: int, files: list[Any]) -> dict[str, Any]:
    return {"name": f"v{number}", "files": {"files": files}}


EMPTY_FILES = pod_with([volume(number, [{}] * 4096) for number in range(256)])
FILES = [{"path": f"f{number}", "content": "eA==", "mode": 0o644} for number in range(4096)]
REFUSED = {
    "empty files": EMPTY_FILES,
    "a few volumes of them": pod_with([volume(number, [{}] * 4096) for number in range(16)]),
    "unknown fields": json.dumps(dict.fromkeys(map(str, range(500_000)))).encode(),
    "variables": json.dumps({"batch": SCRIPT, "env": dict.fromkeys(map(str, range(500_000)), "")}).encode(),
    "options": json.dumps({"batch": SCRIPT, "options": [""] * 1_500_000}).encode(),
    "depth": b'{"batch": ' + b"[" * 5_000_000,
    "empty strings": b"[" + b'"",' * 2_700_000,
}
FEW_ERRORS = {
    "files": (pod_with([volume(number, [{}] * 4096) for number in range(5)]), 2),
    "variables of a container": (pod_with([], env=[{}] * 8192), 1),
    "words": (json.dumps({"container": {**CONTAINER, "args": ["\0"] * 1024}}).encode(), 2),
    "options": (json.dumps({"batch": SCRIPT, "options": ["\n"] * 128}).encode(), 1),
}


@pytest.mark.parametrize("case", REFUSED)
def test_more_values_than_any_request_has_are_refused_before_they_are_parsed(case: str) -> None:
    """3 MiB of empty files took 15 s and 4 GiB."""
    body = REFUSED[case]
    tracemalloc.start()
    try:
        with pytest.raises(ContentTooLargeProblem, match="more than 100000 values"):
            count_values(body)
        assert tracemalloc.get_traced_memory()[1] < 4 * len(body) + 10_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("case", FEW_ERRORS)
def test_of_a_list_the_first_error_alone_is_built(case: str) -> None:
    body, count = FEW_ERRORS[case]
    with pytest.raises(ValidationError) as invalid:
        JobRequest.model_validate_json(body)
    assert invalid.value.error_count() == count


def test_of_an_object_with_more_fields_than_any_has_no_error_is_built() -> None:
    fields = dict.fromkeys(map(str, range(50_000)))
    with pytest.raises(UnprocessableProblem, match="has 50000 fields: env has at most 1024"):
        validated(JOB, json.dumps(fields).encode())
    with pytest.raises(UnprocessableProblem, match="env must have at most 1024 items"):
        validated(JOB, json.dumps({"batch": SCRIPT, "env": {f"A{n}": "" for n in range(1025)}}).encode())


def test_a_body_that_is_nested_deeply_is_refused_in_words() -> None:
    with pytest.raises(UnprocessableProblem, match="nested too deeply"):
        validated(JOB, b'{"batch": ' + b"[" * 90_000)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"batch": "\xff"}', "not JSON in UTF-8"),
        (b'{"cpus": %s}' % (b"9" * 5_000), "a number of more than 4300 digits"),
        (b'{"batch": ', "not JSON: Expecting value"),
    ],
)
def test_a_body_that_is_no_json_is_refused_by_its_fault(body: bytes, words: str) -> None:
    with pytest.raises(UnprocessableProblem, match=words):
        validated(JOB, body)


@pytest.mark.parametrize(
    "body",
    [
        pod_with([volume(number, FILES) for number in range(5)]),  # 20,480 files
        pod_with([], env=[{"name": f"A{number}", "value": "x"} for number in range(8192)]),
        json.dumps({"batch": SCRIPT + 'a,b[c{"\\' * 500_000}).encode(),  # separators in a string
        json.dumps({"batch": SCRIPT, "env": {f"A{n}": "x" * 7000 for n in range(1024)}}).encode(),
    ],
    ids=["files", "variables of a container", "a script with separators", "variables"],
)
def test_the_largest_requests_pass(body: bytes) -> None:
    count_values(body)
    assert isinstance(validated(JOB, body), JobRequest)


def values_of(parsed: object) -> int:
    if isinstance(parsed, dict):
        return 1 + sum(map(values_of, parsed.values()))
    return 1 + sum(map(values_of, parsed)) if isinstance(parsed, list) else 1


texts = st.text(alphabet='a,[]{}"\\:\n\u2200é', max_size=8)
documents = st.recursive(
    st.none() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(texts, inner, max_size=5),
)


@given(documents, st.booleans())
def test_no_value_is_hidden_by_what_is_in_strings(document: object, ascii_only: bool) -> None:  # noqa: FBT001
    body = json.dumps(document, ensure_ascii=ascii_only).encode()
    exact = values_of(document)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounded_json, "COUNTED_ROUGHLY", 0)
        assert exact <= count_values(body) <= 2 * exact + 1
