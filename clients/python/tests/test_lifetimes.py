"""Holds that outlast what they were made with: an idle engine, the process, the event loop."""

from __future__ import annotations

import pytest
import redis
from harness import Proxy, TestServer, wait_for

from redis_lock_client import LostReason, NoAnswer, Server


def retired(locks: Server) -> bool:
    """Whether an engine that is not to be used any more has closed."""
    locks._home.retire()
    return locks._home.engine is None


def test_an_unused_engine_stays_until_the_lease_of_a_lost_lock_is_over(server: TestServer) -> None:
    with Server(server.client()) as locks:
        lock, forgotten = locks.lock("k", timeout=6, margin=3), locks.lock("other", timeout=0.5)
        lock.acquire()
        forgotten.acquire()
        assert lock.lost.wait(10) and lock.lost.reason == LostReason.UNCONFIRMED
        assert not retired(locks) and lock.valid_for() > 0
        lock.release()
        assert server.run("EXISTS k") == 0
        wait_for("the end of the engine", lambda: retired(locks))


def test_an_unused_engine_stays_until_no_late_request_can_be_served(server: TestServer, proxy: Proxy) -> None:
    with Server(redis.Redis(port=proxy.port), response_timeout=2) as locks:
        locks.lock("other", timeout=0.1).acquire()
        proxy.hold_back(b"LOCK.ACQUIRE", goes_on=False)
        with pytest.raises(NoAnswer):
            locks.lock("k", lease=600).acquire(blocking_timeout=0)
        wait_for("two releases", lambda: server.stat("release_misses") == 2)
        assert not retired(locks)
        proxy.let_go()
        wait_for("the late grant", lambda: server.stat("grants") == 2)
        wait_for("its release", lambda: server.run("EXISTS k") == 0)
        wait_for("the end of the engine", lambda: retired(locks))
