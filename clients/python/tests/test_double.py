"""The double of a server, and tests of the package that run above it as they do above a server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import redis
import redis.asyncio

# Collected here, with the double as their server.
from test_handover import (  # noqa: F401
    test_a_lock_is_handed_to_another_process,
    test_a_semaphore_of_a_client,
    test_a_session_is_left,
    test_permits_are_left_and_resumed,
    test_tasks_hand_locks_over,
)
from test_observer import test_one_thread_at_a_time, test_the_events_of_each_kind  # noqa: F401
from test_queues import (  # noqa: F401
    test_a_free_lock_is_acquired,
    test_a_queue_that_stays_short,
    test_more_permits_than_there_are_wait_for_them,
    test_several_permits_in_one_step,
)

import redis_lock_client as client
from redis_lock_client import Lock, LostReason, MultiLock, NotOwned, NotReplicated, ReadWriteLock, Semaphore
from redis_lock_client import asyncio as of_tasks
from redis_lock_client.testing import LockServer


class Double(LockServer):
    """The double, with what these tests use of a server."""

    def __init__(self) -> None:
        super().__init__()
        self.observer = self.client()
        self.observer.ping()

    def run(self, line: str) -> Any:
        words = line.split()
        if words[0] == "PTTL":
            return (self._beside(words[1].encode())[0].until - self._now()) * 1000
        return self.observer.execute_command(*words)

    def stat(self, name: str) -> int:
        return {"tickets": len(self._waits), "finals": len(self._final)}[name]

    def hold(self, key: str = "k") -> int:
        return int(self.run(f"LOCK.ACQUIRE {key} holder PX 600000"))

    def clients(self) -> list[Any]:
        return [one for one in self._connections if not one.channels][1:]


@pytest.fixture
def server() -> Iterator[Double]:
    with Double() as one:
        yield one


def test_leases_on_a_clock_that_the_test_moves(server: Double) -> None:
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


def test_a_loss_on_demand(server: Double) -> None:
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
        server.run(f"LOCK.IF k {token} SET total 1")
    assert one.get("total") is None


def test_the_order_of_waits(server: Double) -> None:
    one = server.client()
    both, order = ReadWriteLock(one, "rw"), []

    def work(number: int) -> None:
        lock = both.write_lock() if number == 0 else both.read_lock()
        with lock:
            order.append(number)

    from test_locks import in_threads, join

    first = both.read_lock()
    first.acquire()
    writer = in_threads(1, work)
    while server.stat("tickets") < 1:
        pass
    readers = in_threads(3, lambda number: work(number + 1))
    while server.stat("tickets") < 4:
        pass
    assert (first.info().mode, first.info().waiters) == ("read", 4)
    first.release()
    join(writer + readers)
    assert order[0] == 0 and sorted(order[1:]) == [1, 2, 3]


def test_tasks(server: Double) -> None:
    async def work() -> None:
        async with redis.asyncio.from_url(server.url) as one:
            lock = of_tasks.Lock(one, "k", timeout=10)
            await lock.acquire()
            waiting = asyncio.ensure_future(of_tasks.Lock(one, "k").acquire())
            while server.stat("tickets") == 0:
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
