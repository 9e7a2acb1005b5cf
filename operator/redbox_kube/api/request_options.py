"""What a request to the API server may have beside its method and path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypedDict

from redbox_kube.api.decoding import Object


class DeleteOptions(TypedDict, total=False):
    """Of Kubernetes, by its names."""

    gracePeriodSeconds: int
    propagationPolicy: str


class RequestOptions(TypedDict, total=False):
    """Of any request."""

    query: Mapping[str, str]
    body: Object | list[Object]
    content_type: str
    accept: str
