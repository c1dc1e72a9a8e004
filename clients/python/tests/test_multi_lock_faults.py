"""Locks of several keys when requests are late, keys are lost and slots move."""

from __future__ import annotations

import time
from typing import Any

import pytest
import redis
from harness import Proxy, TestServer, bounded, move_slot, repeating, two_nodes, wait_for
from test_locks import in_threads, join

import redis_lock_client as client
from redis_lock_client import Server
from redis_lock_client._requests import release, set_lease
from redis_lock_client._threads import run


def test_a_wait_holds_none_when_a_key_is_lost_right_after_the_grant(server: TestServer, proxy: Proxy) -> None:
    server.hold("a")
    with Server(redis.Redis(port=proxy.port)) as locks:
        lock = locks.multi_lock(["a", "b"])
        threads = in_threads(1, lambda _: lock.acquire() and lock.release())
        wait_for("the ticket", lambda: server.stat("tickets") == 1)
        proxy.hold_back(b"LOCK.MACQUIRE")
        server.run("LOCK.RELEASE a holder")
        wait_for("the confirmation", lambda: proxy.held == 1)
        server.run("LOCK.BREAK a")
        server.hold("a")
        proxy.let_go()
        wait_for("the release of the other key", lambda: not _exists(server, "b"))
        wait_for("the place in the queue", lambda: len(server.queue("a")) == 1)
        server.run("LOCK.RELEASE a holder")
        join(threads, 10)
    assert server.run("EXISTS a b") == 0


def _exists(server: TestServer, key: str) -> bool:
    return bool(server.run(f"EXISTS {key}"))


@pytest.mark.parametrize("method", ["extend", "reacquire"])
def test_an_extension_does_not_count_a_key_that_a_late_request_takes_again(
    server: TestServer, proxy: Proxy, method: str
) -> None:
    near = redis.Redis(port=proxy.port, socket_timeout=1, **repeating(1))
    with Server(near) as locks:
        lock = locks.multi_lock(["a", "b"], timeout=30)
        locks.lock("other").acquire()
        proxy.hold_back(b"LOCK.MACQUIRE")
        assert lock.acquire(blocking_timeout=5)
        server.run("LOCK.BREAK a")
        assert server.hold("a") > lock.tokens["a"]
        server.run("LOCK.RELEASE a holder")
        proxy.let_go()
        wait_for("the late grant", lambda: _exists(server, "a"))
        with pytest.raises(client.NotOwned):
            lock.extend(5) if method == "extend" else lock.reacquire()
        assert lock.lost.is_set() and lock.valid_for() == 0


def test_a_failed_extension_is_released_as_long_as_it_may_last(server: TestServer) -> None:
    proxy = Proxy(server.port)
    with Server(redis.Redis(port=proxy.port, **bounded(0.3))) as locks:
        lock = locks.multi_lock(["a", "b"], timeout=0.8)
        lock.acquire()
        server.run("LOCK.BREAK a")
        with pytest.raises(client.NotOwned):
            lock.extend(600)
        assert server.run("PTTL b") > 500_000
        proxy.break_network()
        with pytest.raises(client.NotOwned):
            lock.release()
        # sleep: longer than the lease before
        time.sleep(1)
        proxy.mend_network()
        wait_for("the release", lambda: not _exists(server, "b"))
        assert locks.settled() == []
    proxy.close()


def test_a_hold_is_released_once(server: TestServer) -> None:
    """Two threads share a lock: one has read the hold, and goes on when the other has released it."""
    with Server(server.client()) as locks:
        lock, following = (locks.multi_lock(["a", "b"], timeout=60, owner="me", thread_local=False) for _ in range(2))
        lock.acquire()
        hold: Any = lock._hold()
        lock.release()
        following.acquire()
        with pytest.raises(client.NotOwned):
            run(set_lease(hold, 0.5))
        assert run(release(hold)) is client.Released.NOT_HELD
        assert following.owned() and server.run("PTTL a") > 1_000


def test_a_release_key_by_key_is_bounded(server: TestServer) -> None:
    proxy = Proxy(server.port)
    with Server(redis.Redis(port=proxy.port, **bounded(0.6))) as locks:
        lock = locks.multi_lock([f"k{number}" for number in range(60)], timeout=1.5)
        lock.acquire()
        server.run("DEL k0")
        server.run("SET k0 foreign")
        for _ in range(200):
            proxy.hold_back(b"LOCK.RELEASE\r\n$3")
        with pytest.raises(client.ConnectionFailed):
            lock.release()
        begin = time.monotonic()
        failed = [one.key for one in locks.settled()]
        assert time.monotonic() - begin < 4
        assert sorted(failed) == sorted(b"k%d" % number for number in range(60))
    proxy.close()


def test_keys_in_a_slot_that_moves_are_renewed_and_released_one_by_one() -> None:
    here, there = two_nodes()
    cluster = redis.RedisCluster(host="127.0.0.1", port=here.port)
    try:
        with Server(cluster) as locks:
            lock: Any = locks.multi_lock(["{x}1", "{x}2"], lease=1.5)
            lock.acquire()
            slot = cluster.keyslot("{x}1")
            names = [node.observer.execute_command("CLUSTER MYID").decode() for node in (here, there)]
            there.run(f"CLUSTER SETSLOT {slot} IMPORTING {names[0]}")
            here.run(f"CLUSTER SETSLOT {slot} MIGRATING {names[1]}")
            here.observer.execute_command("MIGRATE", "127.0.0.1", there.port, "{x}1", 0, 10_000)
            renewed = locks.statistics().renewals
            wait_for("renewals of more than a lease", lambda: locks.statistics().renewals >= renewed + 5)
            assert not lock.lost.is_set()
            lock.release()
            move_slot(here, there, slot)
            assert locks.settled() == [] and there.run("EXISTS {x}1") == there.run("EXISTS {x}2") == 0
    finally:
        cluster.close()
        here.stop()
        there.stop()
