"""Grants that replicas have."""

from __future__ import annotations

import asyncio
import pickle
import threading
import time
from typing import Any, Callable, Optional

import pytest
import redis
import redis.asyncio
from harness import Proxy, TestServer, add_replica, bounded, move_slot, outcome, pairs, two_nodes, wait_for
from redis.crc import key_slot
from test_locks import in_threads, join

import redis_lock_client as client
from redis_lock_client import Mode, NotReplicated, Server
from redis_lock_client import asyncio as of_tasks
from redis_lock_client._replicas import replicated

#: Far longer than a replica of the same machine needs, also on a busy one.
LONG = 30


@pytest.fixture
def primary(start: Callable[..., TestServer]) -> TestServer:
    return start("--repl-diskless-sync-delay", "0", "--repl-timeout", "600")


@pytest.fixture
def replica(primary: TestServer, start: Callable[..., TestServer]) -> TestServer:
    one = start("--repl-timeout", "600")
    one.run(f"REPLICAOF 127.0.0.1 {primary.port}")
    wait_for("the replica", lambda: one.observer.info("replication").get("master_link_status") == "up")
    return one


KINDS: list[Callable[..., Any]] = [
    lambda s, **options: s.lock("k", **options),
    lambda s, **options: s.lock("k", owner="me", **options),
    lambda s, **options: s.lock("k", mode=Mode.READ, **options),
    lambda s, **options: s.lock("k", mode=Mode.WRITE, **options),
    lambda s, **options: s.multi_lock(["k", "l"], **options),
]


@pytest.mark.parametrize("make", KINDS)
def test_a_grant_that_replicas_have(primary: TestServer, replica: TestServer, make: Callable[..., Any]) -> None:
    with Server(primary.client()) as locks:
        with make(locks, replicas=1, replicas_within=LONG) as lock:
            assert replica.run("EXISTS k") == 1 and lock.valid_for() > 20
        for _ in range(5):
            with pytest.raises(NotReplicated, match=r"[01] of 2 replicas have the grant within 50 ms"):
                make(locks, replicas=2, replicas_within=0.05).acquire()
            assert primary.run("EXISTS k l") == 0, "it is free at once"
        with locks.lock("k"):
            pass
        assert locks.statistics().acquisitions_failed == 5 and locks.statistics().holds == 0
        assert not locks.lock("k", replicas=1).lost.is_set()


def test_the_number_of_replicas(primary: TestServer, replica: TestServer) -> None:
    with Server(primary.client()) as locks:
        with pytest.raises(NotReplicated, match="1 of 2 replicas have the grant within 5000 ms") as raised:
            locks.lock("k", replicas=2, replicas_within=5).acquire()
        assert (raised.value.wanted, raised.value.had, raised.value.lock_name) == (2, 1, b"k")
        assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
    assert replica.run("EXISTS other") == 0


def test_a_permit_that_replicas_have(primary: TestServer, replica: TestServer) -> None:
    with Server(primary.client()) as locks:
        with locks.semaphore("s", limit=1, replicas=1, replicas_within=LONG).acquire():
            assert pairs(replica.run("SEM.INFO s"))[b"held"] == 1
        with pytest.raises(NotReplicated):
            locks.semaphore("s", replicas=2, replicas_within=0.05).try_acquire()
        assert locks.settled(20) == []
        permit = locks.semaphore("s").try_acquire()
        assert permit is not None
        permit.release()


def test_after_a_wait(primary: TestServer, replica: TestServer) -> None:
    primary.hold()
    with Server(primary.client()) as locks:
        good = locks.lock("k", replicas=1, replicas_within=LONG)
        waiting = in_threads(1, lambda _: good.acquire())
        wait_for("the ticket", lambda: primary.stat("tickets") == 1)
        primary.run("LOCK.RELEASE k holder")
        join(waiting)
        assert replica.run("EXISTS k") == 1
        errors: list[BaseException] = []

        def fail(_: int) -> None:
            try:
                locks.lock("k", replicas=2, replicas_within=0.05).acquire()
            except client.Error as error:
                errors.append(error)

        waiting = in_threads(1, fail)
        wait_for("the ticket", lambda: primary.stat("tickets") == 1)
        primary.run("DEL k")
        join(waiting)
        assert [type(error) for error in errors] == [NotReplicated]


def test_a_replica_that_hangs_delays_nothing_else(primary: TestServer, replica: TestServer) -> None:
    """With a pool of one connection."""
    with Server(primary.client(max_connections=1)) as locks:
        with replica.stopped():
            slow = locks.lock("slow", replicas=1, replicas_within=LONG)
            waiting = threading.Thread(target=slow.acquire, daemon=True)
            waiting.start()
            wait_for("WAIT", lambda: primary.observer.info("clients")["blocked_clients"] == 1)
            with locks.lock("other"):
                pass
            assert primary.observer.info("clients")["blocked_clients"] == 1
            # Those that come meanwhile are asked for together.
            others = in_threads(5, lambda number: locks.lock(f"k{number}", replicas=1, replicas_within=LONG).acquire())
            wait_for("the grants", lambda: primary.run("EXISTS k0 k1 k2 k3 k4") == 5)
        waiting.join(60)
        join(others)
        assert primary.observer.info("commandstats")["cmdstat_wait"]["calls"] <= 4
        with replica.stopped(), pytest.raises(NotReplicated, match="0 of 1"):
            locks.lock("late", replicas=1, replicas_within=0.2).acquire()
        assert locks.settled(20) == [] and primary.run("EXISTS late") == 0


def test_a_lost_grant_and_a_lost_reply(primary: TestServer, replica: TestServer) -> None:
    proxy = Proxy(primary.port)
    with Server(redis.Redis(port=proxy.port, **bounded(30))) as locks:
        with replica.stopped():
            lock = locks.lock("k", replicas=1, replicas_within=0.3)
            errors: list[BaseException] = []

            def fail(_: int) -> None:
                try:
                    lock.acquire(blocking=False)
                except client.Error as error:
                    errors.append(error)

            proxy.hold_back(b"LOCK.RENEW")
            waiting = in_threads(1, fail)
            wait_for("the renewal", lambda: proxy.held)
            primary.run("DEL k")
            proxy.let_go()
            join(waiting)
            assert [type(error) for error in errors] == [client.NotOwned]
            errors.clear()
            lock = locks.lock("k", replicas=1, replicas_within=LONG)
            waiting = in_threads(1, fail)
            wait_for("WAIT", lambda: primary.observer.info("clients")["blocked_clients"] == 1)
            proxy.cut()
            join(waiting)
            assert [isinstance(error, client.ConnectionFailed) for error in errors] == [True]
        assert locks.settled(20) == [] and primary.run("EXISTS k") == 0
        # The next one opens another connection.
        with locks.lock("k", replicas=1, replicas_within=LONG):
            pass
    proxy.close()


@pytest.mark.parametrize("owner", [None, "me"])
def test_what_is_lost_behind_another_grant_is_acquired_anew(
    primary: TestServer, replica: TestServer, owner: Optional[str]
) -> None:
    with Server(primary.client()) as locks:
        results: list[Any] = []
        slow = locks.lock("slow", replicas=2, replicas_within=3)
        waiting = in_threads(1, lambda _: results.append(outcome(slow.acquire)))
        wait_for("WAIT", lambda: primary.observer.info("clients")["blocked_clients"] == 1)
        with locks.lock("k", lease=1, owner=owner, replicas=1, replicas_within=LONG) as lock:
            join(waiting)
            assert results == [NotReplicated] and lock.owned()
        assert primary.run("EXISTS k") == 0


def test_a_wait_that_the_server_ends(primary: TestServer, replica: TestServer) -> None:
    """As it does when it becomes a replica."""
    with Server(primary.client()) as locks, replica.stopped():
        results: list[Any] = []
        lock = locks.lock("k", replicas=1, replicas_within=LONG)
        waiting = in_threads(1, lambda _: results.append(outcome(lock.acquire)))
        wait_for("WAIT", lambda: primary.observer.info("clients")["blocked_clients"] == 1)
        for one in primary.clients():
            primary.run(f"CLIENT UNBLOCK {one['id']} ERROR")
        join(waiting)
        assert results == [client.NoAnswer]


def test_a_server_that_hangs_before_it_answers(primary: TestServer, proxy: Proxy) -> None:
    proxy.connect_to(primary.port)
    with Server(redis.Redis(port=proxy.port, **bounded(1))) as locks:
        with pytest.raises(NotReplicated, match="0 of 1"):
            locks.lock("k", replicas=1, replicas_within=0.001).acquire()
        proxy.hold_back(b"WAIT")
        begin = time.monotonic()
        with pytest.raises(client.NoAnswer):
            locks.lock("k", replicas=1, replicas_within=0.001).acquire()
        assert time.monotonic() - begin < 15
        proxy.let_go()
        assert locks.settled(20) == [] and primary.run("EXISTS k") == 0


def test_the_end_of_a_server_object(primary: TestServer, replica: TestServer) -> None:
    """It ends the checks, and releases the grants."""
    locks = Server(primary.client(**bounded(5)))
    results: list[Any] = []

    def acquire(_: int) -> None:
        results.append(outcome(locks.lock("k", replicas=1, replicas_within=600).acquire))

    async def work() -> None:
        one: Any = redis.asyncio.Redis(port=primary.port, **bounded(5, is_asyncio=True))
        async with one, of_tasks.Server(one) as of_loop:
            task = asyncio.ensure_future(of_loop.lock("k", replicas=1, replicas_within=600).acquire())
            while primary.observer.info("clients")["blocked_clients"] == 0:
                # sleep: polls
                await asyncio.sleep(0.01)
            await of_loop.aclose()
            assert primary.run("EXISTS k") == 0
            with pytest.raises(client.Closed):
                await task

    with replica.stopped():
        waiting = in_threads(1, acquire)
        wait_for("WAIT", lambda: primary.observer.info("clients")["blocked_clients"] == 1)
        locks.close()
        assert primary.run("EXISTS k") == 0
        join(waiting)
        assert results == [client.Closed]
        wait_for("the end of WAIT", lambda: primary.observer.info("clients")["blocked_clients"] == 0)
        asyncio.run(work())


def test_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of the nodes has a replica."""
    here, there = two_nodes()
    replica = add_replica(here)
    far = next(f"k{number}" for number in range(100_000) if key_slot(f"k{number}".encode()) == 16_383)

    async def moving(*acquired: Any) -> Any:
        move_slot(there, here, 16_383)
        return await replicated(*acquired)

    async def work() -> None:
        async with redis.asyncio.RedisCluster(host="127.0.0.1", port=here.port) as one, of_tasks.Server(one) as locks:
            async with locks.lock("k", replicas=1, replicas_within=LONG):
                pass
            with pytest.raises(NotReplicated, match="0 of 1"):
                await locks.lock(far, replicas=1, replicas_within=0.01).acquire()
            assert not await locks.settled(20)

    try:
        with Server(redis.RedisCluster(host="127.0.0.1", port=here.port)) as locks:
            with locks.lock("k", replicas=1, replicas_within=LONG):
                assert here.run("EXISTS k") == 1
                wait_for("the hold", lambda: replica.observer.info("keyspace"))
            with pytest.raises(NotReplicated, match="0 of 1"):
                locks.lock(far, replicas=1, replicas_within=0.01).acquire()
            assert locks.settled(20) == []
        asyncio.run(work())
        with Server(redis.RedisCluster(host="127.0.0.1", port=here.port)) as locks:
            # The slot moves between the grant and the question.
            monkeypatch.setattr("redis_lock_client._acquire.replicated", moving)
            with locks.lock(far, replicas=1, replicas_within=LONG):
                assert (here.run(f"EXISTS {far}"), replica.observer.info("keyspace") != {}) == (1, True)
        assert here.run("EXISTS k") + here.run(f"EXISTS {far}") == 0
    finally:
        for node in (here, there, replica):
            node.stop()


def test_wrong_arguments(primary: TestServer) -> None:
    with Server(primary.client()) as locks:
        for options in (
            *({"replicas": number} for number in (0, 101, "1", True)),
            *({"replicas": 1, "replicas_within": span} for span in (0, -1, "1", float("inf"))),
            {"replicas": 1, "session": True},
        ):
            with pytest.raises(client.ConfigError):
                locks.lock("k", **options)  # type: ignore[arg-type]


def test_tasks(primary: TestServer, replica: TestServer) -> None:
    async def work() -> None:
        async with redis.asyncio.Redis(port=primary.port) as one, of_tasks.Server(one) as locks:

            async def hold(number: int) -> None:
                async with locks.lock(f"k{number}", replicas=1, replicas_within=LONG):
                    assert replica.run(f"EXISTS k{number}") == 1

            await asyncio.gather(*map(hold, range(50)))
            assert locks.statistics().connections == 1
            with pytest.raises(NotReplicated):
                await locks.multi_lock(["a", "b"], replicas=2, replicas_within=0.05).acquire()
            assert not await locks.settled(20)
            # A cancellation leaves nothing, and the others have their answers.
            with replica.stopped():
                tasks = [asyncio.ensure_future(hold(number)) for number in range(2)]
                while primary.observer.info("clients")["blocked_clients"] == 0:
                    # sleep: polls
                    await asyncio.sleep(0.01)
                tasks[0].cancel()
                await asyncio.wait({tasks[0]})
            await tasks[1]
            assert tasks[0].cancelled() and not await locks.settled(20)
        await first_is_cancelled()

    async def first_is_cancelled() -> None:
        """While the connection is opened, for which another one waits."""
        proxy = Proxy(primary.port)
        async with redis.asyncio.Redis(port=proxy.port) as one, of_tasks.Server(one) as locks:
            await locks.lock("before").locked()
            tasks = [asyncio.ensure_future(locks.lock(f"k{number}", replicas=1).acquire()) for number in range(2)]
            proxy.hold_back(b"CLIENT")
            while not proxy.held or primary.run("EXISTS k0 k1") < 2:
                # sleep: polls
                await asyncio.sleep(0.01)
            tasks[0].cancel()
            await asyncio.wait({tasks[0]})
            proxy.let_go()
            assert await tasks[1] and tasks[0].cancelled()
        proxy.close()

    asyncio.run(work())
    assert primary.run("EXISTS a b k0 k1") == 0


def test_a_grant_whose_lease_ends_while_it_is_checked(primary: TestServer, replica: TestServer) -> None:
    with Server(primary.client()) as locks:
        with replica.stopped():
            lock = locks.lock("k", lease=1, replicas=1, replicas_within=LONG)
            results: list[Any] = []
            waiting = in_threads(1, lambda _: results.append(outcome(lambda: lock.acquire(blocking=False))))
            wait_for("WAIT", lambda: primary.observer.info("clients")["blocked_clients"] == 1)
            wait_for("another owner", lambda: primary.run("LOCK.ACQUIRE k other PX 600000"))
        join(waiting)
        assert results == [client.NotOwned] and lock.owner is None
        assert locks.settled(20) == [] and primary.run("LOCK.RENEW k other") == 1
