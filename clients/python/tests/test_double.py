"""The double of a server: what is not in the scenarios of calls that all packages share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

import redis_lock_client as client
from redis_lock_client import Lock, LostReason, MultiLock, NotOwned, NotReplicated, Semaphore
from redis_lock_client import asyncio as of_tasks
from redis_lock_client.testing import LockServer


@pytest.fixture
def server() -> Iterator[LockServer]:
    with LockServer() as one:
        yield one


def test_leases_on_a_clock_that_the_test_moves(server: LockServer) -> None:
    one = server.client()
    fixed, renewed = Lock(one, "fixed", timeout=10), Lock(one, "renewed", lease=10)
    other = Lock(server.client(), "fixed", blocking_timeout=60)
    fixed.acquire()
    renewed.acquire()
    server.advance(6)
    assert fixed.owned() and 0 < fixed.valid_for() <= 4 and renewed.valid_for() > 4
    assert not other.acquire(blocking=False)
    server.advance(5)
    assert fixed.lost.wait(20) and fixed.lost.reason is LostReason.UNCONFIRMED and fixed.valid_for() == 0
    assert other.acquire() and (other.token or 0) > 0
    with pytest.raises(NotOwned):
        fixed.release()
    server.advance(3600)
    assert renewed.owned() and not renewed.lost.is_set()
    renewed.release()
    longest = Lock(one, "l", max_hold=60, lease=10)
    longest.acquire()
    server.advance(61)
    assert longest.lost.wait(20)


def test_a_loss_on_demand(server: LockServer) -> None:
    one = server.client()
    lock, both = Lock(one, "k"), MultiLock(one, ["k2", "l"])
    lock.acquire()
    both.acquire()
    assert lock.execute("SET", "total", 1) and lock.execute("INCR", "total") == 2
    assert lock.execute("GET", "total") == b"2" and lock.execute("DEL", "total") == 1
    server.lose("k")
    assert lock.lost.is_set() and lock.lost.reason is LostReason.TAKEN and not both.lost.is_set()
    server.lose("l")
    assert both.lost.is_set()
    late = Lock(one, "k")
    with late:
        token = late.token
        assert token
    with pytest.raises(redis.ResponseError, match="FENCED"):
        one.execute_command("LOCK.IF", "k", token, "SET", "total", 1)
    assert one.get("total") is None


def test_tasks(server: LockServer) -> None:
    async def work() -> None:
        async with redis.asyncio.from_url(server.url) as one:
            lock = of_tasks.Lock(one, "k", timeout=10)
            await lock.acquire()
            waiting = asyncio.ensure_future(of_tasks.Lock(one, "k").acquire())
            while not (await of_tasks.Lock(one, "k").info()).waiters:
                # sleep: polls
                await asyncio.sleep(0.01)
            server.advance(11)
            assert await lock.lost.wait(20)
            assert await waiting
            with pytest.raises(NotOwned):
                await lock.release()
            kept = of_tasks.Lock(one, "other")
            await kept.acquire()
            server.lose("other")
            assert await kept.lost.wait(20) and kept.lost.reason is LostReason.TAKEN

    asyncio.run(work())


def test_replicas() -> None:
    with LockServer(replicas=1) as server:
        with Lock(server.client(), "k", replicas=1):
            pass
        with pytest.raises(NotReplicated):
            Semaphore(server.client(), "s", limit=1, replicas=2).acquire()


def test_a_client_of_its_own() -> None:
    with LockServer() as server:
        with client.Server.open(server.url) as locks, locks.lock("k", session=True) as lock:
            assert lock.info().holders[0].remaining
        assert not server.client().exists("k")


def test_what_one_owner_has_already_and_what_is_refused() -> None:
    with LockServer() as server, client.Server(server.client()) as locks:
        me: Any = {"owner": "me"}
        both = [locks.lock("rw", mode=mode, blocking=False, **me) for mode in (client.Mode.READ, client.Mode.WRITE)]
        read, write = both
        for first, second in (both, both[::-1]):
            assert first.acquire() and second.acquire() and read.info().mode == "write"
            assert (read.token == write.token) == (first is write)
            second.release()
            assert first.owned()
            first.release()
        with locks.lock("rw", mode=client.Mode.READ), read:
            assert not write.acquire()
            with pytest.raises(client.WrongType):
                locks.lock("rw").acquire()
        lock = locks.lock("k", lease=9.5, **me)
        lock.acquire()
        with locks.multi_lock(["k", "l"], lease=9.5, **me) as several:
            assert several.tokens["k"] == lock.token
            assert any(lock.info().holders[0].remaining % 1 for _ in range(5)), "not only whole seconds"
            with pytest.raises(client.WrongType):
                locks.semaphore("k", limit=1).try_acquire()
            assert lock.execute("SET", "a", "x", "NX") and lock.execute("SET", "a", "y", "NX") is None
            assert lock.execute("SET", "b", "y", "XX") is None and lock.execute("GET", "a") == b"x"
            for command in (("INCR", "a"), ("INCR", "k"), ("SET", "a", 1, "EX", 5)):
                with pytest.raises(client.Refused):
                    lock.execute(*command)
            lock.execute("SET", "b", -7)
            assert lock.execute("INCR", "b") == -6 and lock.execute("DEL", "a", "b") == 2
