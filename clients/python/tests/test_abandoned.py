"""Requests that nothing waits for any more: served late, answered during the end, repeated in the background."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
import weakref
from typing import Any, Optional

import pytest
import redis
import redis.asyncio
from harness import Proxy, TestServer, bounded, repeating, wait_for
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from test_locks import in_threads, join

import redis_lock_client as client
import redis_lock_client.asyncio
from redis_lock_client import Server
from redis_lock_client._requests import release
from redis_lock_client._threads import run


@pytest.mark.parametrize("wait", [0.0, None])
def test_a_request_that_is_served_late_grants_nothing(server: TestServer, proxy: Proxy, wait: Optional[float]) -> None:
    with Server(redis.Redis(port=proxy.port, **bounded(1))) as locks:
        locks.lock("other").acquire()
        proxy.hold_back(b"LOCK.ACQUIRE", goes_on=False)
        with pytest.raises(client.NoAnswer):
            locks.lock("k").acquire(blocking_timeout=wait)
        assert proxy.held == 1
        assert locks.settled() == [] and server.stat("finals") == 1
        proxy.let_go()
        wait_for("the late request", lambda: server.stat("finals_refused") == 1, 5)
        assert server.stat("grants") == 1 and server.run("EXISTS k") == 0


def test_a_request_that_the_client_has_sent_twice_grants_nothing_after_the_release(
    server: TestServer, proxy: Proxy
) -> None:
    """redis-py repeats it by itself; the first one is served after the lock was released."""
    with Server(redis.Redis(port=proxy.port, socket_timeout=1, **repeating(1))) as locks:
        locks.lock("other").acquire()
        proxy.hold_back(b"LOCK.ACQUIRE", goes_on=False)
        lock = locks.lock("k")
        assert lock.acquire(blocking=False) and proxy.held == 1
        lock.release()
        proxy.let_go()
        wait_for("the late request", lambda: server.stat("finals_refused") == 1, 5)
        assert server.run("EXISTS k") == 0


def test_a_grant_whose_reply_was_lost_is_undone(server: TestServer, proxy: Proxy) -> None:
    with Server(redis.Redis(port=proxy.port, **bounded(0.2))) as locks:
        locks.lock("other").acquire()
        proxy.refuse()
        proxy.lose_message(b":")
        with pytest.raises(client.ConnectionFailed):
            locks.lock("k", lease=600).acquire(blocking_timeout=1)
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
    wait_for("the end to begin", lambda: locks._hub.is_closing)
    proxy.let_go()
    join(acquiring + closing)
    assert errors == [client.Closed]
    assert server.stat("grants") == 2 and server.run("EXISTS k other") == 0


def test_a_release_is_bounded_and_goes_on_in_the_background(server: TestServer) -> None:
    with Server(server.client(**bounded(0.6))) as locks:
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
    with Server(server.client(**bounded(0.2))) as locks:
        lock = locks.lock("k", timeout=3)
        begin = time.monotonic()
        lock.acquire()
        server.kill()
        with pytest.raises(client.ConnectionFailed):
            lock.release()
        assert time.monotonic() - begin < 2
        (unreleased,) = locks.settled()
        # The last attempt begins at most a pause (0.5 s) before the end.
        assert 2.4 < time.monotonic() - begin < 6
        assert unreleased.key == b"k" and locks.statistics().releases_failed == 1


def test_a_release_goes_on_as_long_as_a_renewal_without_a_reply_may_last(server: TestServer, proxy: Proxy) -> None:
    with Server(redis.Redis(port=proxy.port, **bounded(0.6))) as locks:
        with locks.lock("first"):
            # The end of its owner is like the reply to a renewal.
            pass
        lock = locks.lock("k", lease=7)
        begin = time.monotonic()
        lock.acquire()
        proxy.break_network(b":1\r\n")
        wait_for("the renewal", lambda: server.stat("renewals") == 1)
        with pytest.raises(client.ConnectionFailed):
            lock.release()
        # sleep: longer than the lease of the acquisition
        time.sleep(max(0.0, begin + 7.1 - time.monotonic()))
        assert server.run("EXISTS k") == 1
        proxy.mend_network()
        assert locks.settled() == [] and server.run("EXISTS k") == 0


def test_a_release_of_a_task_is_bounded_and_goes_on(server: TestServer) -> None:
    async def work() -> None:
        async with client.asyncio.Server(redis.asyncio.Redis(port=server.port, **bounded(0.6, True))) as locks:
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
    releasing = in_threads(1, lambda _: results.append(run(release(hold))))
    wait_for("the request", lambda: proxy.held == 1)
    closing = in_threads(1, lambda _: locks.close())
    wait_for("the end to begin", lambda: locks._hub.is_closing)
    proxy.let_go()
    join(releasing + closing)
    assert results == [client.Released.YES] and server.run("EXISTS k") == 0


def test_a_probe_without_an_answer_is_no_error_in_the_log(server: TestServer, caplog: Any) -> None:
    server.hold()
    with Server(server.client(**bounded(0.4))) as locks, caplog.at_level(logging.ERROR):
        threads = in_threads(1, lambda _: locks.lock("k").acquire())
        wait_for("the ticket", lambda: server.stat("tickets") == 1)
        subscriber = server.subscribers()[0]["id"]
        with server.stopped():
            # sleep: more than the probes of the subscription wait for an answer
            time.sleep(2)
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
    with Server(redis.Redis(port=server.port, credential_provider=provider, **bounded(1))) as locks:
        threads = in_threads(1, lambda _: locks.lock("k").acquire())
        wait_for("the ticket", lambda: server.stat("tickets") == 1)
        provider.is_failing = True
        for one in server.clients():
            server.observer.client_kill_filter(_id=one["id"])
        wait_for("failures", lambda: provider.failures > 1)
        for wait in (0.1, None):
            with pytest.raises(client.ConnectionFailed) as raised:
                locks.lock("k").acquire(blocking_timeout=wait)
            assert "secret" not in str(raised.value) and isinstance(raised.value.__cause__, KeyError)
        provider.is_failing = False
        server.run("LOCK.RELEASE k holder")
        join(threads)


def test_event_loops_that_have_ended_are_forgotten(server: TestServer) -> None:
    locks = client.asyncio.Server.open(server.url)
    loops: list[weakref.ref[Any]] = []

    async def work() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        async with locks.lock("k"):
            pass

    for _ in range(5):
        asyncio.run(work())
    gc.collect()
    # The client itself keeps the last one.
    assert [loop() for loop in loops[:4]] == [None] * 4
    wait_for("no connection is left", lambda: not server.clients())


def test_the_repetitions_of_a_client_end_with_the_wait(server: TestServer) -> None:
    with Server(redis.Redis(port=server.port, socket_timeout=0.5, **repeating(40))) as locks:
        locks.lock("other", timeout=60).acquire()
        with server.stopped():
            begin = time.monotonic()
            with pytest.raises(client.ConnectionFailed):
                locks.lock("k").acquire(blocking_timeout=1)
            assert time.monotonic() - begin < 6
        assert locks.settled() == [] and server.run("EXISTS k") == 0


def test_the_repetitions_of_a_client_end_with_the_wait_of_a_task(server: TestServer) -> None:
    retry = redis.asyncio.retry.Retry(NoBackoff(), 40)

    async def work() -> None:
        async with redis.asyncio.Redis(port=server.port, socket_timeout=0.5, retry=retry) as redis_client:
            locks = client.asyncio.Server(redis_client)
            await locks.lock("other", timeout=60).acquire()
            with server.stopped():
                begin = time.monotonic()
                with pytest.raises(client.ConnectionFailed):
                    await locks.lock("k").acquire(blocking_timeout=1)
                assert time.monotonic() - begin < 6
            assert await locks.settled() == [] and server.run("EXISTS k") == 0
            await locks.aclose()

    asyncio.run(work())


def test_many_threads_and_a_pool_of_one_connection(server: TestServer) -> None:
    with Server(server.client(max_connections=1)) as locks:
        errors: list[BaseException] = []

        def work(number: int) -> None:
            try:
                for _ in range(5):
                    with locks.lock(f"k{number % 20}", lease=2), locks.multi_lock([f"a{number}", f"b{number}"]):
                        pass
            except BaseException as error:
                errors.append(error)

        join(in_threads(60, work))
        assert errors == [] and locks.settled() == []
        assert locks.statistics().renewals_failed == 0
