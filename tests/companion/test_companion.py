"""What a pod's owner sees of the companion, against a red-box that stumbles by script."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from redbox_companion.companion import POLL_S
from redbox_shared.wire import PROBLEMS
from tests.companion.fakes import ScriptedServer
from tests.companion.harness import Pod

DONE = {"phase": "Succeeded", "exitCode": 0, "jobID": "7", "state": "COMPLETED"}


def test_it_submits_relays_both_streams_apart_and_says_that_it_is_done(
    redbox: ScriptedServer, pod: Pod
) -> None:
    redbox.logs = {"stdout": b"to out\n\x00\xff", "stderr": b"to err\n"}
    ended = pod.run()
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"to out\n\x00\xff", b"to err\n")
    assert pod.termination_message == {
        "final": True,
        "logs": "complete",
        "exitCode": 0,
        "jobID": "7",
        "phase": "Succeeded",
        "state": "COMPLETED",
    }


def test_the_job_in_a_submits_answer_is_not_requested_again(redbox: ScriptedServer, pod: Pod) -> None:
    pod.run()
    of_the_job = [method for method, path in redbox.asked if "/logs/" not in path]
    assert of_the_job == ["GET", "PUT", "GET"]  # is there one; submit; how it ended


def test_values_that_only_the_pod_knows_go_into_the_request(redbox: ScriptedServer, pod: Pod) -> None:
    pod.environ["REDBOX_ENV_PASSWORD"] = "a,b\n'ü"
    pod.run()
    assert redbox.bodies[0]["env"] == {"A": "1", "PASSWORD": "a,b\n'ü"}


def test_it_attaches_to_a_job_that_exists_and_never_submits_then(redbox: ScriptedServer, pod: Pod) -> None:
    redbox.job = DONE | {"phase": "Failed", "exitCode": 3, "state": "FAILED"}
    assert pod.run().returncode == 3
    assert redbox.bodies == []


def test_a_submit_that_is_in_doubt_is_asked_for_again(redbox: ScriptedServer, pod: Pod) -> None:
    redbox.job = {"phase": "Submitting"}
    assert pod.run().returncode == 0
    assert len(redbox.bodies) == 1


def test_answers_that_break_off_lose_and_double_no_byte(redbox: ScriptedServer, pod: Pod) -> None:
    redbox.logs["stdout"] = bytes(range(256)) * 20
    redbox.break_after = 1500
    assert pod.run().stdout == redbox.logs["stdout"]


def test_a_red_box_that_is_not_ready_is_asked_again(redbox: ScriptedServer, pod: Pod) -> None:
    redbox.failures = [503, 503, 401, 500]
    assert pod.run().returncode == 0


def test_a_refusal_is_told_in_words_and_is_not_tried_again(redbox: ScriptedServer, pod: Pod) -> None:
    redbox.refuse_put = [
        (422, {"title": "This cannot work", "detail": "invalid partition: nope", "retry": False})
    ]
    ended = pod.run()
    assert ended.returncode == 65
    assert ended.stderr == b"redbox: This cannot work: invalid partition: nope\n"
    assert pod.termination_message == {
        "refused": "This cannot work: invalid partition: nope",
        "type": f"{PROBLEMS}scripted",
    }
    assert len(redbox.bodies) == 1


def test_a_caller_who_may_not_gets_another_code(redbox: ScriptedServer, pod: Pod) -> None:
    redbox.refuse_put = [
        (403, {"title": "The caller may not do this", "detail": "no mapping", "retry": False})
    ]
    assert pod.run().returncode == 77


def test_a_long_refusal_is_cut_until_the_kubelet_takes_the_whole_word(
    redbox: ScriptedServer, pod: Pod
) -> None:
    redbox.refuse_put = [(422, {"title": "No", "detail": "ü\x1b" * 4000, "retry": False})]
    pod.run()
    assert pod.termination_message["refused"].startswith("No: ü")


def test_a_key_that_is_taken_by_another_body_is_attached_to_and_that_is_told(
    redbox: ScriptedServer, pod: Pod
) -> None:
    redbox.job = {"phase": "Submitting"}
    redbox.refuse_put = [(409, {"title": "The key is taken", "detail": "another body"})]
    redbox.after_log = DONE
    assert pod.run().returncode == 0
    assert pod.termination_message["specDrift"] == "The key is taken: another body"


def test_a_key_of_another_body_whose_submit_is_in_doubt_is_asked_for_with_pauses(
    redbox: ScriptedServer, pod: Pod
) -> None:
    redbox.job = {"phase": "Submitting"}
    redbox.refuse_put = [(409, {"title": "The key is taken", "detail": "another body"})] * 10_000
    began = time.monotonic()
    process = pod.start()
    while not redbox.bodies:
        threading.Event().wait(0.05)
    threading.Event().wait(1)
    process.kill()
    process.wait()
    assert len(redbox.bodies) <= 1 + (time.monotonic() - began) / POLL_S


def test_a_key_that_stands_for_nothing_any_more_is_a_refusal(redbox: ScriptedServer, pod: Pod) -> None:
    redbox.refuse_put = [(409, {"title": "The key is taken", "detail": "it was cancelled"})]
    assert pod.run().returncode == 65
    assert pod.termination_message["refused"] == "The key is taken: it was cancelled"


def test_a_registrys_credentials_go_into_the_request(redbox: ScriptedServer, pod: Pod) -> None:
    (pod.folder / "request.json").write_text('{"container": {"image": "docker://private/cow"}}')
    pod.environ |= {"REDBOX_REGISTRY_USERNAME": "alice", "REDBOX_REGISTRY_PASSWORD": "secret"}
    pod.run()
    credentials = {"username": "alice", "password": "secret"}
    assert redbox.bodies == [{"container": {"image": "docker://private/cow", "registry": credentials}}]


def test_a_script_of_a_config_map_goes_into_the_request_as_it_is(redbox: ScriptedServer, pod: Pod) -> None:
    script = "#!/bin/sh\necho ü\n" + "#" * 900_000
    (pod.folder / "batch").write_text(script, "utf-8")
    (pod.folder / "request.json").write_text('{"name": "cow"}')
    pod.environ["REDBOX_BATCH_FILE"] = str(pod.folder / "batch")
    pod.run()
    assert redbox.bodies == [{"name": "cow", "batch": script}]


def test_a_caller_who_stays_unknown_is_refused_in_the_end(redbox: ScriptedServer, pod: Pod) -> None:
    pod.environ["REDBOX_LOST_AFTER"] = "5"  # the third refusal is told, after a second
    redbox.failures = [401] * 100
    ended = pod.run()
    assert (ended.returncode, redbox.bodies) == (77, [])
    assert ended.stderr.startswith(b"redbox: waiting for red-box: Not now: starting\n")


def test_a_log_that_cannot_be_read_does_not_change_the_jobs_outcome(redbox: ScriptedServer, pod: Pod) -> None:
    redbox.job = DONE
    redbox.refuse_log = {
        "stderr": (403, {"title": "Not readable", "detail": "permission denied", "retry": False})
    }
    ended = pod.run()
    assert ended.returncode == 0
    assert ended.stderr == b"redbox: stderr cannot be read: Not readable: permission denied\n"
    assert pod.termination_message["logs"] == "unread"


def test_a_log_that_red_box_does_not_know_for_a_while_is_read_while_the_job_lives(
    redbox: ScriptedServer, pod: Pod
) -> None:
    redbox.job = DONE | {"phase": "Running"}
    redbox.logs["stdout"] = b"late\n"
    redbox.after_log = DONE
    redbox.refuse_log = {"stdout": (404, {"title": "There is no such thing", "detail": "no such job"})}
    with pod.start(stdout=subprocess.PIPE, stderr=subprocess.PIPE) as companion:
        while sum("/logs/stdout" in path for _, path in redbox.asked) < 2:
            assert companion.poll() is None
        redbox.refuse_log = {}
        assert companion.communicate(timeout=60) == (b"late\n", b"")
    assert pod.termination_message["logs"] == "complete"


def test_logs_are_asked_for_when_slurm_has_shown_the_job(redbox: ScriptedServer, pod: Pod) -> None:
    redbox.job = {"phase": "Pending", "jobID": "7"}
    with pod.start() as companion:
        while len(redbox.asked) < 4:
            assert companion.poll() is None
        assert not any("/logs/" in path for _, path in redbox.asked)
        redbox.job = DONE
        assert companion.wait(timeout=60) == 0


def test_a_job_that_red_box_knew_and_no_longer_knows_is_lost(redbox: ScriptedServer, pod: Pod) -> None:
    pod.environ["REDBOX_LOST_AFTER"] = "1"
    redbox.job = DONE | {"phase": "Running"}
    with pod.start(stderr=subprocess.PIPE) as companion:
        while len(redbox.asked) < 3:  # attached, and following
            assert companion.poll() is None
        redbox.job = None
        assert companion.wait(timeout=60) == 70
    assert [method for method, _ in redbox.asked if method == "PUT"] == []


@pytest.mark.parametrize("thread", [min, max])  # after a freeze, any thread may be the first to take it
def test_a_stdout_that_nobody_reads_holds_up_neither_stderr_nor_sigterm(
    redbox: ScriptedServer, pod: Pod, thread: Callable[[list[int]], int]
) -> None:
    redbox.piece = 65536
    redbox.logs = {"stdout": bytes(4_000_000), "stderr": b"heard\n"}
    redbox.job = DONE
    with pod.start(stdout=subprocess.PIPE, stderr=subprocess.PIPE) as companion:
        assert companion.stderr
        assert companion.stderr.readline() == b"heard\n"
        taker = thread([int(task.name) for task in Path(f"/proc/{companion.pid}/task").iterdir()])
        assert ctypes.CDLL(None).tgkill(companion.pid, taker, signal.SIGTERM) == 0
        assert companion.wait(timeout=60) == 143


def test_a_stdout_that_is_closed_cuts_the_log_and_leaves_the_outcome(
    redbox: ScriptedServer, pod: Pod
) -> None:
    redbox.job = DONE | {"phase": "Failed", "exitCode": 4, "state": "FAILED"}
    redbox.logs["stdout"] = b"to nobody\n"
    reader, writer = os.pipe()
    os.close(reader)
    with pod.start(stdout=writer) as companion:
        os.close(writer)
        assert companion.wait(timeout=60) == 4
    assert pod.termination_message["logs"] == "cut"


def test_with_submit_only_it_ends_as_soon_as_the_job_is_submitted(redbox: ScriptedServer, pod: Pod) -> None:
    redbox.logs["stdout"] = b"not read here\n"
    ended = pod.run("--submit-only")
    assert (ended.returncode, ended.stdout) == (0, b"")
    assert (len(redbox.bodies), pod.termination_message["jobID"]) == (1, "7")
    assert not any("/logs/" in path for _, path in redbox.asked)


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
def test_it_exits_as_the_job_did(redbox: ScriptedServer, pod: Pod, job: dict[str, Any], code: int) -> None:
    redbox.job = job
    assert pod.run().returncode == code


def test_a_message_for_a_person_is_a_line_of_its_own_behind_all_of_the_jobs(
    redbox: ScriptedServer, pod: Pod
) -> None:
    redbox.job = {"phase": "Failed", "state": "TIMEOUT", "message": "it ran into\nits limit of 1 minute"}
    redbox.logs["stderr"] = b"half a line"
    assert pod.run().stderr == b"half a line\nredbox: it ran into its limit of 1 minute\n"


@pytest.mark.parametrize("end", [{"signal": 11, "exitCode": None}, {"exitCode": None}])
def test_an_end_that_no_exit_code_tells_is_told_in_words(
    redbox: ScriptedServer, pod: Pod, end: dict[str, Any]
) -> None:
    redbox.job = {"phase": "Failed", "state": "FAILED", "message": "It was ended.", **end}
    assert pod.run().stderr == b"redbox: It was ended.\n"


def test_an_exit_code_is_not_told_in_words_too(redbox: ScriptedServer, pod: Pod) -> None:
    redbox.job = {"phase": "Failed", "state": "FAILED", "exitCode": 3, "message": "It exited with code 3."}
    ended = pod.run()
    assert (ended.returncode, ended.stderr) == (3, b"")


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("REDBOX_ENDPOINT", "http://plain", b"https://"),
        ("REDBOX_KEY", "../../etc", b"REDBOX_KEY"),
        ("REDBOX_ATTEMPT", "zero", b"REDBOX_ATTEMPT"),
        ("REDBOX_ATTEMPT", "²", b"REDBOX_ATTEMPT"),
        ("REDBOX_ENDPOINT", "https://host:port", b"REDBOX_ENDPOINT"),
        ("REDBOX_REQUEST_FILE", "/nowhere", b"/nowhere"),
        ("REDBOX_REQUEST_FILE", "/dev/null", b"/dev/null"),
        ("REDBOX_CA_FILE", "/nowhere", b"REDBOX_CA_FILE"),
        ("REDBOX_CA_FILE", __file__, b"REDBOX_CA_FILE"),
        ("REDBOX_MODE", "half", b"REDBOX_MODE"),
        ("REDBOX_MODE", "helper", b"neither REDBOX_PORTS nor REDBOX_RESULTS"),
        ("REDBOX_RESULTS", "[]", b"REDBOX_RESULTS"),
        ("REDBOX_RESULTS", '{"from": "out"}', b"REDBOX_RESULTS"),
        ("REDBOX_RESULTS", '{"from": ["out"], "when": "Never"}', b"REDBOX_RESULTS"),
    ],
)
def test_a_pod_that_was_made_wrong_is_told_so(pod: Pod, name: str, value: str, word: bytes) -> None:
    pod.environ[name] = value
    ended = pod.run()
    assert ended.returncode == 78
    assert word in ended.stderr
    assert b"Traceback" not in ended.stderr
    assert word.decode() in pod.termination_message["refused"]


def test_a_flag_that_it_does_not_know_is_refused_by_its_name(pod: Pod) -> None:
    ended = pod.run("--submit")
    assert (ended.returncode, b"unknown option --submit" in ended.stderr) == (78, True)


def test_a_word_that_is_not_a_command_is_refused_and_leaves_the_pods_message_alone(pod: Pod) -> None:
    """It is typed into the container of a companion that runs."""
    ended = pod.run("shel")
    assert (ended.returncode, b"there is no command 'shel'" in ended.stderr) == (2, True)
    assert not (pod.folder / "termination").exists() or not (pod.folder / "termination").read_text()


def test_a_defect_of_its_own_is_not_taken_for_the_jobs_exit_code(redbox: ScriptedServer, pod: Pod) -> None:
    redbox.job = DONE | {"array": {"total": 1}, "tasks": ["nonsense"]}
    redbox.refuse_log = {name: (422, {"title": "An array", "retry": False}) for name in ("stdout", "stderr")}
    assert pod.run().returncode == 0
    assert pod.termination_message["logs"] == "cut"


def test_sigterm_ends_it_while_the_job_lives_on(redbox: ScriptedServer, pod: Pod) -> None:
    redbox.job = DONE | {"phase": "Running"}
    with pod.start() as companion:
        while len(redbox.asked) < 4:  # attached, and following
            assert companion.poll() is None
        companion.send_signal(signal.SIGTERM)
        assert companion.wait(timeout=60) == 143
    assert all(method != "DELETE" for method, _ in redbox.asked)
    assert not (pod.folder / "termination").exists()
