"""Holds that outlast what they were made with: an idle engine, the process, the event loop."""

from __future__ import annotations

import asyncio
import multiprocessing
from typing import Any

import pytest
import redis
import redis.asyncio
from harness import TestServer, bounded
from test_locks import in_threads, join

import redis_lock_client as client
import redis_lock_client.asyncio
from redis_lock_client import Lock, LostReason, Released, Server

#: Of a loop that is closed without its last step.
unclosed = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def test_a_lock_that_was_reported_lost_can_be_released_until_its_lease_is_over(server: TestServer) -> None:
    with Server(server.client()) as locks:
        lock = locks.lock("k", timeout=6, margin=3)
        lock.acquire()
        assert lock.lost.wait(10) and lock.lost.reason == LostReason.UNCONFIRMED
        assert lock.valid_for() > 0
        lock.release()
        assert server.run("EXISTS k") == 0


def test_a_child_does_not_hold_the_permits_of_its_parent(server: TestServer) -> None:
    context = multiprocessing.get_context("fork")
    queue: Any = context.Queue()

    def child(permit: client.Permit) -> None:
        queue.put(permit.valid_for())
        queue.put(permit.release())

    def child_of_a_task(permit: client.asyncio.Permit) -> None:
        queue.put(permit.valid_for())
        queue.put(asyncio.run(permit.release()))

    def check(work: Any, permit: Any) -> None:
        process = context.Process(target=work, args=(permit,))
        process.start()
        assert queue.get(timeout=10) == 0 and queue.get(timeout=10) is Released.NOT_HELD
        process.join(10)
        assert permit.valid_for() > 0

    async def work() -> None:
        async with client.asyncio.Server.open(server.url) as locks:
            async with await locks.semaphore("s", limit=1).acquire() as permit:
                check(child_of_a_task, permit)
                assert await locks.semaphore("s").try_acquire() is None
            assert permit.valid_for() == 0

    with Server(server.client(**bounded(60))) as locks:
        with locks.semaphore("s", limit=1).acquire() as permit:
            check(child, permit)
            assert locks.semaphore("s").try_acquire() is None
        assert permit.valid_for() == 0
    asyncio.run(work())


def test_a_lock_that_is_not_held_is_not_waited_for(server: TestServer) -> None:
    lock = Lock(server.client(), "k")
    found: list[bool] = []
    with lock:
        # The hold is that of this thread.
        join(in_threads(1, lambda _: found.append(lock.lost.wait())), 10)
    assert not lock.lost.wait() and found == [False]

    async def work() -> None:
        assert not await asyncio.wait_for(client.asyncio.Lock(redis.asyncio.Redis(), "k").lost.wait(), 10)

    asyncio.run(work())


@unclosed
def test_a_loss_is_reported_beside_a_loop_that_is_closed(server: TestServer) -> None:
    there = asyncio.new_event_loop()
    reported: list[LostReason] = []

    async def work() -> None:
        async with client.asyncio.Server.open(server.url) as locks:
            lock = locks.lock("k", lease=2.1, on_lost=reported.append)
            await lock.acquire()
            lost = lock.lost
            waiting = asyncio.get_running_loop().run_in_executor(None, leave, lost)
            left = await waiting
            server.run("DEL k")
            assert await lost.wait(10)
            await asyncio.sleep(0)
            assert reported == [LostReason.TAKEN] and locks.statistics().losses == 1 and not left.done()

    def leave(lost: client.asyncio.Lost) -> Any:
        """A wait that its event loop never ends."""
        task = there.create_task(lost.wait())
        there.run_until_complete(asyncio.sleep(0))
        there.close()
        return task

    asyncio.run(work())


@unclosed
def test_a_lock_belongs_to_its_event_loop(server: TestServer) -> None:
    """A hold is not touched by another event loop; when its own is closed without its last step, it is over."""
    locks = client.asyncio.Server.open(server.url)
    here, there = asyncio.new_event_loop(), asyncio.new_event_loop()
    try:
        lock = locks.lock("k", timeout=60)
        permit = here.run_until_complete(locks.semaphore("s", limit=1).acquire())
        assert here.run_until_complete(lock.acquire())
        for work in (lock.release, lock.reacquire, lock.owned, permit.release):
            with pytest.raises(RuntimeError, match="another event loop"):
                there.run_until_complete(work())
        assert lock.valid_for() > 0
        here.run_until_complete(lock.release())
        assert here.run_until_complete(permit.release()) is Released.YES and server.run("EXISTS k") == 0

        assert here.run_until_complete(lock.acquire())
        permit = here.run_until_complete(locks.semaphore("s").acquire())
        here.close()
        with pytest.raises(client.NotOwned):
            there.run_until_complete(lock.reacquire())
        with pytest.raises(client.NotOwned):
            there.run_until_complete(lock.release())
        assert there.run_until_complete(permit.release()) is Released.NOT_HELD
        there.run_until_complete(there.shutdown_asyncgens())
    finally:
        here.close()
        there.close()
