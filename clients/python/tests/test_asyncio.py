"""The asyncio interface; 10,000 waits."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import logging
import os
import resource
import sys
import time
import warnings
from collections.abc import Coroutine, Generator
from typing import Any, Callable, Union

import pytest
import redis.asyncio
from harness import TestServer, bounded, move_slot, two_nodes, wait_for

import redis_lock_client as client
from redis_lock_client.asyncio import Election, Lock, LostReason, MultiLock, Server
from redis_lock_client.asyncio._loops import TaskHub


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Runs a test; nothing may be left in the loop but what the test left itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        result = asyncio.run(work)
        gc.collect()
    return result


async def until(what: str, condition: Callable[[], Any], limit: float = 20.0) -> None:
    await asyncio.get_running_loop().run_in_executor(None, wait_for, what, condition, limit)


def test_a_command_under_the_lock_runs_only_while_it_is_held(server: TestServer) -> None:
    async def work() -> None:
        async with redis.asyncio.Redis(port=server.port) as redis_client, Lock(redis_client, "k") as lock:
            assert await lock.execute("INCR", "data") == 1

    run(work())


def test_an_election(server: TestServer) -> None:
    async def work() -> None:
        async with redis.asyncio.Redis(port=server.port) as redis_client:
            election = Election(redis_client, "k", lease=1.5)
            seen = election.observe()
            assert await seen.__anext__() is None
            async with election.campaign("a:1") as leadership:
                assert await election.leader() == (b"a:1", leadership.token) == await seen.__anext__()

    run(work())


class Cancelled:
    """Runs a coroutine that is cancelled at its pause of this number, counted from 1."""

    def __init__(self, work: Coroutine[Any, Any, Any], number: int) -> None:
        self.work, self.number = work, number
        self.is_cancelled = False

    def __await__(self) -> Generator[Any, Any, Any]:
        steps = self.work.__await__()
        step: Callable[[], Any] = functools.partial(next, steps)
        pauses = 0
        while True:
            try:
                waited = step()
            except StopIteration as end:
                return end.value
            pauses += 1
            if pauses == self.number:
                self.is_cancelled = True
                if waited is not None:
                    waited.cancel()
            try:
                yield waited
                step = functools.partial(next, steps)
                if self.is_cancelled and waited is None and pauses == self.number:
                    step = functools.partial(steps.throw, asyncio.CancelledError())
            except BaseException as error:
                step = functools.partial(steps.throw, error)


async def cancel_at_every_pause(
    server: TestServer, locks: Server, lock: Callable[[], Union[Lock, MultiLock]], keys: str, is_taken: bool
) -> None:
    """An acquisition that is cancelled at any pause leaves nothing, also one that is granted after a wait."""
    number, is_cancelled = 0, True
    while is_cancelled:
        number += 1
        key = keys.split()[0]
        if is_taken:
            server.hold(key)
        one = lock()
        work = Cancelled(one.acquire(blocking_timeout=20), number)

        async def wait(work: Cancelled = work) -> Any:
            return await work

        task = asyncio.create_task(wait())
        if is_taken:
            await until("the place", lambda task=task, key=key: task.done() or server.queue(key))
            server.run(f"LOCK.RELEASE {key} holder")
        with contextlib.suppress(asyncio.CancelledError):
            if await task:
                await one.release()
        is_cancelled = work.is_cancelled
        assert await locks.settled() == []
        assert server.run(f"EXISTS {keys}") == 0 and server.queue(key) == [], f"cancelled at pause {number}"
    assert number > (3 if is_taken else 1)


def test_no_cancellation_is_swallowed(server: TestServer) -> None:
    """`asyncio.wait_for` before Python 3.12 swallows one that comes together with what it waits for."""

    async def work() -> None:
        # With a `socket_timeout`, redis-py itself uses it for each request.
        async with redis.asyncio.Redis(port=server.port, socket_timeout=20) as redis_client:
            lock = Lock(redis_client, "k")
            hub = lock._hub.here()
            for turns in range(24):
                server.hold()
                task = asyncio.create_task(lock.acquire(blocking_timeout=60))
                if turns % 2:
                    await until("the wait", lambda: len(hub.waits) == 1)
                    for ticket in hub.tickets.values():
                        ticket.event.set()
                for _ in range(turns // 2):
                    await asyncio.sleep(0)
                task.cancel()
                server.run("LOCK.RELEASE k holder")
                with pytest.raises(asyncio.CancelledError):
                    await task
                await hub.settle(None)
                assert server.run("EXISTS k") == 0 == server.stat("tickets"), f"cancelled after {turns} turns"

    run(work())


def test_a_lock(server: TestServer) -> None:
    async def work() -> None:
        async with redis.asyncio.Redis(port=server.port) as redis_client:
            lock = redis_client.lock("k", lock_class=Lock)
            assert await lock.acquire() and await lock.locked() and await lock.owned()
            first = lock.token
            assert 29 < lock.valid_for() < 30
            other = Lock(redis_client, "k", blocking_timeout=0.3)
            begin = time.monotonic()
            assert not await other.acquire()
            assert 0.3 <= time.monotonic() - begin < 2
            waiting = asyncio.create_task(other.acquire(blocking_timeout=5))
            await until("the ticket", lambda: server.stat("tickets") == 1)
            await lock.release()
            assert await waiting and other.token > first
            with pytest.raises(client.NotAcquired):
                await lock.release()
            await other.release()
            async with Lock(redis_client, "k", timeout=5) as held:
                await held.extend(5)
                assert 9 < held.valid_for() < 10
                await held.reacquire()
                assert held.valid_for() < 5

    run(work())
    wait_for("no connection is left", lambda: not server.clients())


def test_a_loss_and_its_function(server: TestServer) -> None:
    async def work() -> None:
        reported: list[LostReason] = []

        async def tell(reason: LostReason) -> None:
            await asyncio.sleep(0)
            reported.append(reason)

        async with Server.open(server.url) as locks:
            one = locks.lock("one", lease=2.1, on_lost=tell)
            two = locks.lock("two", lease=2.1, on_lost=reported.append)
            await one.acquire()
            await two.acquire()
            assert await one.lost.wait(0.1) is False
            server.run("DEL one two")
            assert await one.lost.wait(5) and await two.lost.wait(5)
            await until("the functions", lambda: reported == [LostReason.TAKEN] * 2)
            with pytest.raises(client.NotOwned):
                await one.release()
            objects = [functools.partial(tell), lambda reason: tell(reason)]
            others = [locks.lock(f"o{place}", lease=2.1, on_lost=one) for place, one in enumerate(objects)]
            for other in others:
                await other.acquire()
            server.run("DEL o0 o1")
            await until("the functions", lambda: reported == [LostReason.TAKEN] * 4)
            three = locks.lock("three", lease=3, margin=1.5)
            await three.acquire()
            with server.stopped():
                begin = time.monotonic()
                assert await three.lost.wait()
                assert time.monotonic() - begin < 3
                assert three.lost.reason == LostReason.UNCONFIRMED

    run(work())


def test_two_changes_of_a_lease_at_a_time(server: TestServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """No renewal sets the lease of the first one after the second one."""
    call = TaskHub.call

    async def work() -> None:
        arrives = asyncio.Event()

        async def late(hub: Any, words: Any, key: bytes) -> Any:
            reply = await call(hub, words, key)
            if 600_000 in words:
                # The reply comes late.
                await arrives.wait()
            return reply

        monkeypatch.setattr(TaskHub, "call", late)
        async with Server.open(server.url) as locks:
            lock = locks.lock("k", timeout=60, renew=True)
            await lock.acquire()
            first = asyncio.create_task(lock.extend(3, replace_ttl=True))
            second = asyncio.create_task(lock.extend(600, replace_ttl=True))
            await first
            # sleep: more than a third of the first lease
            await asyncio.sleep(1.5)
            arrives.set()
            await second
            assert lock.valid_for() > 500 and server.run("PTTL k") > 500_000

    run(work())


def test_the_next_request_shares_a_pipeline_with_a_release(server: TestServer, monkeypatch: pytest.MonkeyPatch) -> None:
    verbs: list[list[str]] = []
    execute = redis.asyncio.client.Pipeline.execute

    async def counted(pipeline: Any, *args: Any, **options: Any) -> Any:
        verbs.append(sorted(words[0] for words, _ in pipeline.command_stack))
        return await execute(pipeline, *args, **options)

    async def work() -> None:
        async with redis.asyncio.Redis(port=server.port) as redis_client:

            async def contend() -> None:
                lock = Lock(redis_client, "k")
                for _ in range(25):
                    async with lock:
                        pass

            await asyncio.gather(*(contend() for _ in range(8)))

    monkeypatch.setattr(redis.asyncio.client.Pipeline, "execute", counted)
    run(work())
    assert server.stat("grants") >= 200
    assert verbs.count(["LOCK.ACQUIRE", "LOCK.RELEASE"]) > 100


def test_a_cancelled_wait_is_withdrawn(server: TestServer) -> None:
    async def work() -> None:
        server.hold()
        async with Server.open(server.url) as locks:
            tasks = [asyncio.create_task(locks.lock("k").acquire()) for _ in range(10)]
            await until("the tickets", lambda: server.stat("tickets") == 10)
            for task in tasks[:9]:
                task.cancel()
            await until("the withdrawals", lambda: server.stat("tickets") == 1)
            server.run("LOCK.RELEASE k holder")
            assert await tasks[9]
            for is_taken in (False, True):
                await cancel_at_every_pause(server, locks, lambda: locks.lock("moments"), "moments", is_taken)

    run(work())


def test_a_closed_server_ends_waits_and_releases(server: TestServer) -> None:
    async def work() -> None:
        server.hold()
        locks = Server.open(server.url)
        held, fixed = locks.lock("held"), locks.lock("fixed", timeout=60)
        await held.acquire()
        await fixed.acquire()
        waiting = asyncio.create_task(locks.lock("k").acquire())
        await until("the ticket", lambda: server.stat("tickets") == 1)
        before = len(asyncio.all_tasks())
        await locks.aclose()
        with pytest.raises(client.Closed):
            await waiting
        assert server.run("EXISTS held fixed") == 0 and server.stat("tickets") == 0
        assert not held.lost.is_set()
        with pytest.raises(client.Closed):
            await locks.lock("held").acquire()
        with pytest.raises(client.NotOwned):
            await held.release()
        await locks.aclose()
        # sleep: the turns of the loop in which closed transports end
        await asyncio.sleep(0.05)
        assert len(asyncio.all_tasks()) == 1 < before
        await until("the connections to end", lambda: not server.clients())

    run(work())


def test_an_acquisition_that_begins_when_the_server_object_is_closed(server: TestServer) -> None:
    async def work() -> None:
        for turns in range(4):
            locks = Server.open(server.url)
            waiting = asyncio.create_task(locks.lock("k").acquire())
            await until("the ticket", lambda: server.stat("tickets") == 1)
            beginning = asyncio.create_task(locks.lock("k").acquire())
            for _ in range(turns):
                await asyncio.sleep(0)
            await locks.aclose()
            for task in (waiting, beginning):
                with pytest.raises(client.Closed):
                    await asyncio.wait_for(task, 10)
            await until("the end of the tickets", lambda: server.stat("tickets") == 0)

    server.hold()
    run(work())


def test_closing_is_bounded(server: TestServer) -> None:
    async def work() -> None:
        locks = Server(redis.asyncio.Redis(port=server.port, **bounded(1, True)))
        await locks.lock("k").acquire()
        with server.stopped():
            begin = time.monotonic()
            await locks.aclose()
            assert time.monotonic() - begin < 3

    run(work())


def test_the_end_of_the_loop_gives_back_what_was_renewed(server: TestServer) -> None:
    async def work() -> None:
        redis_client = redis.asyncio.Redis(port=server.port)
        await Lock(redis_client, "renewed").acquire()
        await Lock(redis_client, "fixed", timeout=60).acquire()
        server.hold()
        task = asyncio.create_task(Lock(redis_client, "k").acquire())
        await until("the ticket", lambda: server.stat("tickets") == 1)
        task.cancel()
        # `aclose` is newer than redis-py 5.0.0.
        await getattr(redis_client, "aclose", redis_client.close)()

    run(work())
    assert (server.run("EXISTS renewed"), server.run("EXISTS fixed")) == (0, 1)
    wait_for("the withdrawal", lambda: server.stat("tickets") == 0)


def test_a_cluster(start: Any) -> None:
    here, there = two_nodes("--lock.queue-grace", "20000")

    async def work() -> None:
        here.run("LOCK.ACQUIRE {a}k holder PX 600000")
        async with redis.asyncio.RedisCluster(host="127.0.0.1", port=here.port) as cluster:
            lock = cluster.lock("{b}k", lock_class=Lock)
            await lock.acquire()
            await lock.release()
            waiting = asyncio.create_task(cluster.lock("{a}k", lock_class=Lock).acquire())
            await until("the ticket", lambda: here.stat("tickets") == 1)
            await asyncio.get_running_loop().run_in_executor(None, move_slot, here, there, cluster.keyslot("{a}k"))
            await until("the ticket at the other node", lambda: there.stat("tickets") == 1)
            there.run("LOCK.RELEASE {a}k holder")
            assert await waiting

    try:
        run(work())
    finally:
        here.stop()
        there.stop()


def test_semaphores_latches_and_readers(server: TestServer) -> None:
    async def work() -> None:
        async with Server.open(server.url) as locks:
            semaphore = locks.semaphore("s", limit=1)
            permit = await semaphore.acquire()
            assert await semaphore.try_acquire() is None
            waiting = asyncio.create_task(semaphore.acquire_within(5))
            await until("the wait", lambda: server.stat("tickets") == 1)
            assert await permit.release() is client.Released.YES
            async with await waiting:
                assert (await semaphore.info()).free == 0
            latch = locks.latch("l")
            await latch.set(1)
            waits = [asyncio.create_task(latch.wait()) for _ in range(3)]
            await until("the waits", lambda: server.stat("tickets") == 3)
            assert await latch.wait(0.1) is False
            assert await latch.count_down() == 0 and await latch.count() == 0
            assert await asyncio.gather(*waits) == [True] * 3
            both = locks.read_write_lock("rw")
            async with both.read_lock() as one, both.read_lock() as other:
                assert one.token == other.token
                assert not await both.write_lock().acquire(blocking=False)
            async with both.write_lock():
                assert not await both.read_lock().acquire(blocking=False)

    run(work())


def test_ten_thousand_waits_on_two_connections(start: Callable[..., TestServer]) -> None:
    server = start("--lock.queue-grace", "60000")
    count = 10_000

    async def work() -> None:
        async with Server.open(server.url) as locks:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            server.hold()
            order: list[bytes] = []
            tokens: list[int] = []

            async def one() -> None:
                lock = Lock(locks, "k", timeout=600)
                await lock.acquire()
                order.append(lock.local.token)
                tokens.append(lock.token or 0)
                await lock.release()

            waits = [asyncio.create_task(one()) for _ in range(count)]
            await until("the tickets", lambda: server.stat("tickets") == count, 300)
            kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
            assert len(server.clients()) == 2
            queue = await asyncio.get_running_loop().run_in_executor(None, server.queue, "k", count)
            queued = server.stat("tickets_queued")
            server.kill_subscribers()
            begin = time.monotonic()
            await until("all ask again", lambda: server.stat("tickets_queued") >= queued + count, 300)
            print(f"memory of a wait: {kilobytes / count:.1f} kB; asked again in {time.monotonic() - begin:.2f} s")
            server.run("LOCK.RELEASE k holder")
            begin = time.monotonic()
            await asyncio.gather(*waits)
            print(f"{count / (time.monotonic() - begin):.0f} hand-offs a second")
            # LOCK.INFO lists a thousand waiters at most.
            assert len(order) == count and order[: len(queue)] == queue
            assert tokens == sorted(set(tokens))
            assert server.stat("grants") == count + 1

    run(work())


def test_a_connection_that_has_failed_gets_no_further_request(server: TestServer, caplog: Any) -> None:
    async def work() -> None:
        locks = Server(redis.asyncio.Redis(port=server.port, **bounded(1, True)))
        await locks.lock("k").acquire()
        server.kill()
        # All before the event loop notices the end of the connection.
        found = await asyncio.gather(
            *[locks.lock(f"k{number}").acquire(blocking_timeout=0) for number in range(50)], return_exceptions=True
        )
        assert all(isinstance(error, client.ConnectionFailed) for error in found)
        await locks.aclose()

    with caplog.at_level(logging.WARNING, "asyncio"):
        run(work())
    assert not [record for record in caplog.records if "socket.send" in record.getMessage()]


@pytest.mark.skipif(sys.version_info < (3, 10), reason="redis-py's pool belongs to one loop there")
def test_two_loops_one_after_another(server: TestServer) -> None:
    redis_client = redis.asyncio.Redis(port=server.port)

    async def work() -> None:
        async with Lock(redis_client, "k", timeout=5):
            pass

    run(work())
    run(work())


def test_another_event_loop(server: TestServer) -> None:
    uvloop = pytest.importorskip("uvloop")
    server.hold()

    async def work() -> None:
        async with Server.open(server.url) as locks:
            waiting = asyncio.create_task(locks.lock("k").acquire(blocking_timeout=5))
            await until("the ticket", lambda: server.stat("tickets") == 1)
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(writer)
                os.read(reader, 1)
                os._exit(0)
            os.close(reader)
            server.run("LOCK.RELEASE k holder")
            assert await waiting
        # The child has no copy of the connection, which would keep it open.
        await until("the end of the subscription", lambda: not server.subscribers())
        os.close(writer)
        os.waitpid(child, 0)  # noqa: ASYNC222 - it ends at once

    loop = uvloop.new_event_loop()
    try:
        loop.run_until_complete(work())
    finally:
        loop.close()


def test_a_cancelled_opening_leaves_no_connection_and_no_task(server: TestServer) -> None:
    async def work() -> None:
        for turns in range(40):
            locks = Server.open(server.url)
            task = asyncio.create_task(locks.lock("k").acquire())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            await locks.aclose()
            end = time.monotonic() + 1
            while asyncio.all_tasks() != {asyncio.current_task()}:
                assert time.monotonic() < end, "a task is left"
                # sleep: polls, because asyncio reports no end of all tasks
                await asyncio.sleep(0.01)
            await until("the end of the connections", lambda: not server.clients())

    gc.disable()
    try:
        asyncio.run(work())
    finally:
        gc.enable()
