"""What no job can have."""

from __future__ import annotations


class Unsupported(Exception):
    """A field or a value that no job can have; the message is a sentence with the field's name."""
