"""Text of this host, made fit to be sent.

A file's name is bytes. Bytes that are not UTF-8 are lone surrogates in Python's text, which JSON in UTF-8
cannot carry.
"""

from __future__ import annotations


def encodable(text: str) -> str:
    """Replace lone surrogates by U+FFFD."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
