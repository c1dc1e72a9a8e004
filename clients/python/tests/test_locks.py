"""Locks by one thread or several: grants, waits, losses, releases."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import logging
import threading
import time
from typing import Any, Callable, Optional

import pytest
import redis
import redis.asyncio
from harness import Proxy, TestServer, bounded, outcome, repeating, soonest, wait_for

import redis_lock_client as client
import redis_lock_client.asyncio
from redis_lock_client import Lock, LostReason, Mode, Server, _election, _requests
from redis_lock_client._hold import Moment

LONG_GRACE = ("--lock.queue-grace", "20000")


def in_threads(count: int, work: Callable[[int], Any]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    return threads


def join(threads: list[threading.Thread], limit: float = 30) -> None:
    end = time.monotonic() + limit
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
        assert not thread.is_alive(), "a wait is lost"


def test_an_uncontended_lock(server: TestServer) -> None:
    lock = server.client().lock("k", lock_class=Lock)
    assert lock.acquire() is True
    first = lock.token
    assert 29 < lock.valid_for() < 30
    assert lock.locked() and lock.owned()
    assert server.observer.hgetall("k")[lock.local.token] == b"1"
    lock.release()
    assert not lock.locked() and not lock.owned() and lock.token is None
    assert server.run("EXISTS k") == 0
    lock.acquire()
    assert lock.token > first
    lock.release()


def test_a_command_under_the_lock_runs_only_while_it_is_held(server: TestServer) -> None:
    lock = Lock(server.client(), "k")
    with pytest.raises(client.NotAcquired):
        lock.execute("SET", "data", 0)
    with lock:
        assert lock.execute("SET", "data", 1) in (b"OK", True)
        assert lock.execute("INCRBY", "data", 5) == 6
        with pytest.raises(client.Refused, match="wrong number"):
            lock.execute("GET", "data", "data")
        server.run("LOCK.BREAK k")
        with pytest.raises(client.NotOwned):
            lock.execute("SET", "data", 9)
        assert server.run("GET data") == b"6"
        with pytest.raises(client.NotOwned):
            lock.release()
        lock.acquire()
    both = client.MultiLock(server.client(), ["a", "b"])
    with both, pytest.raises(client.NotAcquired):
        both.execute("SET", "data", 9)


def test_leaders_follow_each_other_and_each_change_is_observed_once(server: TestServer) -> None:
    election = client.Election(server.client(), "k", lease=1.5)
    seen = election.observe()
    assert election.leader() is None and next(seen) is None
    with election.campaign("a:1") as leadership:
        assert election.leader() == (b"a:1", leadership.token) == next(seen)
        leadership.set_note("a:2")
        assert next(seen) == (b"a:2", leadership.token)
        assert not election.campaign("b:1").acquire(blocking=False)
    assert next(seen) is None
    with pytest.raises(client.NotAcquired):
        leadership.set_note("late")
    with pytest.raises(client.ConfigError, match="256"):
        election.campaign("x" * 257)
    with pytest.raises(client.ConfigError, match="exclusive"):
        Lock(server.client(), "k", note="x", mode=client.Mode.READ)


def test_an_observation_goes_on_when_the_server_is_there_again(server: TestServer, monkeypatch: Any) -> None:
    failures: list[Exception] = []

    async def info(*words: Any) -> Any:
        try:
            return await _requests.info(*words)
        except client.Error as error:
            failures.append(error)
            raise

    monkeypatch.setattr(_election, "info", info)
    seen = client.Election(server.client(**bounded(5)), "k", lease=0.3).observe()
    assert next(seen) is None
    server.kill()
    with concurrent.futures.ThreadPoolExecutor() as threads:
        found = threads.submit(next, seen)
        wait_for("a failure", lambda: failures)
        server.start()
        token = server.hold()
        assert found.result() == (b"", token)

    async def work() -> None:
        async with redis.asyncio.Redis(port=server.port, **bounded(5, True)) as redis_client:
            seen = client.asyncio.Election(redis_client, "k", lease=0.3).observe()
            assert await seen.__anext__() == (b"", token)
            server.kill()
            failures.clear()
            found = asyncio.ensure_future(seen.__anext__())
            await asyncio.get_running_loop().run_in_executor(None, wait_for, "a failure", lambda: failures)
            server.start()
            assert await found is None
            server.run("ACL SETUSER default -lock.info")
            with pytest.raises(client.NoPermission):
                await seen.__anext__()

    asyncio.run(work())
    with pytest.raises(client.NoPermission):
        next(seen)


def test_waits_are_granted_in_order_and_tokens_rise(server: TestServer) -> None:
    server.hold()
    redis_client = server.client()
    order: list[tuple[int, int]] = []

    def work(number: int) -> None:
        with Lock(redis_client, "k") as lock:
            order.append((number, lock.token))

    threads = []
    for number in range(20):
        threads += [threading.Thread(target=work, args=(number,), daemon=True)]
        threads[-1].start()
        wait_for("the ticket", lambda number=number: server.stat("tickets") == number + 1)
    assert len(server.subscribers()) == 1 and len(server.clients()) <= 17, "a wait has no connection"
    server.run("LOCK.RELEASE k holder")
    join(threads)
    assert [number for number, _ in order] == list(range(20))
    assert order == sorted(order, key=lambda pair: pair[1])


def test_a_wait_that_ends(server: TestServer) -> None:
    server.hold()
    lock = Lock(server.client(), "k", blocking_timeout=0.5)
    begin = time.monotonic()
    assert lock.acquire() is False
    assert 0.5 <= time.monotonic() - begin < 2
    assert lock.acquire(blocking=False) is False
    wait_for("the withdrawal", lambda: server.stat("tickets") == 0)
    with pytest.raises(redis.exceptions.LockError) as raised, lock:
        pass
    assert raised.value.lock_name == "k"


def test_killed_connections(start: Callable[..., TestServer]) -> None:
    server = start(*LONG_GRACE)
    server.hold()
    redis_client = server.client()
    order: list[bytes] = []

    def work(_: int) -> None:
        with Lock(redis_client, "k") as lock:
            order.append(lock.local.token)

    threads = in_threads(30, work)
    wait_for("the tickets", lambda: server.stat("tickets") == 30)
    queue = server.queue()
    queued = server.stat("tickets_queued")
    server.kill_subscribers()
    wait_for("every wait asks again", lambda: server.stat("tickets_queued") >= queued + 30)
    for one in server.clients():
        server.observer.client_kill_filter(_id=one["id"])
    wait_for("all are there", lambda: server.queue() == queue and server.subscribers())
    server.run("LOCK.RELEASE k holder")
    join(threads)
    assert order == queue
    assert server.stat("grants") == 31, "none is granted twice"


def test_a_lost_message(server: TestServer, proxy: Proxy) -> None:
    server.hold()
    lock = Lock(redis.Redis(port=proxy.port), "k")
    threads = in_threads(1, lambda _: lock.acquire() and lock.release())
    wait_for("the ticket", lambda: server.stat("tickets") == 1)
    proxy.lose_message(b"granted ")
    server.run("LOCK.RELEASE k holder")
    join(threads)
    assert (proxy.lost, server.stat("grants")) == (1, 2)


def test_a_lost_reply(server: TestServer, proxy: Proxy) -> None:
    """redis-py sends the request again."""
    lock = Lock(redis.Redis(port=proxy.port, **repeating(1)), "k")
    lock.acquire()
    lock.release()
    proxy.lose_message(b":")
    assert lock.acquire(blocking_timeout=5)
    assert (proxy.lost, server.stat("grants")) == (1, 2)
    assert server.observer.hget("k", lock.local.token) == b"1"
    proxy.lose_message(b":")
    lock.release()
    assert (proxy.lost, server.run("EXISTS k")) == (2, 0), "released, whatever the second request says"


def test_a_forged_message_grants_nothing(server: TestServer) -> None:
    token = server.hold()
    lock = Lock(server.client(), "k", blocking_timeout=10)
    threads = in_threads(1, lambda _: lock.acquire() and lock.release())
    wait_for("the ticket", lambda: server.stat("tickets") == 1)
    queued = server.stat("tickets_queued")
    channel = server.observer.pubsub_channels("lock:tickets:*")[0]
    for tag in (1, 2):
        server.observer.publish(channel, f"granted {token + 1} {tag}")
    wait_for("the wait asks again", lambda: server.stat("tickets_queued") > queued)
    assert threads[0].is_alive() and server.stat("grants") == 1
    server.run("LOCK.RELEASE k holder")
    join(threads)


def test_a_restart(start: Callable[..., TestServer]) -> None:
    server = start("--appendonly", "yes", "--appendfsync", "always")
    server.hold()
    redis_client = server.client()
    done: list[int] = []

    def work(number: int) -> None:
        with Lock(redis_client, "k"):
            done.append(number)

    threads = in_threads(5, work)
    wait_for("the tickets", lambda: server.stat("tickets") == 5)
    server.restart()
    wait_for("the tickets", lambda: server.stat("tickets") == 5)
    server.run("LOCK.RELEASE k holder")
    join(threads)
    assert sorted(done) == list(range(5))


@pytest.mark.parametrize("is_connected", [True, False])
def test_a_request_is_bounded_by_the_client(server: TestServer, is_connected: bool) -> None:
    with Server(server.client(**bounded(0.4))) as locks:
        lock = locks.lock("k")
        if is_connected:
            lock.acquire()
            lock.release()
        with server.stopped():

            def acquire() -> None:
                with pytest.raises(redis.exceptions.TimeoutError):
                    lock.acquire(blocking_timeout=0)

            assert soonest(acquire) < 1.5
        assert locks.settled() == []
        assert server.run("EXISTS k") == 0, "a request that is served late grants nothing"
        assert lock.acquire(blocking_timeout=5)


def test_a_wait_in_the_queue_is_bounded(server: TestServer) -> None:
    """If the server says nothing at the limit of a wait, that is an error: nothing is known of the lock."""
    server.hold()
    lock = Lock(server.client(**bounded(1)), "k", blocking_timeout=1)
    begin = time.monotonic()
    results: list[Any] = []
    threads = in_threads(1, lambda _: results.append(outcome(lock.acquire)))
    wait_for("the ticket", lambda: server.stat("tickets") == 1)
    with server.stopped():
        join(threads, 5)
        assert results == [client.NoAnswer] and time.monotonic() - begin < 4


@pytest.mark.parametrize("limit", [0, 30, None])
def test_an_address_without_a_server(limit: Optional[float]) -> None:
    """A first request that cannot be sent is an error at once, with the words of the transport."""
    wrong = ({"port": 1}, {"host": "no-such-host.invalid"})
    for options, words in zip(wrong, ("(?i)connection refused", "(?i)name|address")):
        lock = Lock(redis.Redis(**options, **bounded(5)), "k", blocking_timeout=limit)  # type: ignore[arg-type]

        def acquire(lock: Lock = lock, words: str = words) -> None:
            with pytest.raises(client.ConnectionFailed, match=words) as raised:
                lock.acquire()
            assert raised.value.__cause__ is not None

        assert soonest(acquire) < 3

        async def work(options: Any = options, words: str = words) -> None:
            client_of_tasks = redis.asyncio.Redis(**options, **bounded(5, True))
            with pytest.raises(client.ConnectionFailed, match=words):
                await client.asyncio.Lock(client_of_tasks, "k", blocking_timeout=limit).acquire()

        asyncio.run(work())


def test_a_lock_without_a_timeout_is_renewed(server: TestServer) -> None:
    lock = Lock(server.client(), "k", lease=3)
    lock.acquire()
    # sleep: two leases, each of which is over without a renewal
    time.sleep(6.5)
    assert lock.owned() and not lock.lost.is_set()
    assert server.run("PTTL k") > 100
    lock.release()
    assert lock.lost.wait(0.1) is False


@pytest.mark.parametrize("how", ["LOCK.BREAK k", "DEL k", "SET k foreign"])
def test_a_loss_is_reported(server: TestServer, how: str) -> None:
    reported: list[LostReason] = []
    lock = Lock(server.client(), "k", lease=2.1, on_lost=reported.append)
    lock.acquire()
    lost = lock.lost
    server.run(how)
    assert lost.wait(5)
    expected = "refused" if "SET" in how else "taken"
    assert lost.reason is not None
    assert lost.reason.kind == expected
    assert lock.valid_for() == 0
    wait_for("the function", lambda: [reason.kind for reason in reported] == [expected])
    with pytest.raises(redis.exceptions.LockNotOwnedError):
        lock.release()


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_loss_is_reported_before_the_lease_ends(server: TestServer, is_killed: bool) -> None:
    lock = Lock(server.client(), "k", lease=6)
    begin = time.monotonic()
    lock.acquire()
    server.kill() if is_killed else server.signal(19)
    assert lock.lost.wait(10)
    waited = time.monotonic() - begin
    assert 4.9 < waited < 6
    assert lock.lost.reason == LostReason.UNCONFIRMED
    assert 0 < lock.valid_for() <= 1


@pytest.mark.parametrize("listens", [False, True])
def test_a_loss_that_nothing_listens_to_is_in_the_log(server: TestServer, listens: bool, caplog: Any) -> None:
    heard: list[LostReason] = []
    with Server(server.client()) as locks, caplog.at_level(logging.WARNING, "redis_lock_client"):
        locks.lock("k", lease=2.1, on_lost=heard.append if listens else None).acquire()
        server.run("DEL k")
        wait_for("the loss", lambda: locks.statistics().losses == 1)
        wait_for("the news", lambda: heard if listens else caplog.records)
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ([] if listens else ["k: the lock was lost: the server says that the grant is over"])


def test_a_wait_that_does_not_reach_its_server_warns(server: TestServer, monkeypatch: Any, caplog: Any) -> None:
    monkeypatch.setattr("redis_lock_client._acquire._WARNS_EVERY", 1.0)
    server.hold()
    with caplog.at_level(logging.WARNING, "redis_lock_client"):
        threads = in_threads(1, lambda _: Lock(server.client(**bounded(1)), "k").acquire())
        wait_for("the ticket", lambda: server.stat("tickets") == 1)
        server.kill()
        # sleep: less than the time after which it warns
        time.sleep(1.5)
        assert not caplog.records
        wait_for("two warnings", lambda: len(caplog.records) >= 2)
        assert "the wait for k goes on" in caplog.text and "refused" in caplog.text
    server.start()
    join(threads)


def test_only_a_key_that_was_waited_for_begins_with_a_ticket(server: TestServer, monkeypatch: Any) -> None:
    """One costs a free lock a fifth more."""
    server.hold("taken")
    with Server(server.client()) as locks:
        hub: Any = locks._hub
        make, made = hub.new_ticket, []
        monkeypatch.setattr(hub, "new_ticket", lambda: made.append(1) or make())
        assert not locks.lock("taken").acquire(blocking_timeout=0.1)
        assert len(made) == 1
        with locks.lock("free"):
            assert len(made) == 1
        server.run("DEL taken")
        for _ in range(2):
            with locks.lock("taken"):
                assert len(made) == 2
        monkeypatch.setattr("redis_lock_client._hub._CONTENDED", 10)
        hub.contended.update(b"%d" % number for number in range(20))
        wait_for("the next look of the timer", lambda: not hub.contended)


@pytest.mark.parametrize("connections", [1, None])
def test_threads_have_their_turns_in_order(server: TestServer, connections: Optional[int]) -> None:
    """A thread that sends one command after another takes no turn from those that wait."""
    # One that had to wait for longer would open a connection more than the pool has.
    redis_client = server.client(max_connections=connections, socket_timeout=5)
    pairs = [0] * 50
    with Server(redis_client) as locks:

        def work(place: int) -> None:
            lock = locks.lock(f"k{place}")
            while max(pairs) < 50:
                assert lock.acquire(blocking=False)
                lock.release()
                pairs[place] += 1

        join(in_threads(len(pairs), work))
    # Each begins at another time.
    assert min(pairs) > 10, pairs


def test_a_false_message_grants_nothing(server: TestServer) -> None:
    """Every client that may publish to the channel can send one. The wait keeps its place, and leaves none behind."""
    server.hold()
    results: list[bool] = []
    threads = in_threads(1, lambda _: results.append(Lock(server.client(), "k").acquire(blocking_timeout=2)))
    wait_for("the ticket", lambda: server.stat("tickets") == 1)
    queue = server.queue()
    (channel,) = server.observer.pubsub_channels("lock:tickets:*")
    asked = server.observer.info("commandstats")["cmdstat_lock.acquire"]["calls"]
    for tag in range(10):
        server.observer.publish(channel, f"granted 1 {tag}")
    wait_for(
        "the new request", lambda: server.observer.info("commandstats")["cmdstat_lock.acquire"]["calls"] > asked + 1
    )
    assert server.queue() == queue and results == []
    join(threads, 10)
    assert results == [False]
    wait_for("the end of the ticket", lambda: server.stat("tickets") == 0)


def test_options_of_a_class(server: TestServer) -> None:
    """redis-py's ``lock()`` passes on only its own arguments."""
    kind = Lock.with_options(lease=5, margin=1)
    lock = server.client().lock("a", lock_class=kind)
    assert lock.acquire() and 4 < lock.valid_for() < 5
    assert isinstance(lock, (kind, Lock)) and isinstance(lock, redis.lock.Lock)
    assert kind.with_options(lease=7)(server.client(), "b", lease=6).acquire()
    lock.release()
    for name, key in ((7, "7"), (1.5, "1.5")):
        with server.client().lock(name, timeout=5, lock_class=kind.with_options(lease=None)):
            assert server.run(f"EXISTS {key}") == 1


def test_a_hold_has_a_longest_time(server: TestServer) -> None:
    """In spite of renewals: for a program that hangs."""
    with Server(server.client()) as locks:
        begin = time.monotonic()
        lock, session = locks.lock("k", lease=1.5, max_hold=4), locks.lock("s", session=True, max_hold=2)
        assert lock.acquire() and session.acquire()
        assert lock.lost.wait(10) and 2.5 < time.monotonic() - begin < 5
        assert session.lost.is_set()
        assert locks.statistics().renewals >= 2
        wait_for("the end of the lease", lambda: server.run("EXISTS k") == 0)


def test_a_fixed_lease(server: TestServer) -> None:
    lock = Lock(server.client(), "k", timeout=2, margin=0)
    begin = time.monotonic()
    lock.acquire()
    assert lock.lost.wait(10)
    assert 1.9 < time.monotonic() - begin < 5
    assert lock.lost.reason == LostReason.UNCONFIRMED
    wait_for("the end of the lease", lambda: server.run("EXISTS k") == 0)
    with pytest.raises(client.NotOwned):
        lock.release()
    lock.acquire()
    lock.extend(5)
    assert 5 < lock.valid_for() < 7
    assert 5_000 < server.run("PTTL k") <= 7_000
    lock.extend(4, replace_ttl=True)
    assert 2_000 < server.run("PTTL k") <= 4_000
    lock.reacquire()
    assert server.run("PTTL k") <= 2_000
    lock.release()


def test_a_dropped_lock_stays_held(server: TestServer) -> None:
    redis_client = server.client()
    Lock(redis_client, "fixed", timeout=60).acquire()
    Lock(redis_client, "renewed", lease=3).acquire()
    del redis_client
    gc.collect()
    # sleep: two leases of the lock that is renewed
    time.sleep(6)
    assert server.run("EXISTS fixed renewed") == 2, "as with redis-py, only a release ends a hold"


def test_reading_and_writing(server: TestServer) -> None:
    with Server(server.client()) as locks:
        both = locks.read_write_lock("k")
        one, other, writer = both.read_lock(), both.read_lock(), both.write_lock()
        assert one.acquire() and other.acquire()
        assert one.token == other.token
        assert not writer.acquire(blocking_timeout=0.1)
        threads = in_threads(1, lambda _: writer.acquire() and writer.release())
        wait_for("the writer", lambda: server.stat("tickets") == 1)
        assert not both.read_lock().acquire(blocking=False), "a reader does not pass a waiting writer"
        assert one.owned() and one.locked()
        one.release()
        other.release()
        join(threads)
        exclusive = locks.lock("k")
        with both.read_lock(), pytest.raises(client.WrongType, match="LOCKTYPE"):
            exclusive.acquire()
        assert Lock(locks, "w", mode=Mode.WRITE).acquire()


def test_a_semaphore(server: TestServer) -> None:
    with Server(server.client()) as locks:
        semaphore = locks.semaphore("s", limit=2)
        one, other = semaphore.acquire(), semaphore.acquire()
        assert one.token != other.token
        assert semaphore.try_acquire() is None
        assert semaphore.acquire_within(0.1) is None
        info = semaphore.info()
        assert info is not None
        assert (info.permits, info.free, info.held) == (2, 0, 2)
        threads = in_threads(1, lambda _: semaphore.acquire().release())
        wait_for("the wait", lambda: server.stat("tickets") == 1)
        assert one.release() is client.Released.YES
        join(threads)
        assert one.release() is client.Released.NOT_HELD
        with semaphore.acquire() as third:
            assert third.valid_for() > 29
        del other
        gc.collect()
        wait_for("the dropped permit", lambda: semaphore.info().free == 2)  # type: ignore[union-attr]
        semaphore.set(5)
        assert semaphore.info().permits == 5  # type: ignore[union-attr]
        lasting = locks.semaphore("s", lease=1.5).acquire()
        # sleep: more than the lease
        time.sleep(2)
        assert not lasting.lost.is_set()
        server.run("DEL s {s}:timeout")
        assert lasting.lost.wait(5) and lasting.lost.reason == LostReason.TAKEN


def test_a_latch(server: TestServer) -> None:
    with Server(server.client()) as locks:
        latch = locks.latch("l")
        assert latch.wait(0)
        latch.set(2)
        assert latch.count() == 2 and not latch.wait(0.1)
        threads = in_threads(5, lambda _: latch.wait())
        wait_for("the waits", lambda: server.stat("tickets") == 5)
        assert [latch.count_down(), latch.count_down()] == [1, 0]
        join(threads)


def test_two_threads_share_a_lock_object(server: TestServer) -> None:
    lock = Lock(server.client(), "k")
    lock.acquire()
    errors: list[BaseException] = []

    def release(_: int) -> None:
        try:
            lock.release()
        except redis.exceptions.LockError as error:
            errors.append(error)

    join(in_threads(1, release))
    assert len(errors) == 1 and "thread_local=False" in str(errors[0]), "a thread sees its own hold only"
    lock.release()
    shared = Lock(server.client(), "k", thread_local=False)
    shared.acquire()
    join(in_threads(1, lambda _: shared.release()))
    assert server.run("EXISTS k") == 0


def test_named_owners(server: TestServer) -> None:
    redis_client = server.client()
    one, other = Lock(redis_client, "k", owner="me"), Lock(redis_client, "k")
    assert one.acquire()
    assert server.observer.hget("k", "me") == b"1"
    assert not other.acquire(blocking_timeout=0.1)
    one.release()
    assert other.acquire(token=b"me")
    stranger = Lock(redis_client, "k", timeout=5)
    stranger.local.token = b"me"
    assert stranger.owned()
    stranger.extend(9, replace_ttl=True)
    stranger.release()
    with pytest.raises(client.NotOwned):
        other.release()
    other.acquire()
    Lock(redis_client, "k").do_release(other.local.token)
    assert server.run("EXISTS k") == 0


def test_statistics(server: TestServer) -> None:
    server.hold("taken")
    with Server(server.client()) as locks:
        lock = locks.lock("k")
        lock.acquire()
        locks.lock("taken").acquire(blocking_timeout=0.05)
        numbers = locks.statistics()
        assert numbers.gauges() == {"holds": 1, "waiting": 0}
        assert (numbers.acquisitions, numbers.acquisitions_refused, numbers.waits) == (1, 1, 1)
        lock.release()
        assert locks.settled() == []
        assert locks.statistics().counters()["releases"] == 1


def test_a_lost_lock_that_is_forgotten_is_forgotten(server: TestServer) -> None:
    with Server(server.client()) as locks:
        for number in range(20):
            locks.lock(f"k{number}", timeout=0.05, margin=0).acquire()
        wait_for("the losses", lambda: locks.statistics().losses == 20)
        gc.collect()
        wait_for("no hold", lambda: gc.collect() >= 0 and locks.statistics().holds == 0)


def test_an_unanswered_extension_counts_if_it_is_shorter(server: TestServer, proxy: Proxy) -> None:
    with Server(redis.Redis(port=proxy.port, **bounded(0.5))) as locks:
        lock = locks.lock("k", timeout=300)
        lock.acquire()
        with server.stopped(), pytest.raises(redis.exceptions.TimeoutError):
            lock.extend(60, replace_ttl=True)
        assert lock.valid_for() < 60
        wait_for("the server", server.client().ping)
        lock.extend(600, replace_ttl=True)
        assert lock.valid_for() < 60, "the first may be served yet"


def test_a_lease_that_becomes_shorter_meanwhile(server: TestServer) -> None:
    """The timer sets a lease while another thread reads how long the lock is valid."""
    with Server(server.client()) as locks:
        lock = locks.lock("k", timeout=100)
        lock.acquire()
        hold: Any = lock._hold()

        class Read(Moment):
            def elapsed(self) -> float:
                hold.term = (2.0, Moment())
                return 0.0

        hold.term = (100.0, Read())
        assert lock.valid_for() <= 2


def test_a_subclass_is_used_by_the_with_statement(server: TestServer) -> None:
    class Counted(Lock):
        acquired = 0

        def acquire(self, *args: Any, **kwargs: Any) -> bool:
            self.acquired += 1
            return super().acquire(*args, **kwargs)

    with Counted(server.client(), "k") as lock:
        assert lock.acquired == 1 and lock.owned()


def test_a_limit_names_the_failure_before_it(server: TestServer, proxy: Proxy) -> None:
    server.hold()
    lock = Lock(redis.Redis(port=proxy.port, **bounded(1)), "k", blocking_timeout=2)
    reported: list[Any] = []

    def acquire(_: int) -> None:
        with pytest.raises(client.ConnectionFailed) as raised:
            lock.acquire()
        reported.append(raised.value.__cause__)

    threads = in_threads(1, acquire)
    wait_for("the ticket", lambda: server.stat("tickets") == 1)
    proxy.refuse()
    proxy.cut()
    join(threads)
    assert isinstance(reported[0], (client.ConnectionFailed, redis.exceptions.ConnectionError))
