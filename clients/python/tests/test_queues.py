"""Queues that stay short, and several permits in one step."""

from __future__ import annotations

import asyncio
from typing import Any, Callable

import pytest
import redis.asyncio
from harness import Proxy, TestServer, repeating, wait_for
from test_locks import in_threads, join

import redis_lock_client as client
from redis_lock_client import Mode, QueueFull, Released, Semaphore, Server
from redis_lock_client import asyncio as of_tasks

#: What is waited for, and how it is acquired.
KINDS: list[Callable[..., Any]] = [
    lambda s, **options: s.lock("k", **options).acquire(blocking_timeout=60),
    lambda s, **options: s.lock("k", session=True, **options).acquire(blocking_timeout=60),
    lambda s, **options: s.lock("k", mode=Mode.READ, **options).acquire(blocking_timeout=60),
    lambda s, **options: s.multi_lock(["l", "k"], **options).acquire(blocking_timeout=60),
    lambda s, **options: s.semaphore("k", **options).acquire_within(60),
    lambda s, **options: s.latch("k").wait(60, **options),
]
#: Takes the key, and ends that.
TAKEN = [
    ("LOCK.ACQUIRE k holder PX 600000", "LOCK.RELEASE k holder"),
    ("LOCK.ACQUIRE k holder PX 600000", "LOCK.RELEASE k holder"),
    ("LOCK.ACQUIRE k holder WRITE PX 600000", "LOCK.RELEASE k holder"),
    ("LOCK.ACQUIRE k holder PX 600000", "LOCK.RELEASE k holder"),
    ("SEM.ACQUIRE k holder LIMIT 1 PX 600000", "SEM.RELEASE k holder"),
    ("LATCH.SET k 1", "LATCH.DOWN k"),
]


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_a_queue_that_stays_short(server: TestServer, kind: int) -> None:
    wait, (take, free) = KINDS[kind], TAKEN[kind]
    server.run(take)
    # One that repeats requests by itself.
    with Server(server.client(**repeating(3))) as locks:
        for _ in range(2):
            with pytest.raises(QueueFull) as raised:
                wait(locks, queue=0)
            assert raised.value.code == "QUEUEFULL" and isinstance(raised.value, client.Refused)
        results: list[Any] = []
        waiting = in_threads(1, lambda _: results.append(wait(locks, queue=1)))
        wait_for("the ticket", lambda: (server.stat("tickets"), locks.statistics().waiting) == (1, 1))
        with pytest.raises(QueueFull):
            wait(locks, queue=1)
        assert server.stat("tickets") == 1 and locks.statistics().waiting == 1
        server.run(free)
        join(waiting)
        assert len(results) == 1 and results[0]
    assert server.stat("tickets") == 0


def test_a_free_lock_is_acquired(server: TestServer) -> None:
    with Server(server.client()) as locks:
        for _ in range(3):
            # The first request of the second one begins with a ticket.
            with locks.lock("k", queue=0), pytest.raises(QueueFull):
                locks.lock("k", queue=0).acquire()
        assert server.stat("finals") == 0, "nothing was left to give up"


def test_a_place_is_kept_when_the_connection_breaks(server: TestServer, proxy: Proxy) -> None:
    server.hold()
    with Server(redis.Redis(port=proxy.port)) as locks:
        results: list[Any] = []
        waiting = in_threads(1, lambda _: results.append(locks.lock("k", queue=1).acquire()))
        wait_for("the ticket", lambda: server.stat("tickets") == 1)
        asked = server.observer.info("commandstats")["cmdstat_lock.acquire"]["calls"]
        proxy.cut()
        wait_for(
            "the request at its place",
            lambda: server.observer.info("commandstats")["cmdstat_lock.acquire"]["calls"] > asked,
        )
        assert server.stat("tickets") == 1
        server.run("LOCK.RELEASE k holder")
        join(waiting)
        assert results == [True]


def test_several_permits_in_one_step(server: TestServer) -> None:
    with Server(server.client()) as locks:
        three = locks.semaphore("s", limit=4, lease=3, count=3)
        permit = three.acquire()
        assert permit.count == 3
        info = three.info()
        assert info is not None and (info.held, info.free) == (3, 1)
        assert three.try_acquire() is None, "all or none"
        single = locks.semaphore("s").try_acquire()
        assert single is not None and single.count == 1
        wait_for("renewals", lambda: locks.statistics().renewals > 1)
        info = three.info()
        assert info is not None and info.held == 4, "all are renewed"
        results: list[Any] = []
        waiting = in_threads(1, lambda _: results.append(three.acquire()))
        wait_for("the ticket", lambda: server.stat("tickets") == 1)
        single.release()
        assert permit.release() is Released.YES
        join(waiting)
        info = three.info()
        assert info is not None and info.held == 3
        assert results[0].release() is Released.YES
        info = three.info()
        assert info is not None and (info.held, info.free) == (0, 4)


def test_more_permits_than_there_are_wait_for_them(server: TestServer) -> None:
    with Server(server.client()) as locks:
        jobs = locks.semaphore("s", count=3)
        jobs.set(2)
        assert jobs.try_acquire() is None
        results: list[Any] = []
        waiting = in_threads(1, lambda _: results.append(jobs.acquire()))
        wait_for("the ticket", lambda: server.stat("tickets") == 1)
        jobs.set(3)
        join(waiting)
        assert results[0].count == 3
        results[0].release()


def test_wrong_arguments(server: TestServer) -> None:
    one = server.client()
    with Server(one) as locks:
        for queue in (-1, 1_000_001, "1", 1.0, True):
            for kind in KINDS:
                with pytest.raises(client.ConfigError, match="queue"):
                    kind(locks, queue=queue)
        for options in ({"count": 0}, {"count": 65}, {"count": "1"}, {"count": 3, "limit": 2}):
            with pytest.raises(client.ConfigError, match="count"):
                Semaphore(one, "s", **options)  # type: ignore[arg-type]


def test_tasks(server: TestServer) -> None:
    server.hold()

    async def work() -> None:
        async with redis.asyncio.Redis(port=server.port) as one, of_tasks.Server(one) as locks:
            first = asyncio.ensure_future(locks.lock("k", queue=1).acquire())
            while server.stat("tickets") == 0:
                # sleep: polls
                await asyncio.sleep(0.01)
            with pytest.raises(QueueFull):
                await locks.lock("k", queue=1).acquire()
            server.run("LOCK.RELEASE k holder")
            assert await first
            async with await locks.semaphore("s", limit=3, count=2).acquire() as permit:
                assert permit.count == 2

    asyncio.run(work())
    assert server.stat("tickets") == 0
