"""Holds that are bound to a connection: ``Lock(..., session=True)``."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Callable

import pytest
import redis
import redis.asyncio
from harness import Proxy, TestServer, bounded, move_slot, outcome, pairs, soonest, two_nodes, wait_for
from test_asyncio import cancel_at_every_pause, run, until
from test_locks import in_threads, join
from test_processes import SOURCE

import redis_lock_client as client
import redis_lock_client.asyncio
from redis_lock_client import Lock, LostReason, Mode, Server

#: A short lease of sessions, in milliseconds.
SHORT = ("--lock.session-lease", "1500")


def holder(server: TestServer, key: str = "k") -> dict[Any, Any]:
    """The holder of a key."""
    (found,) = pairs(server.run(f"LOCK.INFO {key}"))[b"holders"]
    return pairs(found)


def kill_session(server: TestServer, key: str = "k") -> None:
    """Ends the connection to which the hold is bound."""
    found = holder(server, key)
    assert found[b"session"] == 1
    assert server.observer.client_kill_filter(_id=int(found[b"client-id"])) == 1


def test_a_session_without_contention(server: TestServer) -> None:
    with Server(server.client()) as locks:
        lock = locks.lock("k", session=True)
        assert lock.acquire() is True
        found = holder(server)
        assert (found[b"session"], found[b"token"], found[b"owner"]) == (1, lock.token, lock.local.token)
        assert 9 < lock.valid_for() < 10, "the lease is that of the server"
        assert lock.owned() and lock.locked() and not lock.lost.is_set()
        first = lock.token
        lock.release()
        assert server.run("EXISTS k") == 0 and lock.token is None
        wait_for("the end of its connection", lambda: len(server.clients()) <= 1)
        with lock:
            assert lock.token > first
            with pytest.raises(client.NotAcquired, match="no timeout"):
                lock.extend(5)
        numbers = locks.statistics()
        assert (numbers.acquisitions, numbers.releases, numbers.holds, numbers.waits) == (2, 2, 0, 0)


def test_a_session_lasts_longer_than_its_lease(start: Callable[..., TestServer]) -> None:
    server = start("--lock.session-lease", "2400")
    with Server(server.client()) as locks, locks.lock("k", session=True) as lock:
        # sleep: two leases
        time.sleep(5.5)
        assert lock.owned() and not lock.lost.is_set() and 0 < lock.valid_for() < 2.4
        assert holder(server)[b"session"] == 1
        assert locks.statistics().renewals >= 5


def test_waits_for_sessions(start: Callable[..., TestServer]) -> None:
    server = start("--lock.queue-grace", "20000")
    server.hold()
    redis_client = server.client(**bounded(1))
    with Server(redis_client) as locks:
        lock = locks.lock("k", session=True)
        for _ in range(5):
            assert lock.acquire(blocking=False) is False
        assert len(server.clients()) <= 1, "a request that is refused leaves no connection"
        begin = time.monotonic()
        assert lock.acquire(blocking_timeout=0.4) is False
        assert 0.4 <= time.monotonic() - begin < 2
        wait_for("the withdrawal", lambda: server.queue() == [])
        done: list[int] = []

        def wait(number: int) -> None:
            with locks.lock("k", session=True) as one:
                done.append(number)
                assert not one.lost.is_set()

        threads = in_threads(5, wait)
        wait_for("the places", lambda: len(server.queue()) == 5)
        queue = server.queue()
        # sleep: several requests of each wait, which keep its place
        time.sleep(1.5)
        # Between two requests of one wait its place is kept, and not listed.
        wait_for("the same places", lambda: server.queue() == queue)
        assert locks.statistics().waiting == 5
        server.run("LOCK.RELEASE k holder")
        join(threads)
        assert sorted(done) == list(range(5)) and locks.statistics().waiting == 0
        assert locks.settled() == []
    redis_client.connection_pool.disconnect()
    wait_for("the connections to end", lambda: not server.clients())


def test_sessions_are_granted_in_order(server: TestServer) -> None:
    server.hold()
    order: list[int] = []
    with Server(server.client(**bounded(60))) as locks:

        def work(number: int) -> None:
            with locks.lock("k", session=True) as one:
                order.append(number)
                assert one.token is not None

        threads: list[threading.Thread] = []
        for number in range(5):
            threads += [threading.Thread(target=work, args=(number,), daemon=True)]
            threads[-1].start()
            wait_for("the place", lambda number=number: len(server.queue()) == number + 1)
        server.run("LOCK.RELEASE k holder")
        join(threads)
        assert order == list(range(5))


def test_the_end_of_the_connection_is_a_loss_at_once(server: TestServer) -> None:
    reported: list[LostReason] = []
    with Server(server.client()) as locks:
        lock = locks.lock("k", session=True, on_lost=reported.append)
        lock.acquire()
        waiting = in_threads(1, lambda _: locks.lock("k").acquire() and order.append(time.monotonic()))
        order: list[float] = []
        wait_for("the ticket", lambda: server.stat("tickets") == 1)
        begin = time.monotonic()
        kill_session(server)
        assert lock.lost.wait(5) and lock.lost.reason == LostReason.DISCONNECTED
        assert "connection" in str(lock.lost.reason) and lock.valid_for() == 0
        join(waiting)
        assert order[0] - begin < 5, "the server has released it before the end of the lease"
        wait_for("the function", lambda: reported == [LostReason.DISCONNECTED])
        with pytest.raises(client.NotOwned):
            lock.release()
        assert not lock.acquire(blocking=False)


def test_the_end_of_the_process_releases(server: TestServer) -> None:
    script = f"""
import os, redis, sys
from redis_lock_client import Lock
client = redis.Redis(port={server.port})
Lock(client, "k", session=True).acquire()
if os.fork() == 0:
    # The child has no copy of the connection, which would keep it open.
    sys.stdin.read()
    os._exit(0)
print("held", flush=True)
sys.stdin.read()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": SOURCE, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == b"held\n"
    lock = Lock(server.client(), "k")
    assert not lock.acquire(blocking=False)
    process.kill()
    process.wait()
    begin = time.monotonic()
    assert lock.acquire(blocking_timeout=8) and time.monotonic() - begin < 5, "before the end of the lease"
    process.stdin.close()
    process.stdout.close()


@pytest.mark.parametrize("how", ["LOCK.BREAK k", "DEL k", "SET k foreign"])
def test_a_broken_session(start: Callable[..., TestServer], how: str) -> None:
    server = start(*SHORT)
    with Server(server.client()) as locks:
        lock = locks.lock("k", session=True)
        lock.acquire()
        server.run(how)
        assert lock.lost.wait(5)
        assert lock.lost.reason is not None and lock.lost.reason.kind == ("refused" if "SET" in how else "taken")
        with pytest.raises(client.NotOwned):
            lock.release()


def test_a_server_that_hangs_is_noticed_before_the_lease_ends(start: Callable[..., TestServer]) -> None:
    server = start("--lock.session-lease", "6000")
    with Server(server.client(**bounded(0.5))) as locks:
        lock, margin = locks.lock("k", session=True), locks.lock("m", session=True, margin=10)
        begin = time.monotonic()
        lock.acquire()
        margin.acquire()
        with server.stopped():
            assert margin.lost.wait(10)
            assert 2.9 < time.monotonic() - begin < 4.9, "the margin is at most half of the lease"
            assert lock.lost.wait(10)
            assert 4.9 < time.monotonic() - begin < 6
            assert lock.lost.reason == LostReason.UNCONFIRMED and 0 < lock.valid_for() <= 1
            link: Any = lock._hold().link  # type: ignore[union-attr]
            assert link.is_open, "the holder has yet to stop"
            wait_for("the end of the connection with the lease", lambda: not link.is_open)
        wait_for("the end of the holds", lambda: server.run("EXISTS k m") == 0)


@pytest.mark.parametrize("is_connected", [True, False])
def test_a_request_is_bounded_by_the_client(server: TestServer, is_connected: bool) -> None:
    with Server(server.client(**bounded(0.4))) as locks:
        lock = locks.lock("k", blocking_timeout=0, session=True)
        if is_connected:
            lock.acquire()
            lock.release()
        with server.stopped():

            def acquire() -> None:
                with pytest.raises(redis.exceptions.TimeoutError):
                    lock.acquire()

            assert soonest(acquire) < 1.5
        assert locks.settled() == []
        assert server.run("EXISTS k") == 0
        assert lock.acquire(blocking_timeout=5)


def test_a_wait_in_the_queue_is_bounded(server: TestServer) -> None:
    server.hold()
    lock = Lock(server.client(**bounded(1)), "k", blocking_timeout=1, session=True)
    begin = time.monotonic()
    results: list[Any] = []
    threads = in_threads(1, lambda _: results.append(outcome(lock.acquire)))
    wait_for("the place", lambda: server.queue())
    with server.stopped():
        join(threads, 5)
        assert results == [client.NoAnswer] and time.monotonic() - begin < 4


def test_a_lost_reply(server: TestServer, proxy: Proxy) -> None:
    with Server(redis.Redis(port=proxy.port, **bounded(1))) as locks:
        lock = locks.lock("k", session=True)
        with lock:
            # The reply to the login of another connection has numbers, too.
            begin = str(lock.token)[:6].encode()
        proxy.lose_message(b":" + begin)
        with pytest.raises(client.ConnectionFailed):
            lock.acquire(blocking_timeout=5)
        assert lock.acquire(blocking_timeout=5)
        assert proxy.lost == 1 and holder(server)[b"owner"] == lock.local.token
        assert not lock.lost.wait(1.5), "the undoing of the first request does not end the second"
        assert lock.owned()
        lock.release()
        assert locks.settled() == [] and server.run("EXISTS k") == 0


def test_a_wait_survives_the_end_of_its_connection(server: TestServer) -> None:
    server.hold()
    with Server(server.client(**bounded(1))) as locks:
        lock = locks.lock("k", session=True)
        named = locks.lock("k", session=True, owner="me")
        threads = in_threads(2, lambda number: (lock, named)[number].acquire() and done.append((lock, named)[number]))
        done: list[Lock] = []
        wait_for("the places", lambda: len(server.queue()) == 2)
        for one in server.clients():
            server.observer.client_kill_filter(_id=one["id"])
        wait_for(
            "the places of two owners that live", lambda: server.stat("tickets") == 2 and len(server.subscribers()) == 1
        )
        server.run("LOCK.RELEASE k holder")
        wait_for("one of them", lambda: len(done) == 1)
        kill_session(server)
        join(threads)
        assert len(done) == 2 and holder(server)[b"session"] == 1


def test_a_request_that_is_served_late_is_undone(server: TestServer, proxy: Proxy) -> None:
    with Server(redis.Redis(port=proxy.port, **bounded(1))) as locks:
        locks.lock("other").acquire()
        proxy.hold_back(b"SESSION", goes_on=False)
        with pytest.raises(client.NoAnswer):
            locks.lock("k", session=True).acquire(blocking_timeout=0)
        assert proxy.held == 1
        assert locks.settled() == [] and server.stat("finals") == 1
        proxy.let_go()
        wait_for("the late request", lambda: server.stat("finals_refused") == 1, 5)
        assert server.stat("grants") == 1 and server.run("EXISTS k") == 0


def test_a_release_goes_on_in_the_background(server: TestServer) -> None:
    with Server(server.client(**bounded(0.6))) as locks:
        lock = locks.lock("k", session=True)
        lock.acquire()
        with server.stopped():
            begin = time.monotonic()
            with pytest.raises(client.ConnectionFailed):
                lock.release()
            assert 0.5 < time.monotonic() - begin < 2
        assert locks.settled() == [] and server.run("EXISTS k") == 0
        assert not lock.lost.is_set()


@pytest.mark.parametrize("owner", [None, "me"])
def test_a_grant_that_is_not_confirmed_is_undone(server: TestServer, proxy: Proxy, owner: str | None) -> None:
    with Server(redis.Redis(port=proxy.port, **bounded(0.5))) as locks:
        proxy.break_network(b"LOCK.INFO")
        with pytest.raises(client.ConnectionFailed):
            locks.lock("k", session=True, owner=owner).acquire(blocking_timeout=0.1)
        assert holder(server)[b"session"] == 1, "the server does not know of the end of the connection"
        proxy.mend_network()
        wait_for("the release", lambda: server.run("EXISTS k") == 0)
        assert locks.settled() == []


@pytest.mark.parametrize("is_released", [True, False])
def test_a_network_that_is_broken_for_longer_than_the_lease(
    start: Callable[..., TestServer], is_released: bool
) -> None:
    server = start(*SHORT)
    proxy = Proxy(server.port)
    with Server(redis.Redis(port=proxy.port, **bounded(0.3))) as locks:
        lock = locks.lock("k", session=True)
        lock.acquire()
        proxy.break_network()
        if is_released:
            with pytest.raises(client.ConnectionFailed):
                lock.release()
        # sleep: longer than the lease and the response timeout
        time.sleep(2.5)
        assert lock.lost.is_set() is not is_released
        assert holder(server)[b"session"] == 1, "the server renews it"
        proxy.mend_network()
        wait_for("the release", lambda: server.run("EXISTS k") == 0)
        assert locks.settled() == []
    proxy.close()


def test_a_connection_that_ends_at_once_is_reported(server: TestServer, proxy: Proxy) -> None:
    reported: list[LostReason] = []
    with Server(redis.Redis(port=proxy.port)) as locks:
        for number in range(5):
            proxy.cut_after(b"held-ms")
            lock = locks.lock(f"k{number}", session=True, on_lost=reported.append)
            with contextlib.suppress(client.ConnectionFailed):
                # The end may come first: then there is another attempt.
                lock.acquire(blocking_timeout=2)
        losses = locks.statistics().losses
        wait_for("the functions", lambda: len(reported) == losses)


def test_a_function_that_cannot_be_called(start: Callable[..., TestServer], monkeypatch: pytest.MonkeyPatch) -> None:
    server = start(*SHORT)
    begin = threading.Thread.start

    def no_thread(self: threading.Thread) -> None:
        if self.name == "redis-lock-lost":
            raise RuntimeError("can't start new thread")
        begin(self)

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    proxy = Proxy(server.port)
    with Server(redis.Redis(port=proxy.port, **bounded(0.3))) as locks:
        lock = locks.lock("k", session=True, on_lost=print)
        lock.acquire()
        proxy.break_network()
        assert lock.lost.wait(3)
        proxy.mend_network()
        wait_for("the end of the hold with its lease", lambda: server.run("EXISTS k") == 0)
    proxy.close()


def test_many_readers_do_not_read_each_other(start: Callable[..., TestServer]) -> None:
    server = start("--lock.session-lease", "6000")

    async def work() -> None:
        async with client.asyncio.Server.open(server.url) as locks:
            readers = [locks.lock("k", session=True, mode=Mode.READ) for _ in range(60)]
            await asyncio.gather(*(reader.acquire() for reader in readers))
            await until("renewals", lambda: locks.statistics().renewals >= 180)
            assert not any(reader.lost.is_set() for reader in readers)
            assert all(0 < reader.valid_for() < 6 for reader in readers)

    run(work())
    calls = server.observer.info("commandstats")
    assert calls["cmdstat_lock.info"]["calls"] < calls["cmdstat_lock.renew"]["calls"] / 2


def test_a_closed_server_leaves_nothing(server: TestServer) -> None:
    server.hold()
    locks = Server.open(server.url)
    held = locks.lock("held", session=True)
    held.acquire()
    errors: list[type[BaseException]] = []

    def wait(_: int) -> None:
        try:
            locks.lock("k", session=True).acquire()
        except client.Error as error:
            errors.append(type(error))

    threads = in_threads(1, wait)
    wait_for("the place", lambda: server.queue())
    lost = held.lost
    locks.close()
    join(threads)
    assert errors == [client.Closed] and not lost.is_set()
    assert server.run("EXISTS held") == 0 and server.queue() == []
    wait_for("the connections to end", lambda: not server.clients())
    with pytest.raises(client.NotOwned):
        held.release()


def test_a_lost_session_that_is_forgotten_leaves_no_connection(start: Callable[..., TestServer]) -> None:
    server = start(*SHORT)
    with Server(server.client()) as locks:
        locks.lock("k", session=True).acquire()
        gc.collect()
        # sleep: more than the lease
        time.sleep(2)
        assert server.run("EXISTS k") == 1, "a lock stays held when its object is dropped"
        server.run("LOCK.BREAK k")
        wait_for("the loss", lambda: locks.statistics().losses == 1)
        wait_for("no hold", lambda: gc.collect() >= 0 and locks.statistics().holds == 0)
        wait_for("no connection of its own", lambda: len(server.clients()) <= 1)


def test_arguments(server: TestServer) -> None:
    with Server(redis.Redis(port=1)) as locks:
        for wrong in ({"timeout": 5}, {"lease": 5}, {"renew": False}):
            with pytest.raises(client.ConfigError, match="session"):
                locks.lock("k", session=True, **wrong)
        lock = locks.lock("k", session=True)
        lock.timeout = 5
        with pytest.raises(client.ConfigError):
            lock.acquire()
        assert locks.statistics().connections == 0
    with Server(server.client()) as locks:
        named = locks.lock("k", session=True, owner="me")
        with named:
            assert holder(server)[b"owner"] == b"me"
        both = locks.read_write_lock("rw", session=True)
        with both.read_lock() as one, both.read_lock() as other:
            assert one.token == other.token
            assert not both.write_lock().acquire(blocking=False)
        with both.write_lock(), Lock(locks, "x", mode=Mode.READ, session=True):
            assert holder(server, "x")[b"session"] == 1
        wait_for("the end of their connections", lambda: len(server.clients()) <= 2)


def test_users(server: TestServer) -> None:
    parts = "resetchannels +@connection -@dangerous +lock.acquire +lock.release +lock.renew"
    server.run(f"ACL SETUSER few on >secret ~* {parts}")
    server.run(f"ACL SETUSER many on >secret ~k {parts} +lock.info")
    with Server(server.client(username="few", password="secret")) as locks:
        with pytest.raises(client.NoPermission, match=r"(?i)lock.info") as raised:
            locks.lock("k", session=True).acquire()
        assert "secret" not in str(raised.value) and "few" not in str(raised.value)
        assert locks.settled() == [] and server.run("EXISTS k") == 0
    with Server(server.client(username="many", password="secret")) as locks:
        with locks.lock("k", session=True) as lock:
            assert lock.owned()
        with pytest.raises(client.NoPermission):
            locks.lock("other", session=True).acquire()


def test_a_slot_that_moves_is_a_loss() -> None:
    here, there = two_nodes(*SHORT)
    try:
        cluster = redis.RedisCluster(host="127.0.0.1", port=here.port)
        with Server(cluster) as locks:
            lock = locks.lock("{a}k", session=True)
            lock.acquire()
            move_slot(here, there, cluster.keyslot("{a}k"))
            assert lock.lost.wait(5) and lock.lost.reason == LostReason.DISCONNECTED
            with contextlib.suppress(client.NotOwned):
                lock.release()
            with lock:
                assert holder(there, "{a}k")[b"session"] == 1
            assert there.run("EXISTS {a}k") == 0
        cluster.close()
    finally:
        here.stop()
        there.stop()


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_session_whose_process_stood_still_asks_first(start: Callable[..., TestServer], is_lost: bool) -> None:
    """The server renews it: the time that has passed is no reason for a loss."""
    # A loss is reported at the latest a sixth of the lease after the question.
    server = start("--lock.session-lease", "6000")
    script = f"""
import redis, sys
from redis_lock_client import Lock
lock = Lock(redis.Redis(port={server.port}), "k", session=True)
lock.acquire()
print("held", flush=True)
sys.stdin.readline()
print(lock.lost.wait(2), lock.lost.reason and lock.lost.reason.kind, lock.valid_for() > 0, flush=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": SOURCE, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert process.stdout is not None and process.stdout.readline() == b"held\n"
    process.send_signal(signal.SIGSTOP)
    # sleep: longer than the lease
    time.sleep(7)
    if is_lost:
        server.run("LOCK.BREAK k")
    process.send_signal(signal.SIGCONT)
    out, _ = process.communicate(b"\n", timeout=20)
    assert out.split() == ([b"True", b"taken", b"False"] if is_lost else [b"False", b"None", b"True"])


# asyncio


def test_a_loop_that_stood_still(start: Callable[..., TestServer]) -> None:
    server = start(*SHORT)

    async def work() -> None:
        async with client.asyncio.Server.open(server.url) as locks, locks.lock("k", session=True) as lock:
            # sleep: the loop does not run for several leases
            time.sleep(4)  # noqa: ASYNC251
            assert not await lock.lost.wait(2) and lock.valid_for() > 0

    run(work())


def test_tasks(server: TestServer) -> None:
    async def work() -> None:
        async with client.asyncio.Server.open(server.url) as locks:
            lock = locks.lock("k", session=True)
            async with lock:
                assert holder(server)[b"session"] == 1 and await lock.owned()
                waiting = asyncio.create_task(locks.lock("k", session=True).acquire(blocking_timeout=5))
                await until("the place", lambda: server.queue())
                kill_session(server)
                assert await lock.lost.wait(5) and lock.lost.reason == LostReason.DISCONNECTED
                assert await waiting
                lock.raise_on_release_error = False
        assert len(asyncio.all_tasks()) == 1

    run(work())
    wait_for("no connection is left", lambda: not server.clients())
    assert server.run("EXISTS k") == 0


def test_a_cancelled_wait_is_withdrawn(server: TestServer) -> None:
    async def work() -> None:
        server.hold()
        async with client.asyncio.Server.open(server.url) as locks:
            tasks = [asyncio.create_task(locks.lock("k", session=True).acquire()) for _ in range(5)]
            await until("the places", lambda: len(server.queue()) == 5)
            for task in tasks[:4]:
                task.cancel()
            await until("the withdrawals", lambda: len(server.queue()) == 1)
            server.run("LOCK.RELEASE k holder")
            assert await tasks[4]
            for is_taken in (False, True):
                lock = functools.partial(locks.lock, "moments", session=True)
                await cancel_at_every_pause(server, locks, lock, "moments", is_taken)

    run(work())


def test_an_opening_that_is_cancelled_leaves_nothing(server: TestServer) -> None:
    async def work() -> None:
        for turns in range(40):
            locks = client.asyncio.Server.open(server.url)
            task = asyncio.create_task(locks.lock("k", session=True).acquire())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await locks.aclose()
            assert server.run("EXISTS k") == 0
            await until("the end of the connections", lambda: not server.clients())

    asyncio.run(work())
