"""The errors of `volumes`.

VolumesError
├── VolumeNotFound    there is no such volume, or it belongs to another owner (the same answer for both)
├── VolumeForbidden   the caller's role or rule does not allow it
├── VolumeConflict    the handle belongs to another owner, or something else is in the folder's place
└── VolumeUnavailable the same request may succeed later
    ├── TooManyVolumes    the caller makes too many
    └── VolumeFull        no space, or the user's quota is used up
"""

from __future__ import annotations


class VolumesError(Exception):
    """Base; `retry`: the same request may succeed later."""

    retry = False


class VolumeNotFound(VolumesError):
    """Also for volumes of others: a caller cannot find out that they exist."""

    def __init__(self) -> None:
        super().__init__("There is no such volume, or it is not yours.")


class VolumeForbidden(VolumesError):
    """The caller is authenticated, and not allowed."""


class VolumeConflict(VolumesError):
    """The handle, or a file in the folder's place, is in the way."""


class VolumeUnavailable(VolumesError):
    """A retry is right after `retry_after` seconds."""

    retry = True

    def __init__(self, detail: str, *, retry_after: float = 5.0) -> None:
        super().__init__(detail)
        self.retry_after = retry_after


class TooManyVolumes(VolumeUnavailable):
    """A limit of this caller's."""


class VolumeFull(VolumeUnavailable):
    """The kernel's ENOSPC or EDQUOT."""
