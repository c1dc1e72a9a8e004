"""The driver for threads: commands in the thread that calls, a timer thread for each client, and a thread for each
connection that is read all the time.

The timer thread starts with the first acquisition, and ends after ``Server.close()``, or when nothing has been held or
waited for for half a minute. At the end of the interpreter it has a moment to send releases. A forked process begins
anew: it closes its copies of the connections, and knows nothing of what its parent holds.
"""

from __future__ import annotations

import atexit
import contextlib
import inspect
import os
import threading
import time
import weakref
from collections.abc import Generator
from typing import Any, Callable, Optional

import redis
from redis import exceptions as redis_errors
from redis.client import NEVER_DECODE

from ._effects import Ask, Await, Batch, Call, Open, Pause, Place, Refresh
from ._hold import Hold, now
from ._hub import Hub, Job
from ._link import Done, Link
from ._terms import Command
from .errors import ConfigError, ConnectionFailed, Error, NoAnswer, of_redis
from .outcome import LostReason
from .statistics import Statistics

#: How long the end of the interpreter waits for releases.
_AT_EXIT = 0.5
#: How often a reader looks whether its connection was closed.
_LOOK = 2.0
#: What the pools of redis-py before 5.3 take.
POOL_WORDS = ("_",) if tuple(int(part) for part in redis.__version__.split(".")[:2]) < (5, 3) else ()
#: The commands at a time of one client (not of a cluster, of which one node may hang). Others wait, so that many
#: threads do not use up the client's pool.
_AT_A_TIME = 16
#: The commands of one pipeline.
PIPELINE = 500
#: Tokens of one thread are read by another as bytes, whatever the program's client decodes.
RAW: dict[str, Any] = {NEVER_DECODE: True}


def translated(server: str, error: BaseException) -> Error:
    """Raises the error of this package for one of the client. What a signal handler raises stays as it is."""
    is_known = isinstance(error, (Error, OSError)) or type(error).__module__.startswith("redis.")
    if not isinstance(error, Exception) or not (is_known or is_of_provider(error)):
        raise error
    found = of_redis(server, error)
    # The server's own text may name the user or an owner.
    found.__cause__ = error if isinstance(found, ConnectionFailed) and found is not error else found.__cause__
    found.__suppress_context__ = True
    return found


def is_of_provider(error: BaseException) -> bool:
    """Whether a credential provider of the program has raised it."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_name.startswith("get_credentials"):
            return True
        trace = trace.tb_next
    return False


def check_client(client: Any, is_asyncio: bool) -> None:
    """Refuses what is no client of the kind."""
    execute = getattr(client, "execute_command", None)
    if not callable(execute) or not hasattr(client, "get_connection_kwargs"):
        raise ConfigError("a client of redis-py is needed: Redis or RedisCluster")
    if inspect.iscoroutinefunction(execute) is not is_asyncio:
        raise ConfigError(
            "a client of redis.asyncio is needed: redis.asyncio.Redis or redis.asyncio.RedisCluster"
            if is_asyncio
            else "this client is asynchronous: use redis_lock_client.asyncio"
        )
    if getattr(getattr(client, "connection_pool", None), "is_master", True) is False:
        raise ConfigError("locks are taken at the primary: use Sentinel.master_for()")


def read_options(connection: Any) -> dict[str, Any]:
    """How a connection is read. Not all of redis-py 5 know the messages of RESP3."""
    options = {"disable_decoding": True, "disconnect_on_error": False, "push_request": True}
    known = inspect.signature(connection.read_response).parameters
    return {name: value for name, value in options.items() if name in known}


class _ThreadLink(Link):
    """A connection that a thread reads."""

    def __init__(self, server: str, guard: Any, pool: Any) -> None:
        super().__init__(server, guard)
        self._pool = pool
        self._sending = threading.RLock()
        self._connection = pool.get_connection(*POOL_WORDS)
        self._options = read_options(self._connection)
        try:
            threading.Thread(target=self._read, name="redis-lock-link", daemon=True).start()
        except BaseException:
            self._release()
            raise

    def post(self, words: Command, done: Done) -> None:
        with self._sending:
            if not self.is_open:
                done(NoAnswer(self.server, "the connection has ended"))
                return
            self._asked.append((now(), done))
            try:
                self._connection.send_command(*words, check_health=False)
            except Exception as error:
                self.end(of_redis(self.server, error))

    def disconnect(self) -> None:
        # The reader notices it, and gives the connection back.
        with contextlib.suppress(Exception):
            self._connection.disconnect()

    def _read(self) -> None:
        try:
            while self.is_open:
                if not self._connection.can_read(timeout=_LOOK) or not self.is_open:
                    continue
                try:
                    reply = self._connection.read_response(**self._options)
                except redis_errors.ResponseError as error:
                    reply = of_redis(self.server, error)
                self.received(reply)
        except Exception as error:
            self.end(of_redis(self.server, error))
        finally:
            self._release()

    def _release(self) -> None:
        with contextlib.suppress(Exception):
            self._connection.disconnect()
            self._pool.release(self._connection)


class ThreadHub(Hub):
    """The hub of a client whose calls block."""

    def __init__(self, client: Any, is_shared: bool = False) -> None:
        check_client(client, False)
        super().__init__(client, Statistics(), is_shared)
        self._renew_guard()
        _hubs.add(self)

    def _renew_guard(self) -> None:
        # Re-entrant: a signal handler or a destructor may use a lock while its thread is in here.
        self.guard = threading.Condition(threading.RLock())
        self._turns = threading.BoundedSemaphore(_AT_A_TIME)
        self._timer: Optional[threading.Thread] = None

    def new_event(self) -> threading.Event:
        return threading.Event()

    def tell(self, function: Callable[[LostReason], Any], reason: LostReason) -> None:
        # Not in the timer's thread: the function may take its time.
        threading.Thread(target=function, args=(reason,), name="redis-lock-lost", daemon=True).start()

    # Steps

    def run(self, steps: Generator[Any, Any, Any]) -> Any:
        """Runs steps in this thread, and returns their result."""
        user = object()
        try:
            self.users.add(user)
            effect = next(steps)
            while True:
                try:
                    result = self._perform(effect)
                except BaseException as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(result)
        except StopIteration as end:
            return end.value
        finally:
            self.users.discard(user)
            self.used = now()
            steps.close()

    def _perform(self, effect: Any) -> Any:
        if isinstance(effect, Call):
            return self._call(effect)
        if isinstance(effect, Batch):
            return self._batch(effect.calls)
        if isinstance(effect, Await):
            return effect.event.wait(effect.seconds)  # type: ignore[attr-defined]
        if isinstance(effect, Pause):
            return time.sleep(effect.seconds)
        if isinstance(effect, Ask):
            return self._ask(effect)
        try:
            if isinstance(effect, Place):
                return self._place(effect.key)
            if isinstance(effect, Open):
                return self._open(effect.key)
            assert isinstance(effect, Refresh)
            if self.is_cluster:
                self.client.nodes_manager.initialize()
        except BaseException as error:
            raise translated(self.name, error)  # noqa: B904 - it has its cause

    def _call(self, call: Call) -> Any:
        try:
            with contextlib.nullcontext() if self.is_cluster else self._turns:
                return self.client.execute_command(*call.words, **RAW)
        except BaseException as error:
            if is_of_provider(error) and not self.is_cluster:
                # redis-py keeps such a connection, which has not logged in.
                self.client.connection_pool.disconnect(inuse_connections=False)
            raise translated(self.name, error)  # noqa: B904 - it has its cause

    def _batch(self, calls: list[Call]) -> list[Any]:
        """A reply or an error for each."""
        try:
            if len(calls) == 1:
                return [self._call(calls[0])]
            pipeline = self.client.pipeline() if self.is_cluster else self.client.pipeline(transaction=False)
            for call in calls:
                pipeline.execute_command(*call.words)
            replies = pipeline.execute(raise_on_error=False)
        except BaseException as error:
            return [translated(self.name, error)] * len(calls)
        return [of_redis(self.name, one) if isinstance(one, Exception) else one for one in replies]

    def _ask(self, ask: Ask) -> Any:
        answered = threading.Event()
        replies: list[Any] = []

        def done(reply: Any) -> None:
            replies.append(reply)
            answered.set()

        ask.link.post(ask.words, done)
        if not answered.wait(self.patience):
            ask.link.end(NoAnswer(self.name))
        if isinstance(replies[0], Error):
            raise replies[0]
        return replies[0]

    def _place(self, key: bytes) -> Any:
        return self.client.get_node_from_key(key).name if self.is_cluster else None

    def _open(self, key: bytes) -> Link:
        client = self.client
        if self.is_cluster:
            client = client.get_redis_connection(client.get_node_from_key(key))
        link = _ThreadLink(self.name, self.guard, client.connection_pool)
        self.counts.connections += 1
        return link

    # The timer

    def begin(self) -> None:
        """The timer is needed.

        :raises RuntimeError: when no thread can be started.
        """
        self.check_open()
        if self._timer is None or not self._timer.is_alive():
            self.wake()

    def wake(self) -> None:
        with self.guard:
            if self._timer is None or not self._timer.is_alive():
                if self.is_closed:
                    return
                self._timer = threading.Thread(target=self._run_timer, name="redis-lock", daemon=True)
                self._timer.start()
            self.guard.notify_all()

    def wake_timer(self) -> None:
        with self.guard:
            self.guard.notify_all()

    def _run_timer(self) -> None:
        this = threading.current_thread()
        while True:
            with self.guard:
                if self._timer is not this:
                    return
                jobs, self.planned = self.tick(now())
                if not jobs:
                    if self.may_end:
                        self._timer = None
                        links, self.links = list(self.links.values()), {}
                        for link in links:
                            link.close()
                        return
                    self.guard.wait(max(0.0, self.planned - now()))
                    continue
            self._flush(jobs)

    def _flush(self, jobs: list[Job]) -> None:
        """Sends the commands of each node in a thread of its own, as a server may hang."""
        groups: dict[Any, list[Job]] = {}
        for job in jobs:
            node = None
            with contextlib.suppress(Exception):
                node = self._place(job.calls[0].key)
            groups.setdefault(node, []).append(job)
        for group in groups.values():
            for at in range(0, len(group), PIPELINE):
                part = group[at : at + PIPELINE]
                try:
                    threading.Thread(target=self._send, args=(part,), name="redis-lock-send", daemon=True).start()
                except RuntimeError:
                    # The interpreter ends, or the process has too many threads.
                    self._send(part)

    def _send(self, jobs: list[Job]) -> None:
        try:
            replies = self._batch([call for job in jobs for call in job.calls])
        except Exception as error:
            replies = [of_redis(self.name, error)] * sum(len(job.calls) for job in jobs)
        for job in jobs:
            self.done(job, replies[: len(job.calls)])
            replies = replies[len(job.calls) :]
        self.wake_timer()

    # The end

    def give_back(self, hold: Hold) -> None:
        self.abandon(hold)

    def settle(self, seconds: Optional[float], waits_for_users: bool = False) -> None:
        """Waits until the background releases have ended."""
        end = float("inf") if seconds is None else now() + seconds
        while (self.endings or (waits_for_users and self.users)) and now() < end:
            # sleep: polls, at most this late
            time.sleep(min(0.01, max(0.0, end - now())))

    def close(self) -> None:
        """Ends the waits, releases what is held, and closes everything. Called again after an interrupt, it goes on."""
        if not self.is_closed:
            self.begin_closing()
            self.settle(self.patience, waits_for_users=True)
        self.close_now()
        timer = self._timer
        self.wake_timer()
        if timer is not None and timer is not threading.current_thread():
            timer.join(1.0)

    def give_back_renewed(self) -> None:
        """The interpreter ends: releases what was renewed."""
        with self.guard:
            for hold in list(self.holds):
                if hold.renews:
                    self.abandon(hold)

    def forget(self) -> None:
        """In a forked child."""
        links = list(self.links.values()) + [hold.link for hold in [*self.holds, *self.lost_holds] if hold.link]
        self._renew_guard()
        for link in links:
            # Closes this process's copy of the socket; nothing is sent.
            link.disconnect()
        self.begin_anew()


_hubs: weakref.WeakSet[ThreadHub] = weakref.WeakSet()
_shared: weakref.WeakKeyDictionary[Any, ThreadHub] = weakref.WeakKeyDictionary()
_lock = threading.RLock()


def hub_of(client: Any) -> ThreadHub:
    """The hub of a server object, or the shared one of a client."""
    hub = getattr(client, "_hub", None)
    if isinstance(hub, ThreadHub):
        return hub
    check_client(client, False)
    with _lock:
        found = _shared.get(client)
        if found is None:
            found = _shared[client] = ThreadHub(client, is_shared=True)
            weakref.finalize(client, found.retire).atexit = False
    return found


def _begin_anew() -> None:
    global _lock
    _lock = threading.RLock()
    for hub in list(_hubs):
        hub.forget()


def _at_exit() -> None:
    hubs = [hub for hub in list(_hubs) if hub.holds or hub.endings]
    for hub in hubs:
        hub.give_back_renewed()
    end = now() + _AT_EXIT
    for hub in hubs:
        hub.settle(max(0.0, end - now()))


os.register_at_fork(after_in_child=_begin_anew)
atexit.register(_at_exit)
