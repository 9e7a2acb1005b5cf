"""kubectl exec, cp, attach and port-forward of pods on Slurm, by both of kubectl's protocols."""

from __future__ import annotations

import json
import os
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness.container_image import BARE_IMAGE, BUILD_BARE, IMAGE
from tests.e2e.harness.python_client import PythonClient
from tests.e2e.harness.sessions import sessions
from tests.e2e.harness.slurm_pods import (
    BUILDS_WITHIN_S,
    USER,
    SlurmPod,
    SlurmPods,
    container,
    ended,
    on_slurm,
)
from tests.e2e.harness.slurmjobs import new_name
from tests.e2e.harness.terminals import (
    COLUMNS,
    PROMPT,
    ROWS,
    WITHIN_S,
    has_its_size_and_ctrl_c,
    read_until,
    resize,
    terminal,
)
from tests.e2e.harness.waiting import eventually

pytestmark = pytest.mark.timeout(300)
SERVES = "echo hello > /tmp/index.html; exec httpd -f -p $0 -h /tmp"
PORTS = {"SPDY": 18080, "WebSockets": 18081}
"""The server of the one may end after that of the other begins."""
MODIFIED = 1_700_000_000


@pytest.fixture(scope="module")
def pod(lasting: SlurmPods) -> Iterator[SlurmPod]:
    """A running one, in a red-box that allows sessions."""
    with sessions(lasting.login, enabled=True):
        pod = lasting.run(container("echo begun; exec sleep 600"))
        pod.is_ready()
        yield pod


@pytest.fixture(params=["SPDY", "WebSockets"])
def kubectl(pod: SlurmPod, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The command, as alice's shell has it, which then takes one of its protocols."""
    websockets = str(request.param == "WebSockets").lower()
    monkeypatch.setenv("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", websockets)
    monkeypatch.setenv("KUBECTL_PORT_FORWARD_WEBSOCKETS", websockets)
    kubeconfig = str(pod.kubectl.kubeconfig)
    return [f"{Path(kubeconfig).parent}/bin/kubectl", f"--kubeconfig={kubeconfig}", f"--namespace={USER}"]


def run(command: list[str], *, stdin: bytes = b"", within_s: float = WITHIN_S) -> tuple[int, bytes, str]:
    done = subprocess.run(command, input=stdin, capture_output=True, timeout=within_s, check=False)
    return done.returncode, done.stdout, done.stderr.decode()


def in_pod(kubectl: list[str], pod: SlurmPod, *command: str, options: tuple[str, ...] = ()) -> list[str]:
    return [*kubectl, "exec", *options, pod.name, "--", *command]


def test_a_command_has_its_streams_its_exit_code_and_the_pods_container(
    kubectl: list[str], pod: SlurmPod
) -> None:
    script = "id -un; cat /proc/1/comm; hostname; echo $REDBOX_CONTAINER; echo err >&2; exit 7"
    code, out, err = run(in_pod(kubectl, pod, "sh", "-c", script))
    assert (code, out.decode().split()) == (7, [USER, "sleep", pod.name, "main"]), err
    assert err.startswith("err\n")


def test_the_official_python_client_runs_commands(pod: SlurmPod) -> None:
    client = PythonClient(pod)
    running = client.exec("sh", "-c", "read line; echo got $line; echo err >&2; exit 7", stdin=True)
    running.write_stdin("typed\n")
    running.run_forever(timeout=WITHIN_S)
    assert (running.read_stdout(), running.read_stderr(), running.returncode) == ("got typed\n", "err\n", 7)
    large = client.exec("head", "-c", "3000000", "/dev/zero")
    large.run_forever(timeout=WITHIN_S)
    assert (len(large.read_stdout()), large.returncode) == (3_000_000, 0)


def test_the_official_python_client_forwards_a_port(pod: SlurmPod) -> None:
    port = 18082
    server = PythonClient(pod).exec("sh", "-c", SERVES, str(port))
    try:

        def page() -> bytes:
            connection = PythonClient(pod).forward(port)
            socket = connection.socket(port)
            socket.settimeout(WITHIN_S)
            socket.sendall(b"GET /index.html HTTP/1.0\r\n\r\n")
            answer = b"".join(iter(lambda: socket.recv(4096), b""))
            return answer if connection.error(port) is None else b""

        eventually(lambda: page().endswith(b"hello\n"), what="an answer of the server")
    finally:
        server.close()


@pytest.fixture(scope="module")
def bare(lasting: SlurmPods, pull_secret: list[dict[str, Any]]) -> SlurmPod:
    """A pod whose image has one program and no shell."""
    lasting.login.run("sh", "-c", BUILD_BARE, user=USER, timeout=BUILDS_WITHIN_S)
    main = {"name": "main", "image": BARE_IMAGE, "command": ["/sleep", "600"]}
    bare = lasting.run(main, imagePullSecrets=pull_secret)
    bare.is_ready()
    return bare


def debugged(bare: SlurmPod, name: str) -> dict[str, Any]:
    rows = bare.status.get("ephemeralContainerStatuses") or []
    return next((row["state"] for row in rows if row["name"] == name), {})


@pytest.mark.parametrize("kubectl", ["WebSockets"], indirect=True)
def test_kubectl_debug_shows_the_processes_and_files_of_a_container_without_a_shell(
    kubectl: list[str], bare: SlurmPod, image: str
) -> None:
    options = ["-it", f"--image={image}:1", "--target=main", "-c", "shell", "--profile=general"]
    with terminal([*kubectl, "debug", bare.name, *options, "--", "sh"]) as (process, screen):
        read_until(screen, PROMPT)
        os.write(screen, b"ps | grep '/[s]leep 600'; ls /proc/1/root; cat /etc/name; hostname\n")
        shown = read_until(screen, bare.name.encode() + rb"\r\n").decode()
        assert re.search(rf"\s1 {USER}\s.*/sleep 600|\s1 \d+\s+/sleep 600", shown), shown
        assert re.search(r"[\r\n ]sleep[\r\n ]", shown), shown
        has_its_size_and_ctrl_c(screen)
        script = "cat /etc/name; echo; cat /proc/1/comm"
        code, out, err = run([*kubectl, "exec", bare.name, "-c", "shell", "--", "sh", "-c", script])
        assert (code, out.decode().split()[-1:]) == (0, ["sleep"]), err
        os.write(screen, b"exit 5\n")
        assert process.wait(WITHIN_S) == 0  # it was attached; the container has the exit code
    end = eventually(lambda: debugged(bare, "shell").get("terminated"), what="the end of the shell")
    assert end["exitCode"] == 5
    code, out, err = run([*kubectl, "logs", bare.name, "-c", "shell"])
    assert (code, b"/sleep 600" in out) == (0, True), err
    assert bare.status["phase"] == "Running"
    assert bare.status["containerStatuses"][0]["ready"]


@pytest.mark.parametrize("kubectl", ["SPDY"], indirect=True)
def test_kubectl_debug_has_containers_of_its_own_side_by_side_and_says_what_it_refuses(
    kubectl: list[str], bare: SlurmPod, image: str
) -> None:
    debug = [*kubectl, "debug", bare.name, "-q"]
    for name, script in (("first", "ps; exec sleep 600"), ("second", "exit 7")):
        code, _, err = run([*debug, f"--image={image}:1", "-c", name, "--", "sh", "-c", script])
        assert code == 0, err
    end = eventually(lambda: debugged(bare, "second").get("terminated"), what="the end of the second")
    assert end["exitCode"] == 7
    assert eventually(lambda: debugged(bare, "first").get("running"), what="the start of the first")
    _, out, _ = run([*kubectl, "logs", bare.name, "-c", "first"])
    assert b"/sleep 600" not in out  # without --target it sees itself alone
    code, _, said = run([*debug, f"--image={image}:1", "-i", "-c", "root", "--profile=sysadmin", "--", "sh"])
    assert "privileged: a user's container on Slurm is never privileged" in said, (code, said)
    code, _, err = run([*debug, f"--image={image}:absent", "-c", "absent", "--", "sh"])
    assert code == 0, err

    def pull_error() -> str:
        waiting = debugged(bare, "absent").get("waiting", {})
        return str(waiting.get("message", "")) if "Pull" in waiting.get("reason", "") else ""

    assert "check the image's name and tag" in eventually(pull_error, what="the error of the pull")
    assert bare.status["containerStatuses"][0]["ready"]
    bare("delete", "pod", bare.name, "--wait=true")  # with all that runs in it


def test_what_is_piped_comes_back_whole(kubectl: list[str], pod: SlurmPod) -> None:
    sent = os.urandom(3_000_000)
    code, out, err = run(in_pod(kubectl, pod, "cat", options=("-i",)), stdin=sent)
    assert (code, out == sent) == (0, True), err


def test_a_program_that_is_not_there(kubectl: list[str], pod: SlurmPod) -> None:
    code, _, err = run(in_pod(kubectl, pod, "no-such-program"))
    assert (code, "no-such-program" in err) == (127, True), err


def test_a_terminal_has_its_size_its_keys_and_its_exit_code(kubectl: list[str], pod: SlurmPod) -> None:
    command = in_pod(kubectl, pod, "sh", options=("-it",))
    with terminal(command) as (process, screen):
        read_until(screen, PROMPT)
        has_its_size_and_ctrl_c(screen)
        os.write(screen, b"exit 5\n")
        assert process.wait(WITHIN_S) == 5


def test_programs_of_a_whole_screen_draw_it_and_follow_its_size(
    kubectl: list[str], pod: SlurmPod, tmp_path: Path
) -> None:
    edited = f"/tmp/edited-{tmp_path.name}"
    with terminal(in_pod(kubectl, pod, "vi", edited, options=("-it",))) as (process, screen):
        assert drawn_lines(read_until(screen, rb"\x1b\[33;1H")) == ROWS - 2  # all but the first and the last
        os.write(screen, b"ityped by keys\x1b")
        read_until(screen, rb"typed by keys")
        resize(screen, ROWS + 7, COLUMNS)
        assert drawn_lines(read_until(screen, rb"\x1b\[40;1H")) == ROWS + 7 - 2
        os.write(screen, b":wq\r")
        assert process.wait(WITHIN_S) == 0
    assert run(in_pod(kubectl, pod, "cat", edited))[1] == b"typed by keys\n"
    with terminal(in_pod(kubectl, pod, "top", "-d", "1", options=("-it",))) as (process, screen):
        read_until(screen, rb"(?s)Mem:.*Mem:")  # twice: it goes on by itself
        os.write(screen, b"q")
        assert process.wait(WITHIN_S) == 0


def drawn_lines(shown: bytes) -> int:
    """Lines below the text, each of which vi marks."""
    return len(re.findall(rb"~", shown))


def test_a_folder_is_copied_both_ways(kubectl: list[str], pod: SlurmPod, tmp_path: Path) -> None:
    """kubectl cp sets the modes there; it sets none here, and no times."""
    folder = made_folder(tmp_path / "there")
    place = f"/tmp/copied-{tmp_path.name}"
    for command in (
        ["cp", str(folder), f"{pod.name}:{place}"],
        ["cp", f"{pod.name}:{place}", f"{tmp_path}/back"],
    ):
        code, _, err = run([*kubectl, *command])
        assert code == 0, err
    assert (tmp_path / "back/data").read_bytes() == (folder / "data").read_bytes()
    _, out, _ = run(in_pod(kubectl, pod, "ls", "-l", f"{place}/deep/run.sh"))
    assert out.startswith(b"-rwxr-x---")


def test_a_tar_brings_modes_and_times_both_ways(kubectl: list[str], pod: SlurmPod, tmp_path: Path) -> None:
    made_folder(tmp_path / "there")
    place, back = f"/tmp/tar-{tmp_path.name}", tmp_path / "back"
    back.mkdir()
    sent = subprocess.run(["tar", "-C", tmp_path, "-cf-", "there"], stdout=subprocess.PIPE, check=True).stdout
    unpack = f"mkdir {place} && tar -C {place} -xpf -"
    assert run(in_pod(kubectl, pod, "sh", "-c", unpack, options=("-i",)), stdin=sent)[0] == 0
    _, out, _ = run(in_pod(kubectl, pod, "tar", "-C", place, "-cf", "-", "there"))
    subprocess.run(["tar", "-C", back, "-xpf-"], input=out, check=True)
    assert (back / "there/data").stat().st_mtime == MODIFIED
    assert (back / "there/deep/run.sh").stat().st_mode & 0o777 == 0o750


def made_folder(folder: Path) -> Path:
    (folder / "deep").mkdir(parents=True)
    (folder / "data").write_bytes(os.urandom(2_000_000))
    (folder / "deep/run.sh").write_text("#!/bin/sh\n")
    (folder / "deep/run.sh").chmod(0o750)
    os.utime(folder / "data", (MODIFIED, MODIFIED))
    return folder


def test_a_port_of_the_pod_is_forwarded(
    kubectl: list[str], pod: SlurmPod, request: pytest.FixtureRequest
) -> None:
    port = PORTS[request.node.callspec.params["kubectl"]]
    command = in_pod(kubectl, pod, "sh", "-c", SERVES, str(port))
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        assert eventually(lambda: forwarded(kubectl, pod, port), what="an answer") == b"hello\n"
    finally:
        server.terminate()
        server.wait(WITHIN_S)


def forwarded(kubectl: list[str], pod: SlurmPod, to: int) -> bytes | None:
    """What the server answers; nothing while it does not listen, for then kubectl ends."""
    command = [*kubectl, "port-forward", pod.name, f":{to}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as forward:
        try:
            assert forward.stdout is not None
            port = re.search(rb"127\.0\.0\.1:(\d+)", forward.stdout.readline())
            assert port is not None
            with urllib.request.urlopen(f"http://127.0.0.1:{int(port[1])}/index.html", timeout=10) as answer:
                return bytes(answer.read())
        except OSError:
            return None
        finally:
            forward.terminate()


def test_attaching_shows_what_the_container_writes(kubectl: list[str], lasting: SlurmPods) -> None:
    ticking = lasting.run(container("for i in $(seq 60); do echo tick $i; sleep 0.5; done"))
    ticking.is_ready()
    code, out, err = run([*kubectl, "attach", ticking.name], within_s=120)
    assert (code, b"tick 60\n" in out) == (0, True), err


def run_on_slurm(kubectl: list[str], name: str, *options: str) -> list[str]:
    """kubectl run takes no path for an image; the override gives it the tests' own."""
    spec = on_slurm({"name": name, "image": IMAGE})
    overrides = json.dumps({"apiVersion": "v1", "spec": spec})
    command = [*kubectl, "run", name, "--image=busybox", "--restart=Never", "--override-type=strategic"]
    command.append("--pod-running-timeout=2m")
    return [*command, f"--overrides={overrides}", *options]


@pytest.mark.parametrize("kubectl", ["WebSockets"], indirect=True)
@pytest.mark.usefixtures("pod")
def test_kubectl_run_gives_a_terminal_that_is_left_and_attached_to_again(
    kubectl: list[str], lasting: SlurmPods
) -> None:
    ran = lasting.of(new_name())
    lasting.made.append(("Pod", ran.name))
    with terminal(run_on_slurm(kubectl, ran.name, "-it", "--", "sh")) as (process, screen):
        read_until(screen, PROMPT)
        has_its_size_and_ctrl_c(screen)
        attach = [*kubectl, "attach", "-it", ran.name]
        with terminal(attach) as (second, other):
            os.write(other, b"echo from-$((1 + 1))\n")
            read_until(other, rb"\nfrom-2\r\n")
            read_until(screen, rb"\nfrom-2\r\n")
            second.kill()
            second.wait(WITHIN_S)
        process.kill()
        process.wait(WITHIN_S)
    with terminal(attach) as (process, screen):
        os.write(screen, b"ls /proc/1/exe && exit 5\n")
        assert process.wait(WITHIN_S) == 0  # it was attached; the pod has the exit code
    assert ended(ran.ends(), ran.name)["exitCode"] == 5
    assert "\nfrom-2\n" in ran.log()


@pytest.mark.parametrize("kubectl", ["SPDY"], indirect=True)
@pytest.mark.usefixtures("pod")
def test_kubectl_run_with_a_pipe_has_its_end_of_file_and_its_exit_code(
    kubectl: list[str], lasting: SlurmPods
) -> None:
    ran = lasting.of(new_name())
    lasting.made.append(("Pod", ran.name))
    sent = b"line\n" * 500_000
    script = "echo begun >&2; wc -c; exit 3"
    command = run_on_slurm(kubectl, ran.name, "-i", "--rm", "--quiet", "--", "sh", "-c", script)
    code, out, err = run(command, stdin=sent)
    assert (code, out.split()[:1], "begun\n" in err) == (3, [b"%d" % len(sent)], True), (out, err)
    assert not ran.manifest


@pytest.mark.parametrize("kubectl", ["WebSockets"], indirect=True)
@pytest.mark.usefixtures("pod")
def test_containers_in_steps_of_their_own_are_attached_to_at_each_start(
    kubectl: list[str], lasting: SlurmPods
) -> None:
    """Beside each other and with memory limits, they are children of a step, not of the runner."""
    limited = {"stdin": True, "resources": {"limits": {"memory": "64Mi"}}}
    both = lasting.run(
        container("tty && read x && test $x = again", name="term", tty=True, **limited),
        container("cat; echo over >&2", name="pipe", stdinOnce=True, **limited),
        restartPolicy="OnFailure",
    )
    both.is_ready()
    attach = [*kubectl, "attach", "-i", both.name, "-c"]
    code, out, err = run([*attach, "pipe"], stdin=b"one\n")
    assert (code, out, "over\n" in err) == (0, b"one\n", True), err
    with terminal([*attach, "term", "-t"]) as (process, screen):
        os.write(screen, b"once\n")
        assert process.wait(WITHIN_S) == 0
    both.until(lambda status: restarted(status, "term"), "the restart")
    with terminal([*attach, "term", "-t"]) as (process, screen):
        os.write(screen, b"again\n")
        assert process.wait(WITHIN_S) == 0
    assert both.ends()["phase"] == "Succeeded"
    assert both.log("-c", "pipe") == "one\nover\n"


def restarted(status: dict[str, Any], name: str) -> bool:
    rows = (row for row in status["containerStatuses"] if row["name"] == name)
    return any(row["restartCount"] == 1 and "running" in row["state"] for row in rows)


def test_nothing_remains_of_a_kubectl_that_was_killed(
    kubectl: list[str], pod: SlurmPod, lasting: SlurmPods
) -> None:
    process = subprocess.Popen(in_pod(kubectl, pod, "sh", "-c", "sleep 612.5; true"))
    eventually(lambda: on_nodes(lasting, "[6]12.5"), what="the command")
    process.kill()
    process.wait(WITHIN_S)
    eventually(lambda: not on_nodes(lasting, "[6]12.5"), what="its end")
    assert pod.status["phase"] == "Running"


def on_nodes(pods: SlurmPods, marker: str) -> str:
    """The processes whose command line has this, of any Slurm node."""
    nodes = [name for name in pods.bed.hosts if re.fullmatch(r"n\d+", name)]
    return "".join(pods.bed.host(node).run("pgrep", "-f", marker, check=False).stdout for node in nodes)
