"""Requests that nothing waits for any more: served late, answered during the end, repeated in the background."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
import weakref
from typing import Any, Callable, Optional

import pytest
import redis
import redis.asyncio
from harness import Proxy, TestServer, wait_for
from redis.credentials import CredentialProvider
from test_locks import in_threads, join

import redis_lock_client as client
import redis_lock_client.asyncio
from redis_lock_client import Server, _threads


def test_a_request_that_is_served_late_is_undone(server: TestServer, proxy: Proxy) -> None:
    with Server(redis.Redis(port=proxy.port), response_timeout=1) as locks:
        locks.lock("other").acquire()
        proxy.hold_back(b"LOCK.ACQUIRE", goes_on=False)
        with pytest.raises(client.NoAnswer):
            locks.lock("k").acquire(blocking_timeout=0)
        assert proxy.held == 1
        # The first release, and the one a moment later, find nothing.
        wait_for("two releases", lambda: server.stat("release_misses") == 2, 5)
        proxy.let_go()
        wait_for("the late grant", lambda: server.stat("grants") == 2, 5)
        wait_for("its release", lambda: server.run("EXISTS k") == 0, 5)


@pytest.mark.parametrize("owner", [None, "worker-7"])
def test_a_grant_whose_reply_was_lost_long_before_the_end_is_undone(
    server: TestServer, proxy: Proxy, owner: Optional[str]
) -> None:
    """By the end of the wait the request that was granted can no longer be served."""
    with Server(redis.Redis(port=proxy.port), response_timeout=0.2) as locks:
        locks.lock("other").acquire()
        proxy.refuse()
        proxy.lose_message(b":")
        with pytest.raises(client.ConnectionFailed):
            locks.lock("k", lease=600, owner=owner).acquire(blocking_timeout=1)
        assert proxy.lost == 1 and server.run("EXISTS k") == 1
        proxy.connect_to(server.port)
        wait_for("its release", lambda: server.run("EXISTS k") == 0)


def test_closing_gives_back_what_is_granted_meanwhile(server: TestServer, proxy: Proxy) -> None:
    locks = Server(redis.Redis(port=proxy.port))
    locks.lock("other").acquire()
    proxy.hold_back(b"LOCK.ACQUIRE")
    errors: list[type[BaseException]] = []

    def acquire(_: int) -> None:
        try:
            locks.lock("k").acquire()
        except client.Error as error:
            errors.append(type(error))

    acquiring = in_threads(1, acquire)
    wait_for("the request", lambda: proxy.held == 1)
    closing = in_threads(1, lambda _: locks.close())
    wait_for("the end to begin", lambda: locks._home.engine is None or locks._home.engine.is_closing)
    proxy.let_go()
    join(acquiring + closing)
    assert errors == [client.Closed]
    assert server.stat("grants") == 2 and server.run("EXISTS k other") == 0


def test_a_call_that_began_before_the_end_begins_no_engine(server: TestServer) -> None:
    locks = Server(server.client())
    lock = locks.lock("k")
    locks.close()
    terms = lock._terms
    with pytest.raises(client.Closed):
        _threads._portal.call(locks._home, lambda engine: engine.acquire(terms, None))
    assert locks._home.engine is None and server.run("EXISTS k") == 0


def test_a_release_is_bounded_and_goes_on_in_the_background(server: TestServer) -> None:
    with Server(server.client(), response_timeout=0.6) as locks:
        lock = locks.lock("k", timeout=3600)
        semaphore = locks.semaphore("s", limit=1)
        lock.acquire()
        permit = semaphore.acquire()
        with server.stopped():
            for release in (lock.release, permit.release):
                begin = time.monotonic()
                with pytest.raises(client.ConnectionFailed):
                    release()
                assert 0.5 < time.monotonic() - begin < 2
        assert locks.settled() == []
        assert server.run("EXISTS k") == 0 and semaphore.info().free == 1  # type: ignore[union-attr]
        assert locks.statistics().releases_failed == 0


def test_a_release_that_fails_until_the_end_of_the_lease_is_reported(server: TestServer) -> None:
    with Server(server.client(), response_timeout=0.2) as locks:
        lock = locks.lock("k", timeout=3)
        begin = time.monotonic()
        lock.acquire()
        server.kill()
        with pytest.raises(client.ConnectionFailed):
            lock.release()
        assert time.monotonic() - begin < 2
        (unreleased,) = locks.settled()
        # The last attempt begins at most a pause (0.5 s) before the end.
        assert 2.4 < time.monotonic() - begin < 5
        assert unreleased.key == b"k" and locks.statistics().releases_failed == 1


def test_a_release_goes_on_as_long_as_a_renewal_without_a_reply_may_last(server: TestServer, proxy: Proxy) -> None:
    with Server(redis.Redis(port=proxy.port), response_timeout=0.6) as locks:
        lock = locks.lock("k", lease=2)
        begin = time.monotonic()
        lock.acquire()
        proxy.break_network(b":1\r\n")
        wait_for("the renewal", lambda: server.stat("renewals") == 1)
        with pytest.raises(client.ConnectionFailed):
            lock.release()
        # sleep: longer than the lease of the acquisition
        time.sleep(begin + 2.1 - time.monotonic())
        assert server.run("EXISTS k") == 1
        proxy.mend_network()
        assert locks.settled() == [] and server.run("EXISTS k") == 0


def test_a_release_of_a_task_is_bounded_and_goes_on(server: TestServer) -> None:
    async def work() -> None:
        async with client.asyncio.Server(redis.asyncio.Redis(port=server.port), response_timeout=0.6) as locks:
            lock = locks.lock("k", timeout=3600)
            await lock.acquire()
            with server.stopped():
                begin = time.monotonic()
                with pytest.raises(client.ConnectionFailed):
                    await lock.release()
                assert 0.5 < time.monotonic() - begin < 2
            assert await locks.settled() == []
            assert server.run("EXISTS k") == 0

    asyncio.run(work())


def test_closing_waits_for_a_release(server: TestServer, proxy: Proxy) -> None:
    locks = Server(redis.Redis(port=proxy.port))
    lock = locks.lock("k")
    lock.acquire()
    proxy.hold_back(b"LOCK.RELEASE")
    hold: Any = lock._hold()
    results: list[Any] = []
    releasing = in_threads(1, lambda _: results.append(locks._home.call(lambda _: hold.release())))
    wait_for("the request", lambda: proxy.held == 1)
    closing = in_threads(1, lambda _: locks.close())
    wait_for("the end to begin", lambda: locks._home.engine is None or locks._home.engine.is_closing)
    proxy.let_go()
    join(releasing + closing)
    assert results == [client.Released.YES] and server.run("EXISTS k") == 0
    wait_for("the connections to end", lambda: not server.clients())


def test_a_probe_without_an_answer_is_no_error_in_the_log(server: TestServer, caplog: Any) -> None:
    server.hold()
    with Server(server.client(), response_timeout=0.4) as locks, caplog.at_level(logging.ERROR):
        threads = in_threads(1, lambda _: locks.lock("k").acquire())
        wait_for("the ticket", lambda: server.stat("tickets") == 1)
        subscriber = server.subscribers()[0]["id"]
        with server.stopped():
            # sleep: more than the probes of the subscription wait for an answer
            time.sleep(1)
        wait_for("another subscription", lambda: [one["id"] for one in server.subscribers()] not in ([], [subscriber]))
        server.run("LOCK.RELEASE k holder")
        join(threads)
    gc.collect()
    assert caplog.records == []


class Provider(CredentialProvider):
    """Credentials that cannot be had for a while."""

    def __init__(self) -> None:
        self.is_failing = False
        self.failures = 0

    def get_credentials(self) -> tuple[str, str]:
        if self.is_failing:
            self.failures += 1
            raise KeyError("a text that may be secret")
        return "default", "any"


def test_a_wait_survives_a_failure_of_the_credential_provider(server: TestServer) -> None:
    server.run("ACL SETUSER default >any")
    server.hold()
    provider = Provider()
    with Server(redis.Redis(port=server.port, credential_provider=provider), response_timeout=1) as locks:
        threads = in_threads(1, lambda _: locks.lock("k").acquire())
        wait_for("the ticket", lambda: server.stat("tickets") == 1)
        provider.is_failing = True
        for one in server.clients():
            server.observer.client_kill_filter(_id=one["id"])
        wait_for("failures", lambda: provider.failures > 1)
        with pytest.raises(client.ConnectionFailed) as raised:
            locks.lock("k").acquire(blocking_timeout=0.1)
        assert "secret" not in str(raised.value) and isinstance(raised.value.__cause__, KeyError)
        provider.is_failing = False
        server.run("LOCK.RELEASE k holder")
        join(threads)


def _attempts(locks: Server) -> list[tuple[str, Callable[[float], Any]]]:
    """Acquisitions under a fixed owner, by their wait."""
    return [
        ("a lock", lambda wait: locks.lock("k", owner="me").acquire(blocking_timeout=wait)),
        ("a writer", lambda wait: locks.read_write_lock("rw", owner="me").write_lock().acquire(blocking_timeout=wait)),
        ("two keys", lambda wait: locks.multi_lock(["a", "b"], owner="me").acquire(blocking_timeout=wait)),
        ("a session", lambda wait: locks.lock("bound", owner="me", session=True).acquire(blocking_timeout=wait)),
        ("a permit", lambda wait: locks.semaphore("s", limit=1, owner="me").acquire_within(wait)),
    ]


def test_a_name_that_only_waits_for_answers_is_not_held(server: TestServer) -> None:
    with Server(server.client(), response_timeout=2) as locks:
        warm = locks.lock("warm", owner="me")
        warm.acquire()
        attempts = _attempts(locks)
        with server.stopped():
            for what, acquire in attempts:
                for wait in (0.0, 0.1, 0.0):
                    begin = time.monotonic()
                    with pytest.raises(client.NoAnswer):
                        acquire(wait)
                    assert time.monotonic() - begin < wait + 1.3, what
            with pytest.raises(client.NoAnswer):
                warm.release()
            with pytest.raises(client.NoAnswer, match="earlier request of the same owner"):
                locks.lock("warm", owner="me").acquire(blocking=False)
        held = [acquire(10) for _, acquire in attempts]
        assert all(held), "the requests of before are undone, and their names are free"
        for _, acquire in attempts:
            assert not acquire(0.0), "the name has a hold"


def test_a_name_is_waited_for_until_its_release_is_answered(server: TestServer, proxy: Proxy) -> None:
    with Server(redis.Redis(port=proxy.port)) as locks:
        semaphore = locks.semaphore("s", limit=1, owner="me")
        permit = semaphore.acquire()
        assert semaphore.try_acquire() is None
        proxy.hold_back(b"SEM.RELEASE")
        del permit
        gc.collect()
        wait_for("the release of the dropped permit", lambda: proxy.held == 1)
        permits: list[Any] = []
        threads = in_threads(1, lambda _: permits.append(semaphore.try_acquire()))
        wait_for("the wait for the name", lambda: locks._home.engine is not None and locks._home.engine.names._waits)
        proxy.let_go()
        join(threads)
        assert permits[0] is not None


# Of a loop that was closed without its last step.
unclosed = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")


@unclosed
def test_event_loops_that_have_ended_are_forgotten(server: TestServer) -> None:
    locks = client.asyncio.Server.open(server.url)
    loops: list[weakref.ref[Any]] = []

    async def work() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        async with locks.lock("k"):
            pass

    for _ in range(5):
        asyncio.run(work())
    unfinished = asyncio.new_event_loop()
    unfinished.run_until_complete(work())
    unfinished.close()
    del unfinished
    asyncio.run(work())
    gc.collect()
    assert [loop() for loop in loops] == [None] * 7
    wait_for("no connection is left", lambda: not server.clients())


@unclosed
def test_a_name_is_reserved_in_the_process(server: TestServer, monkeypatch: Any) -> None:
    """Two server objects, and the event loop of a third, know of each other's owners."""
    monkeypatch.setattr("redis_lock_client._engine.reservation._LOOK", 600)
    with Server(server.client()) as here, Server(server.client()) as there:
        one, other = here.lock("k", owner="me"), there.lock("k", owner="me")
        one.acquire()
        assert not other.acquire(blocking_timeout=0.1)

        async def work() -> tuple[bool, bool]:
            one, two = (redis.asyncio.Redis(port=server.port, db=db) for db in (0, 1))
            async with client.asyncio.Server(one) as same, client.asyncio.Server(two) as another:
                lock = same.lock("k", owner="me")
                return await lock.acquire(blocking_timeout=0.1), await another.lock("k", owner="me").acquire()

        assert asyncio.run(work()) == (False, True)
        done: list[Callable[[], None]] = []
        threads = in_threads(1, lambda _: other.acquire() and done.append(other.release))
        wait_for("the wait for the name", lambda: there._home.engine is not None and there._home.engine.names._waits)
        one.release()
        # The wait is woken in the other object's loop, and does not look by itself.
        join(threads)
        monkeypatch.undo()
        assert server.stat("grants") == 3

        async def leave() -> None:
            locks = client.asyncio.Server(redis.asyncio.Redis(port=server.port))
            await locks.lock("left", owner="me", timeout=0.5).acquire()

        unfinished = asyncio.new_event_loop()
        unfinished.run_until_complete(leave())
        unfinished.close()
        assert there.lock("left", owner="me").acquire(blocking_timeout=5)
        del unfinished
        gc.collect()
