"""Losses: each reply that proves one reports it, and nothing of the program delays the news."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import threading
from typing import Any, Callable

import pytest
import redis
import redis.asyncio
from harness import TestServer, bounded, outcome, wait_for

import redis_lock_client as client
import redis_lock_client.asyncio
from redis_lock_client import LostReason, Mode, Server

_PROOFS: dict[str, Callable[[Any], Any]] = {
    "execute": lambda lock: lock.execute("SET", "data", 1),
    "set_note": lambda lock: lock.set_note("x"),
    "owned": lambda lock: lock.owned(),
    "reacquire": lambda lock: lock.reacquire(),
}


def take(server: TestServer, how: str) -> None:
    server.run("DEL k")
    if how == "foreign":
        server.run("SET k v")
    elif how == "taken":
        server.run("LOCK.ACQUIRE k other PX 60000")


@pytest.mark.parametrize("how", ["free", "taken", "foreign"])
@pytest.mark.parametrize("request_", list(_PROOFS))
def test_a_reply_that_proves_a_loss_reports_it(server: TestServer, request_: str, how: str) -> None:
    reasons: list[LostReason] = []
    with Server(server.client()) as locks:
        lock = locks.lock("k", timeout=60, on_lost=reasons.append)
        lock.acquire()
        take(server, how)
        assert outcome(lambda: _PROOFS[request_](lock)) in (False, client.NotOwned)
        assert lock.lost.is_set() and lock.valid_for() == 0
        wait_for("the call", lambda: reasons)
        assert reasons[0].kind == "taken" or (how == "foreign" and reasons[0].kind == "refused")


@pytest.mark.parametrize("request_", list(_PROOFS))
def test_a_reply_that_proves_a_loss_reports_it_to_tasks(server: TestServer, request_: str) -> None:
    async def work() -> None:
        async with redis.asyncio.Redis(port=server.port) as redis_client:
            lock = client.asyncio.Lock(redis_client, "k", timeout=60)
            await lock.acquire()
            take(server, "taken")
            with contextlib.suppress(client.NotOwned):
                assert await _PROOFS[request_](lock) is False
            assert lock.lost.is_set() and lock.valid_for() == 0

    asyncio.run(work())


_HELD: dict[str, Callable[[Any], Any]] = {
    "lock": lambda locks: locks.lock("k"),
    "multi_lock": lambda locks: locks.multi_lock(["k"]),
    "permit": lambda locks: locks.semaphore("s", limit=1).acquire(),
}


@pytest.mark.parametrize("kind", list(_HELD))
@pytest.mark.parametrize("is_lost", [True, False])
def test_a_release_replaces_no_exception_of_a_with_statement(server: TestServer, kind: str, is_lost: bool) -> None:
    def end(error: type[BaseException]) -> None:
        if is_lost:
            server.run("DEL k")
        else:
            server.signal(signal.SIGSTOP)
        raise error

    with Server(server.client(**bounded(0.3))) as locks:
        with pytest.raises(SystemExit), _HELD[kind](locks):
            end(SystemExit)
        server.signal(signal.SIGCONT)

    async def work() -> None:
        client_ = redis.asyncio.Redis(port=server.port, **bounded(0.3, True))
        async with client.asyncio.Server(client_) as locks:
            held = _HELD[kind](locks)
            with pytest.raises(asyncio.CancelledError):
                async with await held if kind == "permit" else held:
                    end(asyncio.CancelledError)
            server.signal(signal.SIGCONT)

    asyncio.run(work())


def test_a_reader_that_is_not_listed_is_not_lost(server: TestServer) -> None:
    with Server(server.client()) as locks:
        lock = locks.lock("k", mode=Mode.READ)
        lock.acquire()
        for number in range(300):
            server.run(f"LOCK.ACQUIRE k reader{number} READ PX 60000")
        assert lock.owned() and not lock.lost.is_set()


def test_a_condition_of_another_lock_is_no_loss(server: TestServer) -> None:
    with Server(server.client()) as locks, locks.lock("k") as lock:
        assert issubclass(outcome(lambda: lock.execute("LOCK.IF", "k", 1_000, "GET", "x")), client.Refused)
        assert not lock.lost.is_set()


class Slow(logging.Handler):
    """A handler that takes its time."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.may_end = threading.Event(), threading.Event()

    def emit(self, _: logging.LogRecord) -> None:
        self.begun.set()
        self.may_end.wait(20)


@pytest.mark.parametrize("is_asyncio", [False, True])
def test_a_slow_log_does_not_delay_renewals(server: TestServer, is_asyncio: bool) -> None:
    handler = Slow()
    logger = logging.getLogger("redis_lock_client")

    def check(renewals: int) -> bool:
        return handler.begun.is_set() and server.stat("renewals") > renewals + 1

    async def tasks() -> None:
        async with redis.asyncio.Redis(port=server.port) as redis_client:
            lost = client.asyncio.Lock(redis_client, "lost", lease=3)
            async with client.asyncio.Lock(redis_client, "k", lease=3):
                await lost.acquire()
                server.run("DEL lost")
                while not handler.begun.is_set():
                    # sleep: polls, because the handler runs in a thread
                    await asyncio.sleep(0.01)
                renewals = server.stat("renewals")
                for _ in range(2_000):
                    if check(renewals):
                        break
                    # sleep: polls the server
                    await asyncio.sleep(0.01)
                assert check(renewals)
            handler.may_end.set()

    def threads() -> None:
        with Server(server.client()) as locks, locks.lock("k", lease=3):
            locks.lock("lost", lease=3).acquire()
            server.run("DEL lost")
            assert handler.begun.wait(20)
            renewals = server.stat("renewals")
            wait_for("renewals", lambda: check(renewals))
            handler.may_end.set()

    logger.addHandler(handler)
    try:
        if is_asyncio:
            asyncio.run(tasks())
        else:
            threads()
    finally:
        handler.may_end.set()
        logger.removeHandler(handler)


@pytest.mark.parametrize("word", [True, None, object(), [1], "\ud800"])
def test_what_redis_py_does_not_send_is_refused_before(server: TestServer, word: Any) -> None:
    with Server(server.client()) as locks, locks.lock("k") as lock:
        for command in (("SET", "x", word), (word,), ("SET", word, "x")):
            with pytest.raises(client.ConfigError) as raised:
                lock.execute(*command)
            assert isinstance(raised.value, redis.DataError)
        assert server.run("EXISTS x") == 0
        for sent in (1, 1.5, b"b", bytearray(b"b"), memoryview(b"b"), "ä"):
            assert outcome(lambda sent=sent: lock.execute("SET", "x", sent)) in (b"OK", client.ConfigError)
            if outcome(lambda sent=sent: server.observer.set("y", sent)) is True:
                assert server.run("GET x") == server.run("GET y")


class Broken(Exception):
    """An error of a class of the program."""


def test_an_error_in_a_shared_pipeline_cancels_nobody(server: TestServer) -> None:
    class Client(redis.asyncio.Redis):
        is_broken = False

        def pipeline(self, *args: Any, **kwargs: Any) -> Any:
            if self.is_broken:
                raise Broken
            return super().pipeline(*args, **kwargs)

    async def work() -> None:
        async with Client(port=server.port) as redis_client:
            locks = [client.asyncio.Lock(redis_client, f"k{number}") for number in range(6)]
            await locks[0].acquire()
            redis_client.is_broken = True
            results = await asyncio.gather(*(lock.acquire() for lock in locks[1:]), return_exceptions=True)
            kinds = [result if result is True else type(result) for result in results]
            assert sorted(map(str, kinds)) == sorted(map(str, [True] + [Broken] * 4))
            redis_client.is_broken = False
            assert await asyncio.gather(*(lock.acquire() for lock in locks[2:])) == [True] * 4

    asyncio.run(work())
