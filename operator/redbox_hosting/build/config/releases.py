"""The releases of Slurm that can be hosted, and what differs between their configurations."""

from __future__ import annotations

import re
from enum import StrEnum

from redbox_kube.controller.steps import StepFailed

TAG = re.compile(r"(?:[^@]*/)?[^/:@]+:v?([0-9]{2}\.[0-9]{2})(?:[.-][A-Za-z0-9_.-]*)?(?:@.*)?")


class SlurmRelease(StrEnum):
    """A release of Slurm, as in the tag of its image."""

    R24_11 = "24.11"
    R26_05 = "26.05"

    @property
    def has_metrics(self) -> bool:
        """Whether slurmctld serves metrics and probes by HTTP; an older slurmd dies of the key."""
        return self is not SlurmRelease.R24_11


class UnknownRelease(StepFailed):
    """The tag of an image is not that of a release that can be hosted."""


def release_of(image: str) -> SlurmRelease:
    """By the tag, which begins with the release: 26.05, 26.05.5 or 26.05-1. Raises UnknownRelease."""
    match = TAG.fullmatch(image)
    if match and match[1] in list(SlurmRelease):
        return SlurmRelease(match[1])
    hosted = " or ".join(SlurmRelease)
    raise UnknownRelease(f"the image {image[:200]} has no tag that begins with {hosted}: name one that has")
