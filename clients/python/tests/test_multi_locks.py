"""Locks of several keys: all or none, handed off by tickets, renewed and released together."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from typing import Any, Callable

import pytest
import redis
import redis.asyncio
from harness import Proxy, TestServer, bounded, move_slot, outcome, pairs, repeating, soonest, two_nodes, wait_for
from test_asyncio import cancel_at_every_pause, run, until
from test_locks import in_threads, join

import redis_lock_client as client
import redis_lock_client.asyncio
from redis_lock_client import Lock, LostReason, Mode, MultiLock, Server


def test_keys_without_contention(server: TestServer) -> None:
    lock = MultiLock(server.client(), ["a", b"b", bytearray(b"c")])
    assert lock.acquire() is True
    first = lock.tokens
    assert list(first) == ["a", b"b", b"c"] and len(set(first.values())) == 3
    for key, token in first.items():
        (holder,) = pairs(server.observer.execute_command("LOCK.INFO", key))[b"holders"]
        assert pairs(holder)[b"token"] == token and pairs(holder)[b"owner"] == lock.local.token
    assert 29 < lock.valid_for() < 30
    assert lock.locked() and lock.owned() and not lock.lost.is_set()
    lock.release()
    assert lock.tokens == {} and lock.valid_for() == 0
    assert not lock.locked() and not lock.owned() and server.run("EXISTS a b c") == 0
    with lock as held:
        assert all(held.tokens[key] > first[key] for key in first)
    with pytest.raises(client.NotAcquired):
        lock.release()
    assert server.stat("renewals") == 0


def test_one_key_is_a_lock(server: TestServer) -> None:
    server.run("ACL SETUSER one on nopass ~* +lock.acquire +lock.release +lock.renew +@connection")
    with MultiLock(server.client(username="one", password="any"), ["k"], timeout=5) as lock:
        assert list(lock.tokens) == ["k"]
        lock.reacquire()
    assert server.run("EXISTS k") == 0


def test_all_or_none(server: TestServer) -> None:
    token = server.hold("b")
    lock = MultiLock(server.client(), ["a", "b", "c"])
    assert lock.acquire(blocking=False) is False
    begin = time.monotonic()
    assert lock.acquire(blocking_timeout=0.4) is False
    assert 0.4 <= time.monotonic() - begin < 2
    assert server.run("EXISTS a c") == 0 and lock.locked() and not lock.owned()
    wait_for("the withdrawal at every key", lambda: not any(map(server.queue, "abc")))
    threads = in_threads(1, lambda _: (lock.acquire() and tokens.append(lock.tokens)) or lock.release())
    tokens: list[dict[Any, int]] = []
    wait_for("a place at every key", lambda: all(len(server.queue(key)) == 1 for key in "abc"))
    assert server.stat("ticket_places") == 3
    assert server.run("EXISTS a c") == 0, "a wait holds nothing"
    server.run("LOCK.RELEASE b holder")
    join(threads)
    assert tokens[0]["b"] > token and server.run("EXISTS a b c") == 0
    assert server.stat("grants") == 4


def test_waits_for_some_of_the_same_keys(server: TestServer) -> None:
    chance = random.Random(7)
    counts = dict.fromkeys("abcdef", 0)
    with Server(server.client()) as locks:

        def work(number: int) -> None:
            for names in plans[number]:
                with locks.multi_lock(names):
                    before = {name: counts[name] for name in names}
                    # sleep: another holder of the same key would count in between
                    time.sleep(0.001)
                    for name in names:
                        counts[name] = before[name] + 1

        plans = [[chance.sample("abcdef", chance.randint(1, 4)) for _ in range(15)] for _ in range(8)]
        join(in_threads(8, work))
        expected = [name for plan in plans for names in plan for name in names]
        assert counts == {name: expected.count(name) for name in counts}
        assert locks.settled() == []
    assert server.run("EXISTS a b c d e f") == 0


def test_killed_connections(start: Callable[..., TestServer]) -> None:
    server = start("--lock.queue-grace", "20000")
    server.hold("a")
    redis_client = server.client()
    order: list[bytes] = []

    def work(_: int) -> None:
        with MultiLock(redis_client, ["a", "b"]) as lock:
            order.append(lock.local.token)

    threads = in_threads(10, work)
    wait_for("the tickets", lambda: server.stat("tickets") == 10)
    queue = server.queue("b")
    queued = server.stat("tickets_queued")
    server.kill_subscribers()
    wait_for("every wait asks again", lambda: server.stat("tickets_queued") >= queued + 10)
    for one in server.clients():
        server.observer.client_kill_filter(_id=one["id"])
    wait_for("all are there", lambda: server.queue("b") == queue and server.subscribers())
    server.run("LOCK.RELEASE a holder")
    join(threads)
    assert order == queue and server.stat("grants") == 21, "none is granted twice"


def test_a_lost_reply(server: TestServer, proxy: Proxy) -> None:
    lock = MultiLock(redis.Redis(port=proxy.port, **repeating(1)), ["a", "b"])
    with lock:
        pass
    proxy.lose_message(b"*2\r\n:")
    assert lock.acquire(blocking_timeout=5)
    assert (proxy.lost, server.stat("grants")) == (1, 4)
    assert [server.observer.hget(key, lock.local.token) for key in "ab"] == [b"1", b"1"]
    lock.release()


def test_a_lost_message(server: TestServer, proxy: Proxy) -> None:
    server.hold("b")
    lock = MultiLock(redis.Redis(port=proxy.port), ["a", "b"])
    threads = in_threads(1, lambda _: lock.acquire() and lock.release())
    wait_for("the ticket", lambda: server.stat("tickets") == 1)
    proxy.lose_message(b"granted ")
    server.run("LOCK.RELEASE b holder")
    join(threads)
    assert (proxy.lost, server.stat("grants")) == (1, 3)


def test_a_request_that_is_served_late_grants_nothing(server: TestServer, proxy: Proxy) -> None:
    with Server(redis.Redis(port=proxy.port, **bounded(1))) as locks:
        locks.lock("other").acquire()
        proxy.hold_back(b"LOCK.MACQUIRE", goes_on=False)
        with pytest.raises(client.NoAnswer):
            locks.multi_lock(["a", "b"]).acquire(blocking_timeout=0)
        assert proxy.held == 1
        assert locks.settled() == [] and server.stat("finals") >= 1
        proxy.let_go()
        wait_for("the late request", lambda: server.stat("finals_refused") == 1, 5)
        assert server.stat("grants") == 1 and server.run("EXISTS a b") == 0


def _calls(server: TestServer, command: str) -> int:
    found: Any = server.observer.info("commandstats")
    return int(found.get(f"cmdstat_{command}", {}).get("calls", 0))


def test_a_key_that_a_late_request_takes_again_is_lost(server: TestServer, proxy: Proxy) -> None:
    near = redis.Redis(port=proxy.port, socket_timeout=1, **repeating(1))
    with Server(near) as locks:
        locks.lock("other").acquire()
        proxy.hold_back(b"LOCK.MACQUIRE", goes_on=False)
        lock = locks.multi_lock(["a", "b"], lease=6)
        assert lock.acquire(blocking_timeout=5), "the second request is granted"
        first = lock.tokens
        server.run("LOCK.BREAK a")
        proxy.let_go()
        wait_for("the late grant", lambda: server.run("EXISTS a") == 1)
        assert lock.lost.wait(10) and lock.lost.reason == LostReason.TAKEN
        assert lock.tokens == first
        with pytest.raises(client.NotOwned):
            lock.release()
        assert server.run("EXISTS a b") == 0


def test_a_request_is_bounded_by_the_client(server: TestServer) -> None:
    with Server(server.client(**bounded(0.4))) as locks:
        lock = locks.multi_lock(["a", "b"])
        with lock:
            pass
        with server.stopped():

            def acquire() -> None:
                with pytest.raises(redis.exceptions.TimeoutError):
                    lock.acquire(blocking_timeout=0)

            assert soonest(acquire) < 1.5
        assert locks.settled() == []
        assert server.run("EXISTS a b") == 0, "a request that is served late grants nothing"
        assert lock.acquire(blocking_timeout=5)


def test_a_wait_in_the_queue_is_bounded(server: TestServer) -> None:
    server.hold("b")
    lock = MultiLock(server.client(**bounded(1)), ["a", "b"], blocking_timeout=1)
    begin = time.monotonic()
    results: list[Any] = []
    threads = in_threads(1, lambda _: results.append(outcome(lock.acquire)))
    wait_for("the places", lambda: len(server.queue("a")) == 1)
    with server.stopped():
        join(threads, 5)
        assert results == [client.NoAnswer] and time.monotonic() - begin < 4


# Losses and releases


def test_keys_are_renewed_together(server: TestServer) -> None:
    lock = MultiLock(server.client(), ["a", "b"], lease=4)
    lock.acquire()
    # Four of each take longer than a lease.
    wait_for("renewals", lambda: _calls(server, "lock.renew") >= 8)
    assert lock.owned() and not lock.lost.is_set()
    assert server.run("PTTL a") > 100 and server.run("PTTL b") > 100
    lock.release()
    assert lock.lost.wait(0.1) is False
    assert _calls(server, "lock.release") == 2


@pytest.mark.parametrize("how", ["LOCK.BREAK b", "DEL b", "SET b foreign"])
def test_the_loss_of_one_key_is_the_loss_of_the_hold(server: TestServer, how: str) -> None:
    reported: list[LostReason] = []
    with Server(server.client()) as locks:
        lock = locks.multi_lock(["a", "b", "c"], lease=6, on_lost=reported.append)
        lock.acquire()
        server.run(how)
        assert lock.lost.wait(20)
        expected = "refused" if "SET" in how else "taken"
        assert lock.lost.reason is not None and lock.lost.reason.kind == expected
        assert lock.valid_for() == 0 and not lock.owned()
        wait_for("the function", lambda: [reason.kind for reason in reported] == [expected])
        assert server.run("EXISTS a c") == 2, "the others stay held until the release"
        with pytest.raises(redis.exceptions.LockNotOwnedError):
            lock.release()
        assert server.run("EXISTS a c") == 0
        assert server.observer.type("b") == (b"string" if "SET" in how else b"none")
        assert locks.settled() == []


@pytest.mark.parametrize("how", ["LOCK.BREAK b", "SET b foreign"])
def test_closing_releases_the_other_keys_of_a_lost_hold(server: TestServer, how: str) -> None:
    with Server(server.client()) as locks:
        lock = locks.multi_lock(["a", "b", "c"], lease=6)
        lock.acquire()
        server.run(how)
        assert lock.lost.wait(5)
        assert server.run("EXISTS a c") == 2
    assert server.run("EXISTS a c") == 0


def test_a_release_finds_a_key_that_was_lost(server: TestServer) -> None:
    lock = MultiLock(server.client(), ["a", "b"])
    lock.acquire()
    server.run("LOCK.BREAK a")
    with pytest.raises(client.NotOwned) as raised:
        lock.release()
    assert raised.value.lock_name == ("a", "b") and server.run("EXISTS a b") == 0


def test_a_loss_is_reported_before_the_lease_ends(server: TestServer) -> None:
    lock = MultiLock(server.client(), ["a", "b"], lease=6)
    begin = time.monotonic()
    lock.acquire()
    with server.stopped():
        assert lock.lost.wait(10)
        assert 4.9 < time.monotonic() - begin < 6
        assert lock.lost.reason == LostReason.UNCONFIRMED and 0 < lock.valid_for() <= 1


def test_a_fixed_lease(server: TestServer) -> None:
    lock = MultiLock(server.client(), ["a", "b"], 5)
    with lock:
        lock.extend(5)
        assert 9 < lock.valid_for() < 10
        assert all(9_000 < server.run(f"PTTL {key}") <= 10_000 for key in "ab")
        lock.reacquire()
        assert all(server.run(f"PTTL {key}") <= 5_000 for key in "ab")
        server.run("LOCK.BREAK b")
        with pytest.raises(client.NotOwned):
            lock.extend(5)
        assert lock.lost.reason == LostReason.TAKEN
        lock.raise_on_release_error = False
    assert server.run("EXISTS a b") == 0


def test_a_release_goes_on_in_the_background(server: TestServer) -> None:
    with Server(server.client(**bounded(0.6))) as locks:
        lock = locks.multi_lock(["a", "b"])
        lock.acquire()
        with server.stopped():
            begin = time.monotonic()
            with pytest.raises(client.ConnectionFailed):
                lock.release()
            assert 0.5 < time.monotonic() - begin < 2
        assert locks.settled() == [] and server.run("EXISTS a b") == 0
        short = locks.multi_lock(["a", "b"], timeout=1)
        short.acquire()
        server.kill()
        with pytest.raises(client.ConnectionFailed):
            short.release()
        assert [one.key for one in locks.settled()] == [b"a", b"b"]


def test_a_closed_server_leaves_nothing(server: TestServer) -> None:
    server.hold("b")
    locks = Server.open(server.url)
    held = locks.multi_lock(["x", "y"])
    held.acquire()
    errors: list[type[BaseException]] = []

    def wait(_: int) -> None:
        try:
            locks.multi_lock(["a", "b"]).acquire()
        except client.Error as error:
            errors.append(type(error))

    threads = in_threads(1, wait)
    wait_for("the ticket", lambda: server.stat("tickets") == 1)
    locks.close()
    join(threads)
    assert errors == [client.Closed]
    assert server.run("EXISTS a x y") == 0 and server.stat("tickets") == 0
    wait_for("the connections to end", lambda: not server.clients())
    with pytest.raises(client.Closed):
        held.acquire()


# Arguments, owners, modes, users


def test_refused_arguments_send_nothing() -> None:
    with Server(redis.Redis(port=1)) as locks:
        for names in ([], (), "ab", b"ab", bytearray(b"ab"), None, 7, ["a", "a"], ["a", b"a"], ["a", None], [["a"]]):
            with pytest.raises(client.ConfigError):
                locks.multi_lock(names)
            with pytest.raises(client.ConfigError):
                client.asyncio.MultiLock(redis.asyncio.Redis(port=1), names)
        with pytest.raises(client.ConfigError, match="x is named twice"):
            locks.multi_lock(["y", "x", "x"])
        with pytest.raises(client.ConfigError, match="1024"):
            locks.multi_lock(map(str, range(1_025)))
        assert len(locks.multi_lock(map(str, range(1_024))).names) == 1_024
        for wrong in ({"timeout": -1}, {"timeout": 1, "lease": 1}, {"owner": "#token"}, {"mode": "READ"}):
            with pytest.raises(client.ConfigError):
                locks.multi_lock(["a"], **wrong)
        with pytest.raises(TypeError):
            locks.multi_lock(["a"], session=True)
        assert locks.statistics().connections == 0
        assert "secret" not in repr(locks.multi_lock(["a", "b"], owner="secret"))


def test_the_most_keys(server: TestServer) -> None:
    names = [f"k{number}" for number in range(1_024)]
    with MultiLock(server.client(), names) as lock:
        assert len(lock.tokens) == 1_024 and server.run("DBSIZE") >= 1_024
    assert server.observer.exists(*names) == 0


def test_a_named_owner(server: TestServer) -> None:
    with Server(server.client()) as locks:
        both = locks.multi_lock(["a", "b"], owner="me")
        assert both.acquire() and server.observer.hget("b", "me") == b"1"
        stranger = locks.multi_lock(["a", "b"], timeout=5)
        stranger.local.token = b"me"
        assert stranger.owned()
        stranger.extend(9, replace_ttl=True)
        stranger.release()
        with pytest.raises(client.NotOwned):
            both.release()
        both.acquire()
        MultiLock(locks, ["b", "a"]).do_release(b"me")
        assert server.run("EXISTS a b") == 0


def test_readers_and_writers_of_several_keys(server: TestServer) -> None:
    with Server(server.client()) as locks:
        readers = [locks.multi_lock(["a", "b"], mode=Mode.READ, lease=3) for _ in range(2)]
        for reader in readers:
            assert reader.acquire()
        writer = locks.multi_lock(["b", "c"], mode=Mode.WRITE)
        assert writer.acquire(blocking=False) is False
        # sleep: more than the lease
        time.sleep(3.2)
        assert all(reader.owned() for reader in readers)
        threads = in_threads(1, lambda _: writer.acquire() and writer.release())
        wait_for("the ticket", lambda: server.stat("tickets") == 1)
        for reader in readers:
            reader.release()
        join(threads)


def test_users(server: TestServer) -> None:
    parts = "resetchannels +@connection -@dangerous +lock.acquire +lock.release +lock.renew"
    server.run(f"ACL SETUSER few on >secret ~* {parts}")
    tickets = "&lock:tickets:* +publish +subscribe"
    server.run(f"ACL SETUSER many on >secret ~* {parts} {tickets} +lock.macquire")
    server.run(f"ACL SETUSER narrow on >secret ~a {parts} +lock.macquire")
    for name in ("few", "narrow"):
        with pytest.raises(client.NoPermission) as raised:
            MultiLock(server.client(username=name, password="secret"), ["a", "b"]).acquire()
        assert "secret" not in str(raised.value) and name not in str(raised.value)
    assert server.run("EXISTS a b") == 0
    server.hold("b")
    with Server(server.client(username="many", password="secret")) as locks:
        lock = locks.multi_lock(["a", "b"], lease=6)
        threads = in_threads(1, lambda _: (lock.acquire() and owned.append(lock.owned())) or lock.release())
        owned: list[bool] = []
        wait_for("the ticket", lambda: server.stat("ticket_places") == 2)
        server.run("LOCK.RELEASE b holder")
        join(threads)
        assert owned == [True], "LOCK.INFO is not permitted, a renewal is"
        assert server.run("EXISTS a b") == 0
        lock.acquire()
        server.run("ACL SETUSER many -lock.renew")
        assert lock.lost.wait(20) and lock.lost.reason is not None and lock.lost.reason.code == "NOPERM"
        lock.release()
        assert server.run("EXISTS a b") == 0, "each key is released alone"


# Clusters


def test_a_cluster() -> None:
    here, there = two_nodes("--lock.queue-grace", "20000")
    try:
        here.run("LOCK.ACQUIRE {a}2 holder PX 600000")
        cluster = redis.RedisCluster(host="127.0.0.1", port=here.port)
        with Server(cluster) as locks:
            for names in (["a", "b"], ["{a}1", "{b}1"]):
                with pytest.raises(client.ConfigError, match="one slot"):
                    locks.multi_lock(names)
            assert locks.statistics().connections == 0, "nothing is sent"
            lock = locks.multi_lock(["{a}1", "{a}2"])
            assert lock.acquire(blocking=False) is False
            threads = in_threads(1, lambda _: (lock.acquire() and held.append(lock.tokens)) or lock.release())
            held: list[dict[Any, int]] = []
            kind = "ticket_places"
            wait_for("the wait", lambda: here.stat(kind) == 2)
            move_slot(here, there, cluster.keyslot("{a}1"))
            wait_for("the wait at the other node", lambda: there.stat(kind) == 2)
            there.run("LOCK.RELEASE {a}2 holder")
            join(threads)
            assert list(held[0]) == ["{a}1", "{a}2"] and there.run("EXISTS {a}1") == 0
            lasting = locks.multi_lock(["{a}1", "{a}2"], lease=1.5)
            with lasting:
                move_slot(there, here, cluster.keyslot("{a}1"))
                # sleep: more than the lease
                time.sleep(1.8)
                assert lasting.owned() and not lasting.lost.is_set()
            assert here.run("EXISTS {a}1") == 0
        with Server.open(f"redis://127.0.0.1:{here.port}") as alone, pytest.raises(client.Refused) as raised:
            alone.multi_lock(["a", "b"]).acquire()
        assert raised.value.code == "CROSSSLOT"
        cluster.close()
    finally:
        here.stop()
        there.stop()


# asyncio


def test_tasks(server: TestServer) -> None:
    async def work() -> None:
        reported: list[LostReason] = []

        async def tell(reason: LostReason) -> None:
            await asyncio.sleep(0)
            reported.append(reason)

        async with redis.asyncio.Redis(port=server.port) as redis_client:
            lock = client.asyncio.MultiLock(redis_client, ["a", "b"], lease=2.1, on_lost=tell)
            assert await lock.acquire() and await lock.locked() and await lock.owned()
            first = lock.tokens
            other = client.asyncio.MultiLock(redis_client, ["b", "c"], blocking_timeout=0.3)
            assert not await other.acquire()
            waiting = asyncio.create_task(other.acquire(blocking_timeout=5))
            await until("the ticket", lambda: server.stat("tickets") == 1)
            await lock.release()
            assert await waiting and other.tokens["b"] > first["b"] and lock.tokens == {}
            await other.release()
            async with client.asyncio.MultiLock(redis_client, ["a", "b"], timeout=5) as held:
                await held.extend(5)
                assert 9 < held.valid_for() < 10
                await held.reacquire()
            await lock.acquire()
            server.run("LOCK.BREAK b")
            assert await lock.lost.wait(5)
            await until("the function", lambda: reported == [LostReason.TAKEN])
            with pytest.raises(client.NotOwned):
                await lock.release()
            assert server.run("EXISTS a b") == 0

    run(work())
    wait_for("no connection is left", lambda: not server.clients())


def test_a_cancelled_wait_is_withdrawn(server: TestServer) -> None:
    async def work() -> None:
        server.hold("b")
        async with client.asyncio.Server.open(server.url) as locks:
            tasks = [asyncio.create_task(locks.multi_lock(["a", "b"]).acquire()) for _ in range(10)]
            await until("the waits", lambda: len(server.queue("a")) == 10)
            for task in tasks[:9]:
                task.cancel()
            await until("the withdrawals", lambda: len(server.queue("a")) == len(server.queue("b")) == 1)
            server.run("LOCK.RELEASE b holder")
            assert await tasks[9]
            for is_taken in (False, True):
                await cancel_at_every_pause(server, locks, lambda: locks.multi_lock(["x", "y"]), "x y", is_taken)

    run(work())


def test_no_call_blocks_the_event_loop(server: TestServer) -> None:
    async def work() -> None:
        async with client.asyncio.Server(redis.asyncio.Redis(port=server.port, **bounded(2, True))) as locks:
            lock = locks.multi_lock(["a", "b"])
            await lock.acquire()
            longest, last = 0.0, time.monotonic()
            pauses, is_over = [0.0], threading.Event()

            def other_thread(_: int) -> None:
                """The pauses of the whole process."""
                while not is_over.is_set():
                    begin = time.monotonic()
                    is_over.wait(0.005)
                    pauses.append(time.monotonic() - begin)

            async def beat() -> None:
                nonlocal longest, last
                while True:
                    # sleep: the beat of the loop
                    await asyncio.sleep(0.005)
                    longest, last = max(longest, time.monotonic() - last), time.monotonic()

            threads = in_threads(1, other_thread)
            beating = asyncio.create_task(beat())
            with server.stopped():
                for call in (locks.multi_lock(["c", "d"]).acquire(blocking_timeout=0.2), lock.owned(), lock.release()):
                    with pytest.raises(client.ConnectionFailed):
                        await call
            beating.cancel()
            is_over.set()
            join(threads)
            assert longest < 0.5 + max(pauses)

    run(work())


def test_threads_and_their_holds(server: TestServer) -> None:
    lock = MultiLock(server.client(), ["a", "b"])
    lock.acquire()
    seen: list[Any] = []
    thread = threading.Thread(target=lambda: seen.append((lock.tokens, lock.acquire(blocking=False))))
    thread.start()
    thread.join(10)
    assert seen == [({}, False)] and lock.owned()
    assert not Lock(lock.redis, "b").acquire(blocking=False)
    lock.release()
