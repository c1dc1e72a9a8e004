"""Acquisitions of a named owner: their order, the other modes of the lock, and grants that nothing has read."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any, Callable, Union

import pytest
import redis
import redis.asyncio
from harness import Proxy, TestServer, wait_for
from test_asyncio import until
from test_locks import in_threads, join

import redis_lock_client as client
import redis_lock_client.asyncio
from redis_lock_client import Mode, Server
from redis_lock_client._engine.link import Link

#: More rounds than an acquisition waits for its turn.
ROUNDS = 300


def test_threads_of_one_owner_take_turns(server: TestServer) -> None:
    """They share a name in this process, so the server's queue does not order them."""
    with Server(server.client()) as locks:
        lock = locks.lock("k", owner="worker-7")
        lock.acquire()
        done: list[int] = []

        def acquire(_: int) -> None:
            with locks.lock("k", owner="worker-7"):
                done.append(1)

        threads = in_threads(1, acquire)
        wait_for("the wait for the name", lambda: locks._home.engine is not None and locks._home.engine.names._waits)
        lock.release()
        rounds = 0
        while not done and rounds < ROUNDS:
            with lock:
                rounds += 1
        join(threads)
        assert rounds < 3, "before its turn"


def test_tasks_of_one_owner_take_turns(server: TestServer) -> None:
    async def work() -> None:
        async with client.asyncio.Server(redis.asyncio.Redis(port=server.port)) as locks:
            order: list[int] = []

            async def acquire(number: int) -> None:
                async with locks.lock("k", owner="worker-7"):
                    order.append(number)

            lock = locks.lock("k", owner="worker-7")
            await lock.acquire()
            tasks = []
            for number in range(5):
                tasks.append(asyncio.create_task(acquire(number)))
                await asyncio.sleep(0)
            tasks[1].cancel()
            await lock.release()
            rounds = 0
            while len(order) < 4 and rounds < ROUNDS:
                async with lock:
                    rounds += 1
            assert order == [0, 2, 3, 4] and rounds < 3
            # One that is given the name at its end hands it on.
            await lock.acquire()
            given, next_one = (asyncio.create_task(acquire(number)) for number in (5, 6))
            await asyncio.sleep(0)
            await lock.release()
            given.cancel()
            await asyncio.wait_for(next_one, 10)
            assert order[4:] == [6]

    asyncio.run(work())


def test_keys_that_are_free_do_not_wait_for_others(server: TestServer) -> None:
    """The owner holds one key, and another acquisition of it waits for that one and a further one."""
    with Server(server.client()) as locks:
        first = locks.lock("a", owner="me")
        first.acquire()
        done: list[bool] = []
        threads = in_threads(1, lambda _: done.append(locks.multi_lock(["a", "b"], owner="me").acquire()))
        wait_for("the wait for the name", lambda: locks._home.engine is not None and locks._home.engine.names._waits)
        second = locks.lock("b", owner="me")
        assert second.acquire(blocking_timeout=5)
        first.release()
        assert not locks.lock("b", owner="me").acquire(blocking=False)
        second.release()
        join(threads)
        assert done == [True]


@pytest.mark.parametrize("is_held_before", [True, False])
@pytest.mark.parametrize("mode", [Mode.READ, Mode.WRITE])
@pytest.mark.parametrize("is_multi", [False, True])
def test_the_undoing_of_an_exclusive_request_ends_no_hold_of_another_mode(
    server: TestServer, is_multi: bool, mode: Mode, is_held_before: bool
) -> None:
    """A release of an exclusive lock names no mode."""
    patience = 0.4
    with Server(server.client(), response_timeout=patience) as locks:
        exclusive: Any = locks.lock("k", owner="me")
        if is_multi:
            exclusive = locks.multi_lock(["j", "k"], owner="me")
        other = locks.lock("k", owner="me", mode=mode)
        with exclusive:
            pass
        if is_held_before:
            other.acquire()
        with server.stopped(), pytest.raises(client.ConnectionFailed):
            exclusive.acquire(blocking=False)
        if not is_held_before:
            assert other.acquire(blocking_timeout=10)
        # sleep: the request is undone at the latest after the response timeout
        time.sleep(2 * patience)
        token = other.token
        assert server.run(f"LOCK.RENEW k me {mode.value} PX 30000 TOKEN {token}") == 1
        other.release()
        assert locks.settled() == []
        wait_for("free keys", lambda: server.run("EXISTS j k") == 0)


def test_the_undoing_does_not_wait_for_a_lost_reply_to_its_own_release(server: TestServer, proxy: Proxy) -> None:
    with Server(redis.Redis(port=proxy.port), response_timeout=4) as locks:
        locks.lock("warm").acquire()
        # The first release has no reply either, and is repeated when the connection is given up.
        proxy.hold_back(b"LOCK.ACQUIRE", goes_on=False)
        with pytest.raises(client.NoAnswer):
            locks.lock("k", owner="me").acquire(blocking=False)
        # The second one does not wait until the first one can no longer be served.
        wait_for("the second release", lambda: server.stat("release_misses") == 2, 4)
        proxy.let_go()
        wait_for("the late grant", lambda: server.stat("grants") == 2)
        wait_for("its release", lambda: server.run("EXISTS k") == 0, 4)


def _reply_cancels(monkeypatch: pytest.MonkeyPatch, task: asyncio.Task[Any], is_grant: Callable[[bytes], bool]) -> None:
    """Cancels the task in the same turn of the loop in which the grant is read."""
    read = Link.data_received

    def data_received(link: Link, data: bytes) -> None:
        read(link, data)
        if is_grant(data):
            monkeypatch.undo()
            assert not task.done()
            task.cancel()

    monkeypatch.setattr(Link, "data_received", data_received)


@pytest.mark.parametrize("owner", [None, "worker-7"])
@pytest.mark.parametrize("keys", [["k"], ["k", "l"]])
@pytest.mark.parametrize("what", ["first reply", "ticket's reply", "ticket's message", "confirmation", "parked"])
def test_a_grant_that_nothing_has_read_is_undone(
    server: TestServer,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    keys: list[str],
    owner: Union[str, None],
) -> None:
    grant = b"*2\r\n:" if len(keys) > 1 else b":"

    def is_grant(data: bytes) -> bool:
        return b"granted" in data if what == "ticket's message" else data.startswith(grant)

    async def work() -> None:
        near = redis.asyncio.Redis(port=proxy.port)
        async with client.asyncio.Server(near, parked_waits=what == "parked") as locks:
            await locks.lock("warm").acquire()
            lock: Any = locks.lock("k", owner=owner, timeout=600)
            if len(keys) > 1:
                lock = locks.multi_lock(keys, owner=owner, timeout=600)
            if what != "first reply":
                server.hold()
            if what == "ticket's reply":
                proxy.hold_back(b"NOTIFY")
            task = asyncio.create_task(lock.acquire())
            if what == "ticket's reply":
                await until("the request", lambda: proxy.held == 1)
            elif what == "parked":
                await until("the place", lambda: server.stat("places") >= 1)
            elif what != "first reply":
                await until("the ticket", lambda: server.stat("tickets") == 1)
            _reply_cancels(monkeypatch, task, is_grant)
            if what != "first reply":
                server.run("LOCK.RELEASE k holder")
            proxy.let_go()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait_for(asyncio.shield(task), 10)
            assert task.cancelled()
            assert server.stat("grants") > len(keys)
            await until("free keys", lambda: server.run(f"EXISTS {' '.join(keys)}") == 0, 3)

    asyncio.run(work())
