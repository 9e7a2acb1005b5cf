"""Shares take turns: a caller that asks for much waits for itself, and no time stays unused."""

import asyncio
import threading
from collections import Counter
from functools import partial

from redbox.core.turns import (
    CREDIT_S,
    Share,
    ShareKind,
    Shares,
    TurnQueue,
    as_own_work,
    in_thread_of,
    work_for,
    working_for,
)

STEP_S = 0.001


def caller(name: str) -> Share:
    return Share(ShareKind.CALLER, name)


def address(name: str) -> Share:
    return Share(ShareKind.ADDRESS, name)


class Desk:
    """Does one work after the other, each of which takes a step."""

    def __init__(self) -> None:
        self.queue: TurnQueue[str] = TurnQueue()
        self.now = 0.0

    def add(self, share: Share, count: int = 1) -> None:
        for _ in range(count):
            self.queue.add(share, share.name, self.now)

    def do(self, count: int, step_s: float = STEP_S) -> list[str]:
        done = []
        for _ in range(count):
            share, work = self.queue.take(self.now)
            self.now += step_s
            self.queue.used(share, step_s, self.now)
            done.append(work)
        return done

    def busy_with(self, share: Share, steps: int) -> None:
        for _ in range(steps):
            self.add(share)
            self.do(1)


def test_two_callers_who_want_all_get_half_each() -> None:
    desk = Desk()
    desk.add(caller("alice"), 1000)
    desk.add(caller("bob"), 100)
    assert Counter(desk.do(100)) == {"alice": 50, "bob": 50}


def test_long_steps_count_for_more() -> None:
    desk, alice, bob = Desk(), caller("alice"), caller("bob")
    desk.add(alice, 100)
    desk.add(bob, 100)
    taken = Counter[str]()
    while taken.total() < 88:
        step_s = 10 * STEP_S if min(alice.begins_at or 0, bob.begins_at or 0) == alice.begins_at else STEP_S
        taken.update(desk.do(1, step_s))
    assert taken["bob"] >= 9 * taken["alice"]


def test_one_who_was_idle_waits_for_one_step_of_a_flood() -> None:
    desk, alice, bob = Desk(), caller("alice"), caller("bob")
    desk.add(bob)
    desk.do(1)
    desk.add(alice, 1000)
    desk.do(200)
    desk.add(bob, 5)
    assert desk.do(5) == ["bob"] * 5


def test_idle_time_is_no_credit_for_a_flood() -> None:
    desk, alice, bob = Desk(), caller("alice"), caller("bob")
    desk.add(alice)
    desk.do(1)
    desk.busy_with(bob, 1000)
    desk.add(bob, 500)
    desk.add(alice, 500)
    first = int(CREDIT_S / STEP_S)
    assert Counter(desk.do(first + 100))["bob"] >= 45


def test_a_caller_alone_waits_for_nobody() -> None:
    desk, alice = Desk(), caller("alice")
    desk.add(alice, 100)
    assert desk.do(100) == ["alice"] * 100
    assert not desk.queue
    assert desk.queue.waited_s[ShareKind.CALLER] == 0


def test_a_new_share_begins_without_credit() -> None:
    """So a caller that leaves and comes back, or changes its address, gains nothing."""
    desk, bob = Desk(), caller("bob")
    desk.add(bob, 1000)
    desk.do(500)
    for number in range(10):
        desk.add(caller(f"new-{number}"), 10)
    assert Counter(desk.do(110))["bob"] >= 9


def test_many_addresses_have_one_share_together() -> None:
    desk, bob = Desk(), caller("bob")
    desk.add(bob, 1000)
    desk.do(10)
    for number in range(100):
        desk.add(address(str(number)), 10)
    done = Counter(desk.do(200))
    assert 95 <= done["bob"] <= 105
    assert max(count for name, count in done.items() if name != "bob") == 1


def test_connections_are_accepted_however_many_addresses_wait() -> None:
    desk, accepts = Desk(), Share(ShareKind.ACCEPT, "port")
    for number in range(100):
        desk.add(address(str(number)), 10)
    desk.do(10)
    desk.add(accepts, 100)
    assert Counter(desk.do(100))["port"] >= 45


def test_addresses_take_turns() -> None:
    desk = Desk()
    desk.add(address("flood"), 1000)
    desk.do(100)
    desk.add(address("quiet"), 3)
    assert desk.do(6).count("quiet") >= 3


def test_waits_and_uses_are_counted_by_kind() -> None:
    desk = Desk()
    desk.add(caller("alice"), 2)
    desk.add(address("10.0.0.1"))
    desk.do(3)
    assert round(desk.queue.used_s[ShareKind.CALLER], 6) == 2 * STEP_S
    assert round(desk.queue.used_s[ShareKind.ADDRESS], 6) == STEP_S
    assert round(sum(desk.queue.waited_s.values()), 6) == 2 * STEP_S


def test_a_name_has_one_share_while_it_is_used() -> None:
    shares = Shares()
    alice = shares.of(ShareKind.CALLER, "alice")
    assert shares.of(ShareKind.CALLER, "alice") is alice
    assert shares.of(ShareKind.ADDRESS, "alice") is not alice


async def test_what_several_wait_for_is_done_for_none_of_them() -> None:
    async def owner() -> object:
        await asyncio.sleep(0)
        return working_for.get()

    with work_for(caller("alice")):
        assert await as_own_work(owner()) is None
        assert await owner() is not None


async def test_a_caller_has_one_thread_and_others_have_theirs() -> None:
    running, most, both = set[str](), 0, threading.Barrier(2, timeout=30)

    def work(name: str, *, meets_other: bool = False) -> None:
        nonlocal most
        assert name not in running
        running.add(name)
        if meets_other:
            both.wait()
            most = max(most, len(running))
            both.wait()
        running.remove(name)

    async with asyncio.TaskGroup() as group:
        for name in ("alice", "bob"):
            group.create_task(in_thread_of(name, partial(work, name, meets_other=True)))
        for _ in range(20):
            group.create_task(in_thread_of("alice", partial(work, "alice")))
    assert most == 2
