"""A real relay: what it runs, what it ends, and what it leaves behind, which is nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from redbox.relay.program import frames
from redbox.relay.program.relay import Relay
from redbox.relay.program.streams import LEAST_READ, ORPHANS_S
from redbox.relay.program_source import PYTHON, relay_source
from redbox_shared.credit import ReceiveCredit
from tests.ports import free_port
from tests.redbox.relay.harness import RelayProcess, started

SH = ("/bin/sh", "-c")


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until_gone(pid: int) -> None:
    deadline = time.monotonic() + 60
    while is_running(pid):
        assert time.monotonic() < deadline, f"{pid} is still there"
        os.sched_yield()


def pids_in(output: bytes) -> list[int]:
    return [int(word) for word in output.split()]


def first_output(relay: RelayProcess) -> bytes:
    while (frame := relay.receive()).kind != frames.DATA:
        pass
    return frame.payload[1:]


def test_what_a_session_left_in_a_session_of_its_own_ends_with_the_relay() -> None:
    with started() as relay:
        relay.open(1, *SH, "setsid sleep 611.25 & echo $!; exec cat")
        (pid,) = pids_in(first_output(relay))
        relay.send(frames.KILL, 1)
        relay.process.stdin.close()  # type: ignore[union-attr]
        relay.process.stdin = None
        relay.process.wait(60)
        until_gone(pid)


def test_sessions_end_with_a_relay_that_is_killed() -> None:
    with started() as relay:
        relay.open(1, *SH, "echo $$; exec sleep 612.25")
        (pid,) = pids_in(first_output(relay))
        relay.process.kill()
        until_gone(pid)


def test_the_end_of_input_ends_a_terminals_line_that_has_begun() -> None:
    with started() as relay:
        relay.open(1, *SH, "stty -echo; echo ready; cat; exit 5", tty=True)
        assert first_output(relay) == b"ready\r\n"
        relay.send(frames.DATA, 1, b"\0no newline")
        relay.send(frames.CLOSE, 1, b"\0")
        assert relay.until_status(1) == (b"no newline", {"code": 5})


@pytest.mark.parametrize(
    ("script", "output"),
    [
        ("sleep 0.3", b""),
        ("sleep 0.3; echo again > /dev/tty", b"again\r\n"),
        ("sleep 0.3; read line < /dev/tty; echo $line > /dev/tty", b"typed\r\n"),
    ],
)
def test_a_command_that_closes_its_terminal_goes_on(script: str, output: bytes) -> None:
    """As cat, sort and others do before they exit: the relay's end, closed too, would be their SIGHUP."""
    with started() as relay:
        relay.open(1, *SH, f"stty -echo; echo ready; exec <&- >&- 2>&-; {script}; exit 5", tty=True)
        assert first_output(relay) == b"ready\r\n"
        relay.send(frames.DATA, 1, b"\0typed\n")
        assert relay.until_status(1) == (output, {"code": 5})


def test_a_killed_stream_ends_its_processes_and_no_others() -> None:
    with started() as relay:
        relay.open(1, *SH, "trap '' HUP; echo $$; sleep 613.25", tty=True)
        (pid,) = pids_in(first_output(relay))
        relay.open(2, "cat")
        relay.send(frames.KILL, 1)
        until_gone(pid)
        relay.send(frames.DATA, 2, b"\0there")
        assert first_output(relay) == b"there"


def test_a_relay_without_streams_ends() -> None:
    with started(idle_s=0.2) as relay:
        relay.process.wait(60)
        assert relay.process.returncode == 0


def test_a_relay_whose_streams_are_all_refused_does_not_end() -> None:
    """A port of a server that takes minutes to start is tried again and again."""
    relay = Relay(0, 1, 60, 45)
    relay._last_stream -= 61
    assert relay._is_over()
    relay._open(1, {"kind": "port", "port": free_port(), "job": "7"})
    assert not relay._is_over()


def test_a_relay_without_a_heartbeat_ends_with_its_sessions() -> None:
    with started(heartbeat_s=3) as relay:
        relay.open(1, *SH, "echo $$; exec sleep 614.25")
        relay.send(frames.PING, 0)
        while (frame := relay.receive()).kind != frames.DATA:  # a command may take longer to start
            relay.send(frames.PING, 0)
        (pid,) = pids_in(frame.payload[1:])
        relay.process.wait(60)
        until_gone(pid)


STOPS_ONCE = b"""self._send(PONG, 0)
            if STOPS:
                os.kill(os.getpid(), STOPS.pop())"""


def test_a_relay_that_was_stopped_with_its_job_goes_on_wherever_it_was() -> None:
    """Frames have come meanwhile, which it has not read: only in its pauses it would see them first."""
    changes = {
        b"class HungUpGroup:": b"STOPS = [signal.SIGSTOP]\n\n\nclass HungUpGroup:",
        b"self._send(PONG, 0)": STOPS_ONCE,
    }
    with started(heartbeat_s=2, changes=changes) as relay:
        relay.send(frames.PING, 0)
        os.waitpid(relay.process.pid, os.WUNTRACED)
        time.sleep(3)
        relay.send(frames.PING, 0)
        relay.process.send_signal(signal.SIGCONT)
        assert [relay.receive().kind for _ in range(2)] == [frames.PONG, frames.PONG]


def test_a_ping_is_answered() -> None:
    with started() as relay:
        relay.send(frames.PING, 0)
        assert relay.receive().kind == frames.PONG


def test_a_stream_without_credit_stops_alone() -> None:
    with started() as relay:
        relay.open(1, "yes")
        relay.open(2, *SH, "cat; exit 3")
        got = 0
        while got + frames.MAX_DATA < frames.OUTPUT_WINDOW - 4096 - frames.FRAME_COST * 2000:
            frame = relay.receive()
            assert frame.stream == 1
            got += len(frame.payload)
        relay.send(frames.DATA, 2, b"\0through")
        relay.send(frames.CLOSE, 2, b"\0")
        output, status = relay.until_status(2)
        assert (output, status) == (b"through", {"code": 3})


def test_both_outputs_come_whole_through_a_window_that_is_full() -> None:
    """As one of them takes the last of the credit, the other one was to be read in the same turn."""
    with started() as relay:
        count = 16 * frames.OUTPUT_WINDOW
        relay.open(1, *SH, f"head -c {count} /dev/zero & head -c {count} /dev/zero >&2; wait; exit 5")
        received = {frames.STDOUT: 0, frames.STDERR: 0}
        credit = ReceiveCredit(frames.OUTPUT_WINDOW)
        while (frame := relay.receive()).kind != frames.STATUS:
            received[frame.payload[0]] += len(frame.payload) - 1
            assert credit.receive(frames.data_cost(len(frame.payload) - 1))
            if granted := credit.consume(frames.data_cost(len(frame.payload) - 1)):
                relay.send(frames.CREDIT, 1, frames.CREDIT_BYTES.pack(granted))
        assert received == {frames.STDOUT: count, frames.STDERR: count}
        assert frames.read_report(frame.payload) == {"code": 5}


def test_the_last_output_comes_whole_to_a_reader_that_pauses_after_the_commands_end() -> None:
    with started() as relay:
        count = frames.OUTPUT_WINDOW + 30_000  # the rest fits into the command's pipe
        relay.open(1, "head", "-c", str(count), "/dev/zero")
        received = spent = 0
        while spent <= frames.OUTPUT_WINDOW - LEAST_READ:
            frame = relay.receive()
            received += len(frame.payload) - 1
            spent += frames.data_cost(len(frame.payload) - 1)
        time.sleep(3 * ORPHANS_S)
        relay.send(frames.CREDIT, 1, frames.CREDIT_BYTES.pack(spent))
        output, status = relay.until_status(1)
        assert (received + len(output), status) == (count, {"code": 0})


def test_output_of_a_process_that_is_left_behind_does_not_keep_a_session() -> None:
    with started() as relay:
        relay.open(1, *SH, "sleep 615.25 & echo $!; exit 4")
        output, status = relay.until_status(1)
        assert status == {"code": 4}
        until_gone(pids_in(output)[0])


def test_a_folder_on_a_file_system_that_hangs_holds_back_its_own_session_alone(tmp_path: Path) -> None:
    folder = tmp_path / "hangs"
    folder.mkdir()
    script = subprocess.Popen(["/bin/sleep", "600"], env={"SLURM_JOB_ID": "4714"}, cwd=folder)
    hangs = {b"os.chdir(folder)": b'time.sleep(600) if b"hangs" in folder else os.chdir(folder)'}
    try:
        with started(changes=hangs) as relay:
            relay.open(1, "true", job="4714")
            relay.open(2, "echo", "there")
            assert relay.until_status(2) == (b"there\n", {"code": 0})
            relay.send(frames.KILL, 1)
    finally:
        script.kill()
        script.wait()


def test_a_process_that_answers_no_reader_of_its_environment_holds_back_its_own_session_alone(
    tmp_path: Path,
) -> None:
    """As one does whose page fault waits for a file server, while another of its threads maps memory."""
    os.mkfifo(tmp_path / "hangs")
    script = subprocess.Popen(["/bin/sleep", "600"], env={"SLURM_JOB_ID": "4718"})
    path = b'"/proc/{}/environ".format(pid)'
    hangs = b"(%a if pid == %d else %s)" % (str(tmp_path / "hangs"), script.pid, path)
    changes = {path: hangs, b"PLACED_S = 15.0": b"PLACED_S = 3.0"}
    try:
        with started(changes=changes) as relay:
            relay.open(1, "true", job="4718")
            relay.send(frames.PING, 0)
            assert relay.receive().kind == frames.PONG
            _, status = relay.until_status(1)
            assert (status["reason"], "state D" in status["message"]) == ("CannotStart", True)
    finally:
        script.kill()
        script.wait()


def test_a_session_that_hangs_before_its_start_holds_no_end_of_anothers_input(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "hangs")
    find = b"place = find_surroundings(document"
    hangs = b'open(%a) if document["job"] == "4720" else None; ' % str(tmp_path / "hangs")
    changes = {find: hangs + find, b"PLACED_S = 15.0": b"PLACED_S = 6000.0"}
    with started(changes=changes) as relay:
        relay.open(1, "cat")
        relay.open(2, "true", job="4720")
        relay.send(frames.CLOSE, 1, b"\0")
        assert relay.until_status(1) == (b"", {"code": 0})
        relay.send(frames.KILL, 2)


def test_a_session_has_the_environment_of_the_jobs_script_and_not_that_of_a_step() -> None:
    environment = {"SLURM_JOB_ID": "4713", "OF": "the script", "PATH": os.environ["PATH"]}
    script = subprocess.Popen(["/bin/sleep", "600"], env=environment, cwd="/usr")
    step = subprocess.Popen(
        ["/bin/sleep", "600"], env={**environment, "SLURM_STEP_ID": "0", "OF": "a step"}, cwd="/"
    )
    try:
        with started() as relay:
            relay.open(1, *SH, "echo $OF; pwd", job="4713")
            output, _ = relay.until_status(1)
            assert output == b"the script\n/usr\n"
    finally:
        for process in (script, step):
            process.kill()
            process.wait()


@pytest.mark.parametrize("command", [("echo", "größer"), ("no-größer",)])
def test_a_command_has_its_callers_bytes_where_python_takes_another_encoding(command: tuple[str]) -> None:
    """As Python 3.6 does on a node without the locale C.UTF-8."""
    with started(python=("-X", "utf8=0"), LC_ALL="C") as relay:
        relay.open(1, "cat")
        relay.open(2, *command)
        output, _ = relay.until_status(2)
        assert command[-1].encode() in output
        relay.send(frames.DATA, 1, b"\0there")
        assert first_output(relay) == b"there"


def test_a_container_that_does_not_run_is_refused() -> None:
    with started() as relay:
        relay.open(1, "true", container="main")
        _, status = relay.until_status(1)
        assert status["reason"] == "CannotStart"
        assert "Container main" in status["message"]


NO_DESCRIPTOR = b"""FAULTS = [OSError(24, "Too many open files")] * 5


def list_processes():
    if FAULTS:
        raise FAULTS.pop()
    return os.listdir("/proc")


class HungUpGroup:"""


def test_a_relay_whose_descriptors_are_all_taken_ends_a_session_once_it_has_one_again() -> None:
    changes = {b'os.listdir("/proc")\n    except': b"list_processes()\n    except"}
    with started(changes={**changes, b"class HungUpGroup:": NO_DESCRIPTOR}) as relay:
        relay.open(1, *SH, "trap '' HUP; echo $$; exec sleep 617.25")
        (pid,) = pids_in(first_output(relay))
        relay.send(frames.KILL, 1)
        until_gone(pid)
        relay.open(2, "echo", "there")
        assert relay.until_status(2) == (b"there\n", {"code": 0})


def test_a_relay_refuses_connections_for_which_it_has_no_descriptor() -> None:
    few = b"__import__('resource').setrlimit(7, (20, 20))\n\n\ndef main("
    changes = {b"def main(": few, b"is_socket_of_job(listener.inode, job)": b"True"}
    with socket.create_server(("127.0.0.1", 0)) as server, started(changes=changes) as relay:
        for number in range(1, 21):
            port = {"kind": "port", "job": "7", "port": server.getsockname()[1]}
            relay.send(frames.OPEN, number, frames.order_bytes(port))
        relay.send(frames.PING, 0)
        seen: list[frames.RelayFrame] = []
        while not seen or seen[-1].kind != frames.PONG:
            seen.append(relay.receive())
        refused = [frames.read_report(frame.payload) for frame in seen if frame.kind == frames.STATUS]
        assert 0 < len(refused) < 20
        assert {status["reason"] for status in refused} <= {"PortRefused", "CannotStart"}


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_relay_and_its_sessions(signal_number: int) -> None:
    with started() as relay:
        relay.open(1, *SH, "echo $$; exec sleep 616.25")
        (pid,) = pids_in(first_output(relay))
        relay.process.send_signal(signal_number)
        relay.process.wait(60)
        until_gone(pid)


def test_a_start_imports_nothing_that_its_first_session_does_not_need() -> None:
    """Each of these takes 1 to 3 ms of the time that the first session of a job waits."""
    modules = b"import sys\nos.write(1, ' '.join(sorted(sys.modules)).encode())\n"
    source = relay_source().replace(b"    main()\n", b"    pass\n") + modules
    done = subprocess.run([PYTHON, "-I", "-S", "-"], input=source, capture_output=True, check=True)
    imported = set(done.stdout.decode().split())
    assert "selectors" in imported
    assert not imported & {"json", "pty", "re", "socket", "typing", "warnings"}
