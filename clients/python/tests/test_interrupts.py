"""Exceptions of signal handlers, at every line of the package and of redis-py."""

from __future__ import annotations

import contextlib
import gc
import linecache
import os
import sys
from collections import Counter
from typing import Any, Callable

import pytest
import redis
from harness import TestServer, wait_for

import redis_lock_client as client
from redis_lock_client import Server

_PLACES = (os.path.dirname(client.__file__), os.path.dirname(redis.__file__))


class Boom(BaseException):
    """Raised by the handler of a signal."""


class SoftLimit(Exception):
    """As the one of Celery: no error of redis-py, and not of the system."""


class Tracer:
    """Raises before a line of the package or of redis-py, counted from 1; a line of the package counts twice."""

    def __init__(self, number: int, error: type[BaseException]) -> None:
        self.left = number
        self.error = error
        self.place = ""
        self.reached: Counter[Any] = Counter()

    def __call__(self, frame: Any, event: str, _: Any) -> Any:
        code = frame.f_code
        if not code.co_filename.startswith(_PLACES) or "observability" in code.co_filename or code.co_name == "__del__":
            return None
        text = linecache.getline(code.co_filename, frame.f_lineno).strip()
        # A signal never comes at these lines: the end of a `with` statement is traced before its lock is released, and
        # the instruction of `try:` is outside of all blocks. What comes before the first line of a release comes before
        # the release.
        is_none = text.startswith("with ") or text in ("try:", "hold: Any = self")
        own = code.co_filename.startswith(_PLACES[0])
        place = (code.co_filename, frame.f_lineno)
        if event == "line" and not is_none and self.reached[place] < (2 if own else 1):
            self.reached[place] += 1
            self.left -= 1
            if self.left == 0:
                self.place = f"{code.co_filename}:{frame.f_lineno}"
                raise self.error
        return self


def unread(pool: Any) -> int:
    """The connections of a pool that do not answer a request with its reply."""
    found = 0
    for connection in list(pool._available_connections):
        if connection._sock is not None:
            connection.send_command("ECHO", "x")
            found += connection.read_response() not in (b"x", "x")
    return found


def with_lock(locks: Server, key: str) -> None:
    with locks.lock(key, blocking_timeout=5):
        pass


def with_session(locks: Server, key: str) -> None:
    with locks.lock(key, session=True):
        pass


def with_several(locks: Server, key: str) -> None:
    with locks.multi_lock([key, key + "b"]):
        pass


def with_permit(locks: Server, key: str) -> None:
    with locks.semaphore(key, limit=1).acquire():
        pass


def in_vain(locks: Server, _: str) -> None:
    assert not locks.lock("taken").acquire(blocking_timeout=0.03)


def without_replicas(locks: Server, key: str) -> None:
    with contextlib.suppress(client.NotReplicated):
        locks.lock(key, replicas=1, replicas_within=0.001).acquire()


def changed(locks: Server, key: str) -> None:
    with locks.lock(key, timeout=10) as lock:
        lock.extend(10)
        lock.execute("SET", "written", 1)
        assert lock.owned()


# A request that is interrupted before it begins, and what the garbage collector calls.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize(
    ("work", "error"),
    [
        *((work, Boom) for work in (with_lock, with_session, with_several, with_permit, in_vain, changed)),
        (without_replicas, Boom),
        *((work, SoftLimit) for work in (with_session, in_vain)),
    ],
)
def test_an_interrupt_at_any_line_leaves_nothing(
    server: TestServer, work: Callable[[Server, str], None], error: type[BaseException]
) -> None:
    server.hold("taken")
    # A new client for each, so that connections are made, and then one whose connections are used again.
    for is_new in (True, False) if work in (with_lock, in_vain) else (False,):
        shared, number, tracer = server.client(), 0, Tracer(0, error)
        while tracer.left <= 0:
            number += 1
            tracer = Tracer(number, error)
            connection = server.client() if is_new else shared
            key = f"{is_new}{number}"
            with Server(connection) as locks:
                hub: Any = locks._hub
                sys.settrace(tracer)
                try:
                    work(locks, key)
                except (error, UnboundLocalError) as raised:
                    # In some versions of redis-py a `finally` needs what was to be assigned.
                    assert isinstance(raised, error) or isinstance(raised.__context__, error)  # noqa: PT017
                finally:
                    sys.settrace(None)
                where = f"line {number}, new: {is_new}, at {tracer.place}"
                assert locks.settled(10) == [], where
                assert not hub.holds and not hub.tickets and locks.statistics().waiting == 0 and not hub.endings, where
                assert not hub.users and not hub._gates, where
                assert unread(connection.connection_pool) == 0, where
                if hub._turns.line:
                    gc.collect()
                assert not hub._turns.line, where
                # The next one has what is its own.
                lock = locks.lock("next")
                assert lock.acquire(blocking=False) and lock.owned(), where
                assert server.observer.execute_command("LOCK.RENEW", "next", lock.local.token, "TOKEN", lock.token) == 1
                lock.release()
            assert server.observer.exists("next", key + "b") == 0, where
            if work is with_permit:
                assert server.client().execute_command("SEM.INFO", key) is None or (
                    Server(connection).semaphore(key).info().held == 0  # type: ignore[union-attr]
                ), where
            else:
                assert server.observer.exists(key) == 0, where
        assert number > 50
        wait_for("the connections of the package to end", lambda: not server.subscribers())
    assert server.stat("tickets") == 0


def test_the_reply_of_an_interrupted_request_is_no_token_of_another_lock(server: TestServer) -> None:
    server.hold("taken")
    with Server(server.client()) as locks:
        with locks.lock("first"):
            pass
        for error in (Boom, SoftLimit):

            def interrupt(frame: Any, event: str, _: Any, error: type[BaseException] = error) -> Any:
                if frame.f_code.co_name == "parse_response" and event == "call":
                    raise error
                return None

            sys.settrace(interrupt)
            try:
                with pytest.raises(error):
                    locks.lock("k").acquire()
            finally:
                sys.settrace(None)
            # Before that the background uses the connections.
            assert locks.settled() == [] and server.run("EXISTS k") == 0
            assert unread(locks._hub.client.connection_pool) == 0
            assert not locks.lock("taken").acquire(blocking=False)
