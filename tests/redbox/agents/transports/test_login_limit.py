"""Logins are few at once, and few fail: as the log of sshd counts them, which is what fail2ban reads."""

from __future__ import annotations

import asyncio
import shutil
import socket
from contextlib import suppress
from pathlib import Path

import asyncssh
import pytest

from redbox.agents.errors import AgentRefused, AgentUnavailable
from redbox.agents.pool import AgentPool
from redbox.agents.settings import PoolSettings
from redbox.agents.transports.failed_logins import FailedLogins
from redbox.agents.transports.login_limit import LoginLimit
from redbox.agents.transports.ssh import LoginNode, SshTransport
from redbox.agents.transports.ssh_ca import KeyDirectory
from redbox.agents.transports.ssh_login import SshHost
from tests.redbox.agents.login_host import ALICE, LoginHost
from tests.redbox.agents.sshd import key_of_alice, sshd

NO_PAUSE = PoolSettings(first_backoff_s=0.0, longest_backoff_s=0.0)


async def test_a_replaced_key_is_used_at_the_next_login(login_host: LoginHost, tmp_path: Path) -> None:
    keys = key_of_alice(tmp_path / "keys", asyncssh.generate_private_key("ssh-ed25519"))
    with sshd(login_host, tmp_path / "a") as node:
        transport = node.transport(keys=keys, failed_logins=FailedLogins(most=4))
        async with AgentPool(transport, NO_PAUSE) as pool:
            for _ in range(2):
                with pytest.raises(AgentRefused):
                    await pool.agent(ALICE)
            with pytest.raises(AgentUnavailable, match="fail2ban") as held:
                await pool.agent(ALICE)
            assert "authorized_keys" in held.value.detail
            shutil.copy(login_host.keys / "alice", keys / "new")
            (keys / "new").replace(keys / "alice")
            assert (await pool.agent(ALICE)).hello.uid == ALICE.uid


async def test_never_more_failed_logins_than_allowed_reach_sshd(
    login_host: LoginHost, tmp_path: Path
) -> None:
    """As sshd's own log counts them, which is what fail2ban reads."""
    keys = key_of_alice(tmp_path / "keys", asyncssh.generate_private_key("ssh-ed25519"))
    with sshd(login_host, tmp_path / "a") as node:
        async with AgentPool(node.transport(keys=keys), NO_PAUSE) as pool:
            for _ in range(10):
                with pytest.raises((AgentRefused, AgentUnavailable)):
                    await pool.agent(ALICE)
        assert node.log.count("Failed publickey for alice") == 2


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def log_in_or_fail(*, succeeds: bool) -> None:
    if not succeeds:
        raise AgentRefused("no")


async def attempt(limit: LoginLimit, credential: str, *, succeeds: bool) -> str:
    try:
        async with limit.login(credential):
            await log_in_or_fail(succeeds=succeeds)
    except AgentRefused:
        return "refused"
    except AgentUnavailable:
        return "held back"
    return "in"


async def test_one_users_wrong_key_does_not_hold_back_those_who_get_in() -> None:
    clock = Clock()
    limit = LoginLimit(FailedLogins(4, 600), clock)
    for good in ("good", "fine"):
        assert await attempt(limit, good, succeeds=True) == "in"
    tried = [await attempt(limit, "bad", succeeds=False) for _ in range(3)]
    assert tried == ["refused", "refused", "held back"]
    tried = [await attempt(limit, bad, succeeds=False) for bad in ("worse", "worst")]
    assert tried == ["refused", "held back"]
    assert await attempt(limit, "new", succeeds=True) == "held back"
    for good in ("good", "fine"):
        assert await attempt(limit, good, succeeds=True) == "in"
    tried = [await attempt(limit, good, succeeds=False) for good in ("good", "fine")]
    assert tried == ["refused", "held back"]
    clock.now += 601
    assert await attempt(limit, "new", succeeds=True) == "in"
    assert await attempt(limit, "bad", succeeds=False) == "refused"


async def test_failures_are_counted_over_restarts_and_beside_other_processes(tmp_path: Path) -> None:
    allowed = FailedLogins(4, 600, tmp_path / "failed-logins")
    clock = Clock()
    for user, outcome in (("alice", "refused"), ("alice", "refused"), ("alice", "held back")):
        assert await attempt(LoginLimit(allowed, clock), user, succeeds=False) == outcome
    other = LoginLimit(allowed, clock)
    assert [await attempt(other, user, succeeds=False) for user in ("bob", "carol")] == ["refused"] * 2
    with pytest.raises(AgentUnavailable, match=r"2 logins with this key .*\(no\).*failed-logins is removed"):
        async with LoginLimit(allowed, clock).login("alice"):
            pass
    assert await attempt(LoginLimit(allowed, clock), "dave", succeeds=True) == "held back"
    (tmp_path / "failed-logins").unlink()
    assert await attempt(other, "dave", succeeds=True) == "in"
    assert await attempt(other, "alice", succeeds=False) == "refused"
    clock.now += 601
    assert await attempt(LoginLimit(allowed, clock), "alice", succeeds=True) == "in"


async def test_a_record_that_is_torn_or_of_the_future_holds_back_nobody(tmp_path: Path) -> None:
    """A crash while it was written, or a clock that was set back."""
    file, clock = tmp_path / "failed-logins", Clock()
    file.write_text(f'[{clock.now + 50}, "alice", "no"]\n' * 4 + f'[{clock.now}, "al\n[1, 2, 3]\n7\n')
    limit = LoginLimit(FailedLogins(4, 600, file), clock)
    assert await attempt(limit, "alice", succeeds=False) == "refused"
    assert await attempt(limit, "alice", succeeds=True) == "in"


async def test_where_nothing_can_be_recorded_a_process_counts_for_itself(tmp_path: Path) -> None:
    limit = LoginLimit(FailedLogins(4, 600, tmp_path / "no-folder" / "failed-logins"))
    tried = [await attempt(limit, "alice", succeeds=False) for _ in range(3)]
    assert tried == ["refused", "refused", "held back"]


async def test_wrong_keys_that_are_tried_for_ever_do_not_hold_back_first_logins() -> None:
    clock = Clock()
    limit = LoginLimit(FailedLogins(4, 600), clock)
    newcomers = []
    for number in range(300):
        for bad in ("bad", "worse", "worst", "other"):
            await attempt(limit, bad, succeeds=False)
        clock.now += 10
        if clock.now > 1000 + 700:  # all four keys have been tried by then
            newcomers.append(await attempt(limit, f"new{number}", succeeds=True))
    assert set(newcomers) == {"in"}


async def failures_that_reach_sshd(limit: LoginLimit, *credentials: str) -> list[str]:
    """Of logins at the same time, each of which sshd refuses."""
    reached: list[str] = []

    async def log_in(credential: str) -> None:
        with suppress(AgentRefused, AgentUnavailable):
            async with limit.login(credential):
                reached.append(credential)
                await asyncio.sleep(0)  # the others begin meanwhile
                await log_in_or_fail(succeeds=False)

    await asyncio.gather(*map(log_in, credentials))
    return reached


async def test_also_at_the_same_time_no_more_logins_fail_than_allowed() -> None:
    assert await failures_that_reach_sshd(LoginLimit(FailedLogins(4, 600)), *["one"] * 10) == ["one"] * 2
    many = [f"user{number}" for number in range(10)]
    assert await failures_that_reach_sshd(LoginLimit(FailedLogins(4, 600)), *many) == many[:4]


async def test_logins_that_hang_in_their_users_home_leave_a_place_to_others() -> None:
    """Also after a failure of the same key, and also to a key that is new."""
    limit = LoginLimit(FailedLogins(4, 600))
    for succeeds in (True, False, True):
        await attempt(limit, "alice", succeeds=succeeds)

    async def hang() -> None:
        async with limit.login("alice"):
            await asyncio.Event().wait()

    hanging = [asyncio.create_task(hang()) for _ in range(3)]
    await asyncio.sleep(0)  # each begins, or waits
    async with asyncio.timeout(60):
        assert await attempt(limit, "bob", succeeds=True) == "in"
    for task in hanging:
        task.cancel()
    await asyncio.wait(hanging)


async def test_where_the_site_lets_in_nobody_any_more_no_more_logins_fail_than_allowed() -> None:
    """A maintenance, or another CA: the keys of all users fail, and each of them was good until then."""
    limit = LoginLimit(FailedLogins(4, 600))
    users = [f"user{number}" for number in range(20)]
    for user in users:
        assert await attempt(limit, user, succeeds=True) == "in"
    assert len(await failures_that_reach_sshd(limit, *users)) == 4
    assert await failures_that_reach_sshd(limit, *users) == []


async def test_after_that_time_users_get_in_again() -> None:
    clock = Clock()
    limit = LoginLimit(FailedLogins(4, 600), clock)
    users = [f"user{number}" for number in range(20)]
    for user in users:
        await attempt(limit, user, succeeds=True)
    await failures_that_reach_sshd(limit, *users)
    clock.now += 601
    assert [await attempt(limit, user, succeeds=True) for user in users] == ["in"] * 20


async def test_new_keys_wait_for_each_other_and_all_get_in() -> None:
    limit = LoginLimit(FailedLogins(1, 600))
    assert (
        await asyncio.gather(*(attempt(limit, f"user{n}", succeeds=True) for n in range(10))) == ["in"] * 10
    )


async def test_a_key_for_the_jump_host_that_is_not_there_is_no_failed_login(tmp_path: Path) -> None:
    key_of_alice(tmp_path, asyncssh.generate_private_key("ssh-ed25519"))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        jump = SshHost("127.0.0.1", tmp_path / "known_hosts", listening.getsockname()[1])
        node = LoginNode("login.example", tmp_path / "known_hosts", jump=jump, jump_user="gate")
        transport = SshTransport(node, KeyDirectory(tmp_path))
        for _ in range(5):
            with pytest.raises(AgentRefused, match="gate"):
                await transport.start(ALICE)


async def test_all_agents_start_although_sshd_drops_unfinished_logins_beyond_ten(
    login_host: LoginHost, tmp_path: Path
) -> None:
    with sshd(login_host, tmp_path / "a", "MaxStartups 10:100:10\nMaxSessions 1") as node:
        transport = node.transport()
        processes = await asyncio.gather(*(transport.start(ALICE) for _ in range(30)))
        for process in processes:
            process.kill()
        assert "beginning MaxStartups throttling" not in node.log
