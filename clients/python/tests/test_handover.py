"""Who holds a lock, and holds that are left and resumed."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Callable

import pytest
import redis.asyncio
from harness import Proxy, TestServer, bounded, wait_for

import redis_lock_client as client
from redis_lock_client import Lock, LockInfo, Mode, MultiLock, Released, Semaphore, Server
from redis_lock_client import asyncio as of_tasks


@pytest.mark.parametrize("protocol", [2, 3])
def test_the_holders_of_a_lock(server: TestServer, protocol: int) -> None:
    with Server(server.client(protocol=protocol)) as locks:
        assert locks.lock("k").info() == LockInfo(None, (), 0, 0.0)
        with locks.lock("k", owner="me", note="10.0.0.7", lease=20) as lock:
            waiting = threading.Thread(target=lambda: locks.lock("k").acquire(blocking_timeout=20), daemon=True)
            waiting.start()
            info = wait_for("the waiter", lambda: lock.info() if lock.info().waiters else None)
            (holder,) = info.holders
            assert (info.mode, info.waiters, info.longest_wait >= 0) == ("exclusive", 1, True)
            assert (holder.owner, holder.note, holder.token, holder.holds) == (b"me", b"10.0.0.7", lock.token, 1)
            assert 0 < holder.remaining <= 20 and 0 <= holder.held < 20
            assert "me" not in repr(info) and lock.owner == b"me"
        waiting.join(20)
        both = locks.read_write_lock("rw")
        with both.read_lock() as one, both.read_lock() as two:
            info = one.info()
            assert info.mode == "read" and {holder.owner for holder in info.holders} == {one.owner, two.owner}
        server.run("CONFIG SET lock.string-holders yes")
        server.run("SET text holder EX 600")
        server.run("SADD other x")
        assert locks.lock("text").info().mode == "string"
        with pytest.raises(client.WrongType):
            locks.lock("other").info()
        assert locks.lock("k").owner is None


def test_a_lock_is_handed_to_another_process(server: TestServer) -> None:
    """The two server objects stand for two processes."""
    with Server(server.client()) as here, Server(server.client()) as there:
        for options in ({}, {"mode": Mode.WRITE}, {"mode": Mode.READ}):
            giver, taker = here.lock("k", **options), there.lock("k", lease=30, **options)  # type: ignore[arg-type]
            giver.acquire()
            owner, token = giver.owner, giver.token
            assert owner is not None and token is not None
            giver.leave(600)
            assert giver.owner is None and giver.token is None
            assert 500_000 < server.run("PTTL k") <= 600_000, "it is left"
            assert taker.resume(owner, token)
            assert (taker.owner, taker.token) == (owner, token) and 20 < taker.valid_for() <= 30
            assert server.run("PTTL k") <= 30_000
            assert taker.execute("SET", "written", 1)
            taker.release()
            assert server.run("EXISTS k") == 0
        assert (here.statistics().releases, here.statistics().holds) == (3, 0)
        assert (there.statistics().acquisitions, there.statistics().releases) == (3, 3)
        assert server.stat("finals") == 0


def test_a_resumed_lock_is_renewed_and_lost(server: TestServer) -> None:
    server.run("LOCK.ACQUIRE k them PX 600000")
    token = server.run("LOCK.ACQUIRE k them PX 600000 ONCE")
    with Server(server.client()) as locks:
        lock = locks.lock("k", lease=3)
        lock.resume("them", token)
        wait_for("renewals", lambda: locks.statistics().renewals > 2)
        server.run("DEL k")
        assert lock.lost.wait(20) and lock.lost.reason is client.LostReason.TAKEN


def test_what_cannot_be_resumed(server: TestServer) -> None:
    token = server.hold()
    with Server(server.client()) as locks:
        lock = locks.lock("k")
        for owner, number, key in (("other", token, "k"), ("holder", token + 1, "k"), ("holder", token, "free")):
            with pytest.raises(client.NotOwned):
                locks.lock(key).resume(owner, number)
        server.run("SADD set x")
        with pytest.raises(client.NotOwned):
            locks.lock("set").resume("holder", token)
        for arguments in (("holder", -1), ("holder", "1"), ("", token)):
            with pytest.raises(client.ConfigError):
                lock.resume(*arguments)  # type: ignore[arg-type]
        with pytest.raises(client.ConfigError):
            locks.lock("k", session=True).resume("holder", token)
        assert not hasattr(MultiLock, "resume")
        assert lock.owner is None and server.run("PTTL k") > 500_000, "nothing has changed"
        assert locks.statistics().acquisitions_failed == 4


def test_a_resumption_without_an_answer_releases_nothing(server: TestServer, proxy: Proxy) -> None:
    token = server.hold()
    lock = Lock(redis.Redis(port=proxy.port, **bounded(3)), "k")
    proxy.hold_back(b"LOCK.RENEW", goes_on=False)
    with pytest.raises(client.ConnectionFailed):
        lock.resume("holder", token)
    assert lock.owner is None and server.run(f"LOCK.RENEW k holder PX 600000 TOKEN {token}") == 1


@pytest.mark.parametrize("make", [lambda s: s.lock("k"), lambda s: s.multi_lock(["k", "l"])])
def test_a_lock_is_left(server: TestServer, make: Callable[[Server], Any]) -> None:
    with Server(server.client()) as locks:
        lock = make(locks)
        for rest in (0, -1, "1", None):
            lock.acquire()
            with pytest.raises(client.ConfigError):
                lock.leave(rest)
            assert lock.owned(), "an argument that is wrong ends nothing"
            lock.release()
        with pytest.raises(client.NotAcquired):
            lock.leave(1)
        with lock:
            lock.leave(600)
        assert locks.statistics().holds == 0 and not lock.lost.is_set()
        assert server.run("PTTL k") > 500_000, "the end of a with statement releases nothing"
        server.run("DEL k")
        server.run("DEL l")
        lock.acquire()
        server.run("DEL k")
        with pytest.raises(client.NotOwned):
            lock.leave(600)
        assert lock.owner is None
        server.run("DEL l")
        with lock:
            pass
        assert server.run("EXISTS k l") == 0, "the next one is released again"
    assert server.stat("finals") == 0


def test_a_lock_that_is_left_without_an_answer_ends_with_its_lease(server: TestServer, proxy: Proxy) -> None:
    with Server(redis.Redis(port=proxy.port, **bounded(3))) as locks:
        lock = locks.lock("k", timeout=2)
        proxy.hold_back(b"LOCK.RENEW", goes_on=False)
        with pytest.raises(client.ConnectionFailed), lock:
            lock.leave(600)
        assert lock.owner is None
        wait_for("the end of the lease", lambda: server.run("EXISTS k") == 0)


@pytest.mark.parametrize("session", [False, True])
def test_one_object_acquires_again_what_its_owner_holds(server: TestServer, session: bool) -> None:
    with Server(server.client()) as locks:
        lock = locks.lock("k", owner="me", session=session)
        lock.acquire()
        token = lock.token
        lock.acquire()
        assert lock.token == token and locks.settled(20) == []
        assert lock.owned() and locks.statistics().holds == 1
        if not session:
            assert token is not None and lock.resume(b"me", token)
            assert locks.settled(20) == [] and lock.owned() and locks.statistics().holds == 1
        lock.release()
        assert server.run("EXISTS k") == 0


def test_a_late_renewal_changes_no_lock_that_is_left(server: TestServer, proxy: Proxy) -> None:
    with Server(redis.Redis(port=proxy.port, **bounded(15))) as locks:
        lock = locks.lock("k", lease=9)
        proxy.hold_back(b"LOCK.RENEW")
        lock.acquire()
        wait_for("a renewal", lambda: proxy.held)
        # Without the renewal it is left long before.
        later = threading.Timer(1, proxy.let_go)
        later.start()
        lock.leave(600)
        later.join()
        wait_for("the proxy", lambda: server.observer.info("commandstats")["cmdstat_lock.renew"]["calls"] >= 2)
        assert server.run("PTTL k") > 500_000


def test_a_session_is_left(server: TestServer) -> None:
    with Server(server.client()) as locks:
        with locks.lock("k", session=True) as lock:
            lock.leave(600)
        wait_for("the end of the connection", lambda: len(server.clients()) == 1)
        assert server.run("PTTL k") > 500_000


def test_permits_are_left_and_resumed(server: TestServer) -> None:
    with Server(server.client()) as locks:
        jobs = locks.semaphore("jobs", limit=1)
        permit = jobs.acquire()
        assert permit.leave(600) is Released.YES
        assert jobs.try_acquire() is None
        again = jobs.resume(permit.owner, permit.token)
        assert (again.owner, again.token) == (permit.owner, permit.token) and again.valid_for() > 20
        assert again.release() is Released.YES and again.leave(1) is Released.NOT_HELD
        with pytest.raises(client.NotOwned):
            jobs.resume(permit.owner, permit.token)
        with jobs.acquire() as permit:
            permit.leave(600)
        assert jobs.info() is not None and jobs.try_acquire() is None


def test_tasks_hand_locks_over(server: TestServer) -> None:
    async def work() -> None:
        async with redis.asyncio.Redis(port=server.port) as one, of_tasks.Server(one) as locks:
            async with locks.lock("k") as lock:
                info, owner, token = await lock.info(), lock.owner, lock.token
                assert [holder.owner for holder in info.holders] == [owner]
                assert owner is not None and token is not None
                await lock.leave(600)
            other = locks.lock("k")
            assert await other.resume(owner, token) and other.owner == owner
            await other.release()
            permit = await locks.semaphore("s", limit=1).acquire()
            await permit.leave(600)
            again = await locks.semaphore("s").resume(permit.owner, permit.token)
            assert await again.release() is Released.YES
            assert locks.statistics().holds == 0

    asyncio.run(work())
    assert server.run("EXISTS k") == 0


def test_a_semaphore_of_a_client(server: TestServer) -> None:
    """Without a server object."""
    with Semaphore(server.client(), "jobs", limit=2).acquire() as permit:
        assert permit.owner
