"""What one user's agent keeps waiting holds up nobody else."""

import asyncio
import inspect

from redbox.jobs.background_tasks import BackgroundTasks


async def test_one_users_waiting_chores_leave_places_for_others() -> None:
    done, never = asyncio.Event(), asyncio.Event()

    async def work_of_another() -> None:
        done.set()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        tasks = BackgroundTasks(group, at_once=8, of_one=4)
        for number in range(50):
            tasks.start(number, _wait(never), of=2001)
        tasks.start("another's", work_of_another(), of=2002)
        await done.wait()
        never.set()


async def test_what_was_not_begun_when_the_server_ends_is_let_go() -> None:
    work = _wait(asyncio.Event())
    async with asyncio.TaskGroup() as group:
        BackgroundTasks(group).start("never begun", work)
        (task,) = asyncio.all_tasks() - {asyncio.current_task()}
        task.cancel()
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED


async def _wait(event: asyncio.Event) -> None:
    await event.wait()
