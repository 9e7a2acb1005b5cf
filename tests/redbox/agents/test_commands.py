"""Commands run as they were asked for, end when they must, and tell how they ended."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from redbox.agents.agent import AgentClient
from redbox.agents.errors import RequestFailed, SystemCallFailed
from redbox.agents.program.wire import MAX_HEADER
from tests.redbox.agents.harness import until

SECRET = b"token=TOPSECRET\0"


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_output_code_and_input_are_the_commands_own(agent: AgentClient) -> None:
    done = await agent.run(["/bin/sh", "-c", "cat; echo oops >&2; exit 42"], stdin=b"\x00\xff\n", deadline=60)
    assert (done.code, done.stdout, done.stderr) == (42, b"\x00\xff\n", b"oops\n")


async def test_a_signal_is_a_negative_code(agent: AgentClient) -> None:
    assert (await agent.run(["/bin/sh", "-c", "kill -15 $$"], deadline=60)).code == -15


async def test_large_input_and_output_come_whole(agent: AgentClient) -> None:
    data = os.urandom(5_000_000)
    assert (await agent.run(["/bin/cat"], stdin=data, deadline=60)).stdout == data


async def test_input_arrives_with_the_request_or_after_it(agent: AgentClient) -> None:
    script = "cat; cat /proc/self/fd/$1"
    argv = ["/bin/sh", "-c", script, "sh", "{export}"]
    for length in (0, 1, 300_000):
        done = await agent.run(argv, stdin=b"a" * length, inherit={"{export}": b"bc" * length}, deadline=60)
        assert done.stdout == b"a" * length + b"bc" * length


async def test_arguments_and_environment_are_exact(agent: AgentClient) -> None:
    words = ["a b", "", "*", "$HOME", "'\"", "nl\n", "\u2603", "\udcff"]
    done = await agent.run(["/usr/bin/printf", "%s\\0", *words], deadline=60)
    assert done.stdout == b"\0".join(word.encode(errors="surrogateescape") for word in words) + b"\0"
    done = await agent.run(["/usr/bin/env", "-0"], env={"A": "1,2\n3", "B": "\udcff"}, deadline=60)
    assert done.stdout == b"A=1,2\n3\0B=\xff\0"


async def test_the_environment_is_by_default_the_accounts(agent: AgentClient) -> None:
    done = await agent.run(["env"], deadline=60)
    names = {line.partition("=")[0] for line in done.stdout.decode().splitlines()}
    assert names >= {"HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG"}


async def test_what_is_inherited_is_read_from_a_descriptor_without_a_name(agent: AgentClient) -> None:
    script = "cat /proc/self/fd/$1; readlink /proc/self/fd/$1; head -c 1 <&$2 | wc -c"
    done = await agent.run(
        ["/bin/sh", "-c", script, "sh", "{export}", "{empty}"],
        inherit={"{export}": SECRET, "{empty}": b""},
        deadline=10,
    )
    assert done.stdout.startswith(SECRET)
    assert done.stdout.endswith(b"(deleted)\n0\n")


async def test_what_is_inherited_or_sent_or_in_the_environment_is_in_nobodys_arguments(
    agent: AgentClient,
) -> None:
    script = "cat /proc/[0-9]*/cmdline 2>/dev/null | grep -ac TOPSECRET; true"
    done = await agent.run(
        ["/bin/sh", "-c", script, "sh", "{x}"],
        inherit={"{x}": SECRET},
        stdin=SECRET,
        env={"PATH": "/usr/bin:/bin", "PASSWORD": "TOPSECRET"},
        deadline=20,
    )
    # The script itself holds the word that it looks for: it and its grep are all that may be found.
    assert int(done.stdout) <= 2
    environment = await agent.run(["/bin/sh", "-c", "cat /proc/$PPID/environ | tr '\\0' '\\n'"], deadline=60)
    assert b"TOPSECRET" not in environment.stdout


async def test_a_descriptor_of_one_command_is_not_in_another(agent: AgentClient) -> None:
    first = asyncio.create_task(
        agent.run(["/bin/sleep", "5"], inherit={"{x}": b"secret"}, stdin=b"in", deadline=0.5)
    )
    done = await agent.run(["/bin/ls", "/proc/self/fd"], deadline=60)
    await first
    assert done.stdout.split() == [b"0", b"1", b"2", b"3"]  # 3 is ls's own


async def test_a_missing_tool_and_a_missing_directory_are_the_kernels_words(agent: AgentClient) -> None:
    with pytest.raises(SystemCallFailed, match="not found in") as missing:
        await agent.run(["sqeueue"], deadline=60)
    assert missing.value.is_missing
    with pytest.raises(SystemCallFailed, match="No such file") as nowhere:
        await agent.run(["/bin/true"], cwd="/nowhere", deadline=60)
    assert nowhere.value.path == "/nowhere"
    with pytest.raises(SystemCallFailed, match="Permission denied") as denied:
        await agent.run(["/etc/passwd"], deadline=60)
    assert denied.value.is_denied


async def test_a_tool_is_not_looked_for_in_the_working_directory(agent: AgentClient, folder: Path) -> None:
    (folder / "tool").write_text("#!/bin/sh\necho here\n")
    (folder / "tool").chmod(0o755)
    for name in ("tool", "./tool"):
        with pytest.raises(SystemCallFailed):
            await agent.run([name], cwd=str(folder), deadline=60)


async def test_arguments_that_are_too_long_are_refused_before_they_are_sent(agent: AgentClient) -> None:
    with pytest.raises(RequestFailed, match="too large"):
        await agent.run(["/bin/echo", "x" * MAX_HEADER], deadline=60)
    assert (await agent.run(["/bin/true"], deadline=60)).code == 0


async def test_the_deadline_kills_the_command_and_its_whole_session(agent: AgentClient) -> None:
    script = "sh -c 'trap \"\" TERM; echo $$; sleep 60' & sleep 60"
    while not (done := await agent.run(["/bin/sh", "-c", script], deadline=2)).stdout:
        pass  # it was ended before the command in it had begun
    assert done.timed_out
    assert done.code == -9
    await until(lambda: not is_running(int(done.stdout)))


async def test_a_command_that_prints_for_ever_is_ended_at_its_limit(agent: AgentClient) -> None:
    done = await agent.run(["/usr/bin/yes"], deadline=30, output_limit=100_000)
    assert done.truncated
    assert len(done.stdout) == 100_000
    assert not done.timed_out


async def test_a_daemon_that_holds_the_pipes_does_not_hold_the_answer(agent: AgentClient) -> None:
    done = await agent.run(["/bin/sh", "-c", "setsid sleep 90 & echo $!"], deadline=60)
    assert not done.timed_out
    os.kill(int(done.stdout), 9)


async def test_a_cancelled_caller_ends_the_command(agent: AgentClient, folder: Path) -> None:
    pid_file = folder / "pid"
    task = asyncio.create_task(
        agent.run(
            ["/bin/sh", "-c", f"echo $$ >{pid_file}.new; mv {pid_file}.new {pid_file}; exec sleep 60"],
            deadline=60,
        )
    )
    await until(pid_file.exists)
    pid = int(pid_file.read_text())
    task.cancel()
    await until(lambda: not is_running(pid))
    assert (await agent.run(["/bin/true"], deadline=60)).code == 0


async def test_many_commands_run_at_once(agent: AgentClient) -> None:
    done = await asyncio.gather(*(agent.run(["/bin/echo", str(n)], deadline=30) for n in range(60)))
    assert [int(result.stdout) for result in done] == list(range(60))
