"""The id of the current request: in its response, in the log, in audit lines."""

from __future__ import annotations

from contextvars import ContextVar

request_id: ContextVar[str] = ContextVar("request_id", default="-")
