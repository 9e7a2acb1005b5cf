"""How large an answer may be, or an event of a watch, before any of it is parsed.

Bytes alone bound neither memory nor time: `[]` is two bytes on the line and 500 in the parser. So values are
counted in the text. Nesting needs no bound of ours: the JSON parser ends at 200 levels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
"""Also one without an end: then all after it would be searched again from each later quote."""


class OutOfBounds(ValueError):
    """The response is larger, or slower, than responses of this server are."""


@dataclass(frozen=True, slots=True)
class AnswerLimits:
    """Of one answer; the defaults are for a red-box that an administrator vouches for."""

    longest: int = 64 << 20
    """Bytes, which are held in memory at once: an array of 50,000 tasks is 8 MiB."""
    values: int = 4 << 20
    """For the most part names of nodes: a page of 500 jobs on 8,000 nodes each."""
    containers: int = 512 << 10
    """Objects and lists: one for each task of an array, some hundreds for a pod."""

    def check_bytes(self, read: int) -> None:
        """Raise OutOfBounds for an answer of which so much has come."""
        if read > self.longest:
            raise OutOfBounds(f"an answer of more than {self.longest / 2**20:g} MiB")

    def check(self, body: bytes) -> None:
        """Raise OutOfBounds for an answer that costs more to parse."""
        if self._excess(body):  # perhaps of what users have written into names and messages
            excess = self._excess(STRING.sub(b"", body))
            if excess:
                raise OutOfBounds(f"an answer with more than {excess}")

    def _excess(self, body: bytes) -> str:
        containers = body.count(b"{") + body.count(b"[")
        if containers > self.containers:
            return f"{self.containers:,} objects and lists"
        return f"{self.values:,} values" if containers + body.count(b",") > self.values else ""
