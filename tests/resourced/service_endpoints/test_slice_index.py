"""Which slices a pod has, and whether they are as they were written."""

from __future__ import annotations

from redbox_kube.api.objects import Object
from redbox_resourced.service_endpoints.slice_index import SliceIndex

POD, SLICE = ("alice", "web-1"), ("alice", "web-uid-1")
BODY: Object = {"ports": [{"port": 23456}], "endpoints": []}


def test_a_slice_is_written_while_its_body_is_the_same() -> None:
    index = SliceIndex()
    assert not index.is_written(SLICE, BODY)
    index.add(SLICE, POD)
    assert not index.is_written(SLICE, BODY)
    index.written(SLICE, BODY)
    assert index.is_written(SLICE, dict(reversed(BODY.items())))
    assert not index.is_written(SLICE, {**BODY, "ports": []})


def test_a_write_that_begins_makes_its_content_unknown() -> None:
    index = SliceIndex()
    index.add(SLICE, POD)
    index.written(SLICE, BODY)
    index.add(SLICE, POD)
    assert not index.is_written(SLICE, BODY)


def test_a_slice_that_another_pod_owns_is_no_longer_the_firsts() -> None:
    index, other = SliceIndex(), ("alice", "web-2")
    index.add(SLICE, POD)
    index.add(SLICE, other)
    assert (list(index.of(POD)), list(index.of(other))) == ([], [SLICE])
    index.remove(SLICE)
    assert (index.pod_of(SLICE), list(index.of(other))) == (None, [])


def test_what_is_kept_of_a_body_is_small() -> None:
    index = SliceIndex()
    index.add(SLICE, POD)
    index.written(SLICE, {"endpoints": ["x" * 100_000]})
    assert all(len(digest) == 16 for digest in index._digests[POD].values())
