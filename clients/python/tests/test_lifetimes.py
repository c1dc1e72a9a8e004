"""Holds that outlast what they were made with: an idle engine, the process, the event loop."""

from __future__ import annotations

from harness import TestServer, wait_for

from redis_lock_client import LostReason, Server


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
