"""What comes between a companion and red-box: it waits, and in the end no byte is lost or doubled."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.companion.certificates import make_certificate
from tests.companion.fakes import ScriptedServer, serving
from tests.companion.harness import Pod
from tests.ports import free_port

DONE = {"phase": "Succeeded", "exitCode": 0, "jobID": "7", "state": "COMPLETED"}
HTML = b"<html>under maintenance</html>"
STRANGERS = (
    b"",
    b"HTTP/1.1 ",
    b"220 mail.example ESMTP\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\n" + HTML,
    b"HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n" + HTML,
    b"HTTP/1.1 204 No Content\r\n\r\n",
    b"HTTP/1.1 301 Moved\r\nLocation: https://elsewhere\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 404 Not Found\r\nContent-Length: 30\r\n\r\n" + HTML,
    b"HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\n{}",
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"HTTP/1.1 200 OK\r\nRedbox-Offset: 3\r\nContent-Length: 30\r\n\r\n" + HTML,
    b"HTTP/1.1 200 OK\r\nRedbox-Offset: -1\r\nContent-Length: 30\r\n\r\n" + HTML,
)


@pytest.mark.parametrize("stranger", STRANGERS)
def test_what_is_no_answer_of_red_box_is_asked_again_and_nothing_of_it_is_shown(
    redbox: ScriptedServer, pod: Pod, stranger: bytes
) -> None:
    redbox.strange = [stranger]
    redbox.logs["stdout"] = b"the jobs\n"
    ended = pod.run()
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"the jobs\n", b"")
    assert len(redbox.bodies) <= 2


@pytest.mark.parametrize("stranger", STRANGERS)
def test_a_stranger_in_the_midst_of_a_log_leaves_no_trace_in_it(
    redbox: ScriptedServer, pod: Pod, stranger: bytes
) -> None:
    redbox.job = DONE | {"phase": "Running"}
    redbox.after_log = DONE
    redbox.logs["stdout"] = bytes(range(256)) * 8
    redbox.break_after, redbox.breaks = 700, 1
    with pod.start(stdout=subprocess.PIPE, stderr=subprocess.PIPE) as companion:
        while not any("/logs/" in path for _, path in redbox.asked):
            assert companion.poll() is None
        redbox.strange = [stranger] * 2
        assert companion.communicate(timeout=60) == (redbox.logs["stdout"], b"")
    assert pod.termination_message["logs"] == "complete"


def test_a_certificate_of_another_authority_is_not_trusted_and_that_is_told(pod: Pod, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    pod.environ["REDBOX_CA_FILE"] = str(make_certificate(folder)[0])
    with pod.start(stderr=subprocess.PIPE) as companion:
        assert companion.stderr
        assert b"certificate verify failed" in companion.stderr.readline()
        companion.terminate()


def test_a_name_that_does_not_resolve_is_waited_for_and_told(pod: Pod) -> None:
    pod.environ["REDBOX_ENDPOINT"] = "https://redbox.invalid:8443"
    with pod.start(stderr=subprocess.PIPE) as companion:
        assert companion.stderr
        assert companion.stderr.readline().startswith(b"redbox: waiting for red-box: https://redbox.invalid")
        companion.terminate()


def test_a_red_box_that_is_restarted_is_come_back_to_and_the_log_is_whole(
    certificate: tuple[Path, Path], pod: Pod
) -> None:
    first = ScriptedServer(job=DONE | {"phase": "Running"}, break_after=300, port=free_port())
    first.logs["stdout"] = b"0123456789" * 100
    with serving(first, certificate):
        pod.environ["REDBOX_ENDPOINT"] = f"https://localhost:{first.port}"
        companion = pod.start(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while not any("offset=301" in path for _, path in first.asked):
            assert companion.poll() is None
    with companion, serving(ScriptedServer(logs=first.logs, job=DONE, port=first.port), certificate):
        assert companion.communicate(timeout=60) == (first.logs["stdout"], b"")


def test_each_request_carries_the_token_that_the_kubelet_has_put_there_last(
    redbox: ScriptedServer, pod: Pod
) -> None:
    redbox.job = DONE | {"phase": "Running"}
    redbox.refuse_log = {"stdout": (401, {"title": "The caller is not known", "detail": "expired"})}
    with pod.start(stderr=subprocess.PIPE) as companion:
        while not any("/logs/stdout" in path for _, path in redbox.asked):
            assert companion.poll() is None
        (pod.folder / "token").write_text("the-next-token\n")
        redbox.refuse_log, redbox.job = {}, DONE
        assert companion.communicate(timeout=60)[1] == b""
        assert companion.returncode == 0
    assert redbox.tokens == {"Bearer the-token", "Bearer the-next-token"}


@pytest.mark.parametrize("token", [b"\xff\xfe", b"two\nlines", b""])
def test_a_token_that_is_none_yet_is_waited_for_and_never_shown(pod: Pod, token: bytes) -> None:
    (pod.folder / "token").write_bytes(token)
    with pod.start(stderr=subprocess.PIPE) as companion:
        assert companion.stderr
        assert companion.stderr.readline().endswith(f"there is no token yet in {pod.folder}/token\n".encode())
        (pod.folder / "token").write_text("the-token")
        assert companion.wait(timeout=60) == 0


def test_a_mapping_that_is_gone_for_a_moment_does_not_end_a_job_that_is_there(
    redbox: ScriptedServer, pod: Pod
) -> None:
    redbox.job = DONE | {"phase": "Running"}
    redbox.after_log = DONE
    refused = (403, {"title": "The caller may not do this", "detail": "no mapping", "retry": False})
    redbox.refuse_log = {"stdout": refused, "stderr": refused}
    with pod.start(stderr=subprocess.PIPE) as companion:
        while sum("/logs/" in path for _, path in redbox.asked) < 4:
            assert companion.poll() is None
        redbox.refuse_log = {}
        assert companion.communicate(timeout=60)[1] == b""
        assert companion.returncode == 0
