"""A red-box that stumbles by script, and the pod of a companion that talks to it."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.companion.certificates import make_certificate
from tests.companion.fakes import ScriptedServer, serving
from tests.companion.harness import Pod


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def redbox(certificate: tuple[Path, Path]) -> Iterator[ScriptedServer]:
    with serving(ScriptedServer(), certificate) as scripted:
        yield scripted


@pytest.fixture
def pod(tmp_path: Path, redbox: ScriptedServer, certificate: tuple[Path, Path]) -> Pod:
    (tmp_path / "token").write_text("the-token\n")
    (tmp_path / "request.json").write_text(json.dumps({"batch": "#!/bin/sh\necho hi\n", "env": {"A": "1"}}))
    environ = {
        "PATH": os.environ["PATH"],
        "REDBOX_ENDPOINT": f"https://localhost:{redbox.port}",
        "REDBOX_CA_FILE": str(certificate[0]),
        "REDBOX_KEY": str(
            uuid.uuid4()
        ),  # names the companion's socket: two tests at once each have their own
        "REDBOX_TOKEN_FILE": str(tmp_path / "token"),
        "REDBOX_REQUEST_FILE": str(tmp_path / "request.json"),
        "REDBOX_TERMINATION_FILE": str(tmp_path / "termination"),
    }
    return Pod(tmp_path, environ)
