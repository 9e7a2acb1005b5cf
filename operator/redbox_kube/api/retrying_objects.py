"""A client for one-shot commands: requests that may succeed later are retried.

The controllers do not need this, because they reconcile again anyway.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import Unpack

from redbox_kube.api.kubernetes_client import client
from redbox_kube.api.objects import ApiError, ApiRefused, ApiTooLong, ObjectClient
from redbox_kube.api.request_options import RequestOptions
from redbox_shared.backoff import Backoff

BACKOFF = Backoff(0.5, 8.0)
RETRIES = 5
WAITS_S = 960.0  # for all requests together, a minute for each of 16 at a time; Helm gives up before


class RetryingObjects(ObjectClient):
    """Retries requests, which must be idempotent or name a resourceVersion."""

    def __init__(self, api: client.ApiClient, field_manager: str) -> None:
        super().__init__(api, field_manager)
        self._waits_left_s = WAITS_S

    async def answer(self, method: str, path: str, **options: Unpack[RequestOptions]) -> bytes:
        for failures in range(1, RETRIES + 1):
            try:
                return await super().answer(method, path, **options)
            except ApiError as error:
                if not is_transient(error) or self._waits_left_s <= 0:
                    raise
            wait_s = BACKOFF.pause_s(failures)
            self._waits_left_s -= wait_s
            await asyncio.sleep(wait_s)
        return await super().answer(method, path, **options)


def is_transient(error: ApiError) -> bool:
    """Whether the same request may succeed later."""
    if not isinstance(error, ApiRefused):
        return not isinstance(error, ApiTooLong)
    return error.status == HTTPStatus.TOO_MANY_REQUESTS or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR
