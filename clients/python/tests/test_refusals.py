"""What is refused or not answered, and what is over: each error has the class and the code that README.md names."""

from __future__ import annotations

import asyncio
import pathlib
import time
from typing import Any, Callable, Optional

import pytest
import redis
import redis.asyncio
from harness import Proxy, TestServer, bounded, move_slot, outcome, repeating, two_nodes, wait_for
from test_locks import in_threads, join

import redis_lock_client as client
import redis_lock_client.asyncio
from redis_lock_client import Lock, Server


def causes(error: Optional[BaseException]) -> list[BaseException]:
    """The error and its causes."""
    found: list[BaseException] = []
    while error is not None:
        assert error not in found, "an error is its own cause"
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


# Without an answer


def _without_answer(call: Callable[[], Any]) -> float:
    """The seconds that the call takes."""
    begin = time.monotonic()
    with pytest.raises(client.NoAnswer):
        call()
    return time.monotonic() - begin


def test_nothing_is_said_of_a_server_that_hangs(server: TestServer) -> None:
    with Server(server.client(**bounded(0.5))) as locks:
        latch, semaphore, lock = locks.latch("l"), locks.semaphore("s", limit=1), locks.lock("k")
        latch.set(1)
        calls: list[Callable[[], Any]] = [
            lambda: latch.wait(0),
            lambda: latch.wait(0.2),
            latch.count,
            lambda: semaphore.acquire_within(0.2),
            semaphore.info,
            lock.locked,
            locks.multi_lock(["a", "b"]).locked,
            lambda: locks.multi_lock(["a", "b"]).acquire(blocking_timeout=0.2),
            lambda: locks.read_write_lock("rw").read_lock().acquire(blocking_timeout=0.2),
        ]
        with server.stopped():
            for call in calls:
                # On a busy machine one of them may take longer.
                assert any(_without_answer(call) < 1 for _ in range(5))
        assert latch.wait(0.1) is False and latch.count() == 1, "the latch is closed"


def test_a_latch_in_the_queue_of_a_server_that_hangs(server: TestServer) -> None:
    with Server(server.client(**bounded(0.5))) as locks:
        latch = locks.latch("l")
        latch.set(1)
        results: list[Any] = []
        begin = time.monotonic()
        threads = in_threads(1, lambda _: results.append(outcome(lambda: latch.wait(1))))
        wait_for("the ticket", lambda: server.stat("tickets") == 1)
        with server.stopped():
            join(threads, 5)
            assert results == [client.NoAnswer] and time.monotonic() - begin < 4


def test_a_count_is_not_sent_twice(server: TestServer, proxy: Proxy) -> None:
    """Also if redis-py repeats requests."""
    with Server(redis.Redis(port=proxy.port, **repeating(3))) as locks:
        latch = locks.latch("l")
        latch.set(5)
        proxy.lose_message(b":4")
        with pytest.raises(client.Unheard):
            latch.count_down()
        assert proxy.lost == 1 and latch.count() == 4


def test_a_command_that_is_redirected_has_not_run() -> None:
    """The data stays at the node that the lock has left; when it has followed, the command runs."""
    here, there = two_nodes()
    cluster = redis.RedisCluster(host="127.0.0.1", port=here.port)

    def move_first(slot: int, key: str) -> None:
        names = [node.observer.execute_command("CLUSTER MYID").decode() for node in (here, there)]
        there.run(f"CLUSTER SETSLOT {slot} IMPORTING {names[0]}")
        here.run(f"CLUSTER SETSLOT {slot} MIGRATING {names[1]}")
        here.observer.execute_command("MIGRATE", "127.0.0.1", there.port, key, 0, 10_000)

    async def work(slot: int) -> None:
        async with redis.asyncio.RedisCluster(host="127.0.0.1", port=here.port) as cluster:
            lock = client.asyncio.Lock(cluster, "{x}1")
            await lock.acquire()
            assert await lock.execute("INCR", "{x}data") == 1
            move_first(slot, "{x}1")
            with pytest.raises(client.Refused) as refused:
                await lock.execute("INCR", "{x}data")
            assert refused.value.code in ("ASK", "TRYAGAIN") and refused.value.is_passing
            await asyncio.get_running_loop().run_in_executor(None, move_slot, here, there, slot)
            assert await lock.execute("INCR", "{x}data") == 2
            await lock.release()

    try:
        lock = Lock(cluster, "{y}1")
        lock.acquire()
        assert lock.execute("INCR", "{y}data") == 1
        slot = cluster.keyslot("{y}1")
        move_first(slot, "{y}1")
        with pytest.raises(client.Refused) as refused:
            lock.execute("INCR", "{y}data")
        assert refused.value.code in ("ASK", "TRYAGAIN") and refused.value.is_passing
        move_slot(here, there, slot)
        assert lock.execute("INCR", "{y}data") == 2
        lock.release()
        asyncio.run(work(cluster.keyslot("{x}1")))
    finally:
        cluster.close()
        here.stop()
        there.stop()


# After a failure, or the end


def test_no_error_is_its_own_cause(start: Callable[..., TestServer]) -> None:
    server, bare = start(), start(module=False)
    with Server(server.client(**bounded(0.3))) as locks:
        lock = locks.lock("k", timeout=1)
        lock.acquire()
        with server.stopped(), pytest.raises(client.NoAnswer) as raised:
            lock.release()
        assert len(causes(raised.value)) <= 3
    with pytest.raises(client.Closed) as closed:
        locks.lock("k").do_release("owner")
    assert causes(closed.value) == [closed.value]
    with pytest.raises(client.NotLoaded) as missing:
        Lock(bare.client(), "k").do_release("owner")
    assert missing.value.__cause__ is None, "the server's text quotes the owner"


@pytest.mark.parametrize("several", [False, True])
def test_after_closing_nothing_is_held(server: TestServer, several: bool) -> None:
    def locks_of(locks: Any, **options: Any) -> Any:
        return locks.multi_lock(["a", "b"], 60, **options) if several else locks.lock("a", 60, **options)

    locks = Server(server.client())
    lock = locks_of(locks)
    permit = locks.semaphore("s", limit=1).acquire()
    lock.acquire()
    locks.close()
    with pytest.raises(client.NotOwned):
        lock.extend(1)
    with pytest.raises(client.NotOwned):
        lock.release()
    assert permit.release() is client.Released.NOT_HELD
    locks = Server(server.client())
    tolerant = locks_of(locks, raise_on_release_error=False)
    with tolerant:
        locks.close()
    locks = Server(server.client())
    with locks.semaphore("s", limit=1).acquire():
        locks.close()

    async def work() -> None:
        locks = client.asyncio.Server.open(server.url)
        lock = locks_of(locks)
        permit = await locks.semaphore("s", limit=1).acquire()
        await lock.acquire()
        await locks.aclose()
        with pytest.raises(client.NotOwned):
            await lock.extend(1)
        with pytest.raises(client.NotOwned):
            await lock.release()
        assert await permit.release() is client.Released.NOT_HELD

    asyncio.run(work())
    assert server.run("EXISTS a b") == 0


def test_the_end_of_background_work_is_waited_for_within_a_limit(server: TestServer) -> None:
    with Server(server.client(**bounded(0.3))) as locks:
        lock = locks.lock("k", timeout=60)
        lock.acquire()
        with server.stopped():
            with pytest.raises(client.NoAnswer):
                lock.release()
            begin = time.monotonic()
            assert locks.settled(timeout=0.2) == []
            assert 0.2 <= time.monotonic() - begin < 3
            assert locks.settled(timeout=0) == []
        assert locks.settled() == [] and server.run("EXISTS k") == 0
        with pytest.raises(client.ConfigError, match="timeout"):
            locks.settled(timeout=-1)

    async def work() -> None:
        async with client.asyncio.Server(redis.asyncio.Redis(port=server.port, **bounded(0.3, True))) as locks:
            lock = locks.lock("k", timeout=60)
            await lock.acquire()
            with server.stopped():
                with pytest.raises(client.NoAnswer):
                    await lock.release()
                assert await locks.settled(timeout=0.2) == []
            assert await locks.settled(timeout=10) == []
            assert server.run("EXISTS k") == 0

    asyncio.run(work())


# What the server says


def test_a_key_without_a_count_is_refused(start: Callable[..., TestServer]) -> None:
    server, bare = start(), start(module=False)
    with Server(server.client()) as locks:
        latch = locks.latch("l")
        assert latch.count() == 0
        latch.set(2**63 - 1)
        assert latch.count() == 2**63 - 1
        assert latch.count_down(2**63 - 1) == 0
        for command in ("SET l text", "LPUSH l 1", "LOCK.ACQUIRE l holder PX 60000"):
            server.run("DEL l")
            server.run(command)
            with pytest.raises(client.WrongType):
                latch.count()
    with pytest.raises(client.NotLoaded):
        client.Latch(bare.client(), "l").count()


@pytest.mark.parametrize("is_unix", [False, True])
def test_a_login_that_is_refused_has_the_code_of_the_server(
    start: Callable[..., TestServer], tmp_path: pathlib.Path, is_unix: bool
) -> None:
    """At once, also without a limit, over TCP and over a Unix socket."""
    path = str(tmp_path / "socket")
    server, open_to_all = start("--requirepass", "secret", "--unixsocket", path), start()
    place: dict[str, Any] = {"unix_socket_path": path} if is_unix else {"port": server.port}
    # redis-py 7.0 opens no RESP3 connection over a Unix socket.
    for protocol in (2,) if is_unix and redis.__version__.startswith("7.0") else (2, 3):
        for options, kind, code in (
            ({}, client.NotAuthenticated, "NOAUTH"),
            ({"password": "another"}, client.NotAuthenticated, "WRONGPASS"),
            ({"password": "secret", "db": 99}, client.Refused, "ERR"),
        ):
            with pytest.raises(kind) as raised:
                Lock(redis.Redis(protocol=protocol, **place, **options), "k").acquire()
            assert raised.value.code == code, (protocol, options)
            if code != "ERR":
                assert raised.value.__cause__ is None, "redis-py's error may name the user"
    with pytest.raises(client.Refused) as needless:
        Lock(open_to_all.client(protocol=2, password="another"), "k").acquire()
    assert needless.value.code == "ERR"


def test_a_server_that_is_no_sentinel(server: TestServer) -> None:
    locks = Server.open(f"redis+sentinel://127.0.0.1:{server.port}/main")
    with locks, pytest.raises(client.Error, match="SENTINEL"):
        locks.lock("k").acquire(blocking_timeout=2)


def test_a_semaphore_that_nobody_has_created(server: TestServer) -> None:
    with Server(server.client()) as locks:
        semaphore = locks.semaphore("s")
        for acquire in (semaphore.acquire, semaphore.try_acquire, lambda: semaphore.acquire_within(5)):
            with pytest.raises(client.NoSemaphore, match="limit="):
                acquire()
        semaphore.set(1)
        with semaphore.acquire():
            assert semaphore.try_acquire() is None
        assert locks.statistics().waiting == 0 and server.stat("tickets") == 0
        server.run("DEL s")
        # Without the permission to look it waits, as a client of the module does.
        server.run("ACL SETUSER blind on nopass ~* &* +@all -exists")
        with Server(server.client(username="blind", password="x")) as others:
            assert others.semaphore("s").acquire_within(0.1) is None


def test_a_semaphore_that_nobody_has_created_for_tasks(server: TestServer) -> None:
    async def work() -> None:
        async with redis.asyncio.Redis(port=server.port) as redis_client:
            with pytest.raises(client.NoSemaphore):
                await client.asyncio.Semaphore(redis_client, "s").acquire()

    asyncio.run(work())
