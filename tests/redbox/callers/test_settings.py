"""The audience of a red-box: in the settings, or in the file that a SlurmEndpoint's ConfigMap has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from redbox.callers.settings import ClusterSettings

AUDIENCE = "redbox.dev/ns/alice/0b0f2f0e-6f5e-4d3c-9a52-3d0f6a3f1c11"


def cluster(**given: Any) -> ClusterSettings:
    return ClusterSettings.model_validate(
        {"name": "kube", "issuer": "https://kube", "jwks_file": "/k", **given}
    )


def test_an_audience_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "audience"
    file.write_text(f"{AUDIENCE}\n")
    assert cluster(audience_file=str(file)).audience == AUDIENCE


@pytest.mark.parametrize("content", [None, "", "https://kubernetes.default.svc\n"])
def test_a_file_without_an_audience_of_a_red_box_is_refused(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "audience"
    if content is not None:
        file.write_text(content)
    with pytest.raises(ValidationError, match="audience"):
        cluster(audience_file=str(file))


def test_an_audience_and_a_file_with_one_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="only one of audience and audience_file"):
        cluster(audience=AUDIENCE, audience_file=str(tmp_path))
    with pytest.raises(ValidationError, match="audience"):
        cluster()
