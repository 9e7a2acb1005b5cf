"""What a pod's owner sees of the companion, against a red-box that stumbles by script."""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.companion.scripted import Scripted, serving

DONE = {"phase": "Succeeded", "exitCode": 0, "jobID": "7", "state": "COMPLETED"}


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=1))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "tls.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "tls.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return folder / "tls.crt", folder / "tls.key"


@dataclass
class Pod:
    """The folder and environment that a companion finds in its pod."""

    folder: Path
    environ: dict[str, str]

    def run(self, *, timeout: float = 30) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [sys.executable, "-m", "redbox_companion"],
            env=self.environ,
            capture_output=True,
            timeout=timeout,
            check=False,
        )

    @property
    def word(self) -> dict[str, Any]:
        word: dict[str, Any] = json.loads((self.folder / "termination").read_text())
        return word


@pytest.fixture
def redbox(certificate: tuple[Path, Path]) -> Iterator[Scripted]:
    with serving(Scripted(), certificate) as scripted:
        yield scripted


@pytest.fixture
def pod(tmp_path: Path, redbox: Scripted, certificate: tuple[Path, Path]) -> Pod:
    (tmp_path / "token").write_text("the-token\n")
    (tmp_path / "request.json").write_text(json.dumps({"batch": "#!/bin/sh\necho hi\n", "env": {"A": "1"}}))
    environ = {
        "PATH": os.environ["PATH"],
        "REDBOX_ENDPOINT": f"https://localhost:{redbox.port}",
        "REDBOX_CA_FILE": str(certificate[0]),
        "REDBOX_KEY": "0aa6-1",
        "REDBOX_TOKEN_FILE": str(tmp_path / "token"),
        "REDBOX_REQUEST_FILE": str(tmp_path / "request.json"),
        "REDBOX_TERMINATION_FILE": str(tmp_path / "termination"),
    }
    return Pod(tmp_path, environ)


def test_it_submits_relays_both_streams_apart_and_says_that_it_is_done(redbox: Scripted, pod: Pod) -> None:
    redbox.logs = {"stdout": b"to out\n\x00\xff", "stderr": b"to err\n"}
    ended = pod.run()
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"to out\n\x00\xff", b"to err\n")
    assert pod.word == {
        "final": True,
        "logs": "complete",
        "exitCode": 0,
        "jobID": "7",
        "phase": "Succeeded",
        "state": "COMPLETED",
    }


def test_values_that_only_the_pod_knows_go_into_the_request(redbox: Scripted, pod: Pod) -> None:
    pod.environ["REDBOX_ENV_PASSWORD"] = "a,b\n'ü"
    pod.run()
    assert redbox.bodies[0]["env"] == {"A": "1", "PASSWORD": "a,b\n'ü"}


def test_it_attaches_to_a_job_that_exists_and_never_submits_then(redbox: Scripted, pod: Pod) -> None:
    redbox.job = DONE | {"phase": "Failed", "exitCode": 3, "state": "FAILED"}
    assert pod.run().returncode == 3
    assert redbox.bodies == []


def test_a_submit_that_is_in_doubt_is_asked_for_again(redbox: Scripted, pod: Pod) -> None:
    redbox.job = {"phase": "Submitting"}
    assert pod.run().returncode == 0
    assert len(redbox.bodies) == 1


def test_answers_that_break_off_lose_and_double_no_byte(redbox: Scripted, pod: Pod) -> None:
    redbox.logs["stdout"] = bytes(range(256)) * 20
    redbox.break_after = 1500
    assert pod.run(timeout=60).stdout == redbox.logs["stdout"]


def test_a_red_box_that_is_not_ready_is_asked_again(redbox: Scripted, pod: Pod) -> None:
    redbox.failures = [503, 503, 401, 500]
    assert pod.run().returncode == 0


def test_a_refusal_is_told_in_words_and_is_not_tried_again(redbox: Scripted, pod: Pod) -> None:
    redbox.refuse_put = (
        422,
        {"title": "This cannot work", "detail": "invalid partition: nope", "retry": False},
    )
    ended = pod.run()
    assert ended.returncode == 65
    assert ended.stderr == b"redbox: This cannot work: invalid partition: nope\n"
    assert pod.word["refused"] == "This cannot work: invalid partition: nope"
    assert len(redbox.bodies) == 1


def test_a_caller_who_may_not_gets_another_code(redbox: Scripted, pod: Pod) -> None:
    redbox.refuse_put = (403, {"title": "The caller may not do this", "detail": "no mapping", "retry": False})
    assert pod.run().returncode == 77


def test_a_log_that_cannot_be_read_does_not_change_the_jobs_outcome(redbox: Scripted, pod: Pod) -> None:
    redbox.job = DONE
    redbox.refuse_log = {
        "stderr": (403, {"title": "Not readable", "detail": "permission denied", "retry": False})
    }
    ended = pod.run()
    assert ended.returncode == 0
    assert ended.stderr == b"redbox: stderr cannot be read: Not readable: permission denied\n"
    assert pod.word["logs"] == "stderr: Not readable: permission denied"


@pytest.mark.parametrize(
    ("job", "code"),
    [
        ({"phase": "Failed", "state": "FAILED", "exitCode": 300 & 0xFF}, 44),
        ({"phase": "Failed", "state": "FAILED", "exitCode": 0, "signal": 9}, 137),
        ({"phase": "Failed", "state": "TIMEOUT", "exitCode": 0}, 124),
        ({"phase": "Failed", "state": "OUT_OF_MEMORY", "exitCode": 0, "signal": 125}, 137),
        ({"phase": "Failed", "state": "NODE_FAIL", "exitCode": 1}, 75),
        ({"phase": "Failed", "state": "FAILED", "exitCode": None}, 1),
        ({"phase": "Cancelled", "state": "CANCELLED", "signal": 15}, 143),
        ({"phase": "Lost", "message": "Slurm no longer knows it"}, 70),
    ],
)
def test_it_exits_as_the_job_did(redbox: Scripted, pod: Pod, job: dict[str, Any], code: int) -> None:
    redbox.job = job
    assert pod.run().returncode == code


def test_a_message_for_a_person_is_the_last_line(redbox: Scripted, pod: Pod) -> None:
    redbox.job = {"phase": "Failed", "state": "TIMEOUT", "message": "it ran into its time limit of 1 minute"}
    assert pod.run().stderr == b"redbox: it ran into its time limit of 1 minute\n"


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("REDBOX_ENDPOINT", "http://plain", b"https://"),
        ("REDBOX_KEY", "../../etc", b"REDBOX_KEY"),
        ("REDBOX_ATTEMPT", "zero", b"REDBOX_ATTEMPT"),
        ("REDBOX_REQUEST_FILE", "/nowhere", b"/nowhere"),
    ],
)
def test_a_pod_that_was_made_wrong_is_told_so(pod: Pod, name: str, value: str, word: bytes) -> None:
    pod.environ[name] = value
    ended = pod.run()
    assert ended.returncode == 78
    assert word in ended.stderr
    assert b"Traceback" not in ended.stderr


def test_sigterm_ends_it_while_the_job_lives_on(redbox: Scripted, pod: Pod) -> None:
    redbox.job = DONE | {"phase": "Running"}
    with subprocess.Popen([sys.executable, "-m", "redbox_companion"], env=pod.environ) as companion:
        while len(redbox.asked) < 4:  # attached, and following
            assert companion.poll() is None
        companion.send_signal(signal.SIGTERM)
        assert companion.wait(timeout=10) == 143
    assert all(method != "DELETE" for method, _ in redbox.asked)
    assert not (pod.folder / "termination").exists()
