"""Text of this host that may be told to others.

A file's name is bytes: those that are no UTF-8 are lone surrogates in text, which cannot be sent.
"""

from __future__ import annotations


def printable(text: str) -> str:
    """The same, with a mark in the place of each of them."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
