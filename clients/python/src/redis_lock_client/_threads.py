"""Threads: commands in the thread that calls, a timer thread for each client, and a thread for each connection that is
read all the time.

The timer thread starts with the first acquisition, and ends after ``Server.close()``, or when nothing has been held or
waited for for half a minute. At the end of the interpreter it has a moment to send releases. A forked process begins
anew: it closes its copies of the connections, and knows nothing of what its parent holds.
"""

from __future__ import annotations

import atexit
import contextlib
import inspect
import threading
import time
import weakref
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar, cast

from redis import exceptions as redis_errors

from ._client import translated
from ._hold import now
from ._hub import HUBS, Hub
from ._link import Done, Link, read_options
from ._terms import Command
from .errors import Error, NoAnswer, of_redis
from .statistics import Statistics

if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    P = ParamSpec("P")

S = TypeVar("S")
R = TypeVar("R")

#: How long the end of the interpreter waits for releases.
_AT_EXIT = 0.5
#: How often a reader looks whether its connection was closed.
_LOOK = 2.0
#: The commands at a time of one client, if its pool has as many connections (not of a cluster, of which one node may
#: hang). Others wait, so that many threads do not use up the client's pool.
_AT_A_TIME = 16


def run(work: Coroutine[Any, Any, Any]) -> Any:
    """Runs a coroutine in this thread. With a :class:`ThreadHub` it blocks, and never pauses."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("a coroutine for threads has paused")


def blocking(step: Callable[Concatenate[S, P], Coroutine[Any, Any, R]]) -> Callable[Concatenate[S, P], R]:
    """The method for threads of a method that is a coroutine."""

    def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return cast("R", run(step(self, *args, **kwargs)))

    method.__name__ = step.__name__.lstrip("_")
    method.__doc__ = step.__doc__
    method.__signature__ = inspect.signature(step)  # type: ignore[attr-defined]
    return method


class _ThreadLink(Link):
    """A connection that a thread reads."""

    def __init__(self, server: str, guard: Any, connection: Any) -> None:
        super().__init__(server, guard)
        self._connection = connection
        self._options = read_options(connection)

    def begin(self) -> None:
        """Connects, and reads from here on."""
        self._connection.connect()
        threading.Thread(target=self._read, name="redis-lock-link", daemon=True).start()

    def post(self, words: Command, done: Done) -> None:
        try:
            with self._guard:
                if self.is_open:
                    self._asked.append((now(), done))
                    self._connection.send_command(*words, check_health=False)
                    return
        except BaseException as error:
            # A part may be sent.
            ended: Error = NoAnswer(self.server, "the connection has ended")
            try:
                ended = translated(self.server, error)
            finally:
                self.end(ended)
            return
        done(NoAnswer(self.server, "the connection has ended"))

    def disconnect(self) -> None:
        # The reader notices it.
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
            self.disconnect()


class _Turn:
    """The turn of a command, or its place in the line."""

    event: Optional[threading.Event] = None
    ref: Any = None


class _Turns:
    """The commands under way and those that wait, in their order: the first ones have their turns. A turn that is lost
    in an interrupt ends when it is collected. Without a lock, because a signal handler may use a lock while its thread
    is in here."""

    def __init__(self, count: int) -> None:
        self._count = count
        line: dict[weakref.ref[_Turn], None] = {}
        self.line = line
        self._lost: Callable[[Any], None] = lambda ref: line.pop(ref, None)

    def take(self, seconds: float) -> _Turn:
        """A turn, after at most this long."""
        turn = _Turn()
        turn.ref = weakref.ref(turn, self._lost)
        self.line[turn.ref] = None
        if len(self.line) > self._count:
            turn.event = threading.Event()
            # One may have ended before.
            if turn not in self._first():
                turn.event.wait(seconds)
        return turn

    def give(self, turn: _Turn) -> None:
        """The command has ended."""
        self.line.pop(turn.ref, None)
        # Nothing runs when it is collected: what a signal handler raises there would be lost.
        turn.ref = None
        if len(self.line) >= self._count:
            for one in self._first():
                if one is not None and one.event is not None:
                    one.event.set()

    def _first(self) -> list[Optional[_Turn]]:
        return [ref() for ref in list(self.line)[: self._count]]


class ThreadHub(Hub):
    """The hub of a client whose calls block."""

    new_event = staticmethod(threading.Event)

    def __init__(self, client: Any, is_shared: bool) -> None:
        pool: Any = getattr(client, "connection_pool", None)
        most = getattr(pool, "max_connections", _AT_A_TIME)
        if getattr(client, "connection", None) is not None:
            # A client of one connection: older redis-py does not guard it.
            most = 1
        self._at_a_time = max(1, min(_AT_A_TIME, most))
        super().__init__(client, Statistics(), is_shared)
        HUBS.add(self)

    def begin_anew(self) -> None:
        super().begin_anew()
        self._changed = threading.Condition(self.guard)
        self._turns = _Turns(self._at_a_time)
        self._timer: Optional[threading.Thread] = None

    def here(self) -> ThreadHub:
        """This one: the other kind has one for each event loop."""
        return self

    def all(self) -> list[ThreadHub]:
        """All of them."""
        return [self]

    async def wait(self, event: threading.Event, seconds: Optional[float]) -> None:
        event.wait(seconds)

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - it is run by `run`

    async def of_client(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        # Those of the parent are not those of a forked child.
        turn, turns = None, self._turns
        try:
            if not self.is_cluster:
                # After this time the others hang: one connection more does not matter.
                turn = turns.take(self.patience)
            return function(*args, **kwargs)
        finally:
            if turn is not None:
                turns.give(turn)

    async def open(self, key: bytes) -> Link:
        link = None
        try:
            _, node = await self.node(key)
            pool = node.connection_pool
            link = _ThreadLink(self.name, self.guard, pool.connection_class(**pool.connection_kwargs))
            link.begin()
            self.counts.connections += 1
            return link
        except BaseException as error:
            if link is not None:
                link.close()
            raise translated(self.name, error)  # noqa: B904 - it has its cause

    # The background

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            threading.Thread(target=run, args=(work,), name="redis-lock-send", daemon=True).start()
        except RuntimeError:
            # The interpreter ends, or the process has too many threads.
            run(work)

    def tell(self, function: Callable[..., Any], *words: Any) -> None:
        # Not in the timer's thread: the function may take its time.
        threading.Thread(target=function, args=words, name="redis-lock-lost", daemon=True).start()

    def post(self, function: Callable[..., object], *words: Any) -> None:
        function(*words)

    def wake(self) -> None:
        with self.guard:
            if self._timer is None:
                if self.is_closed:
                    return
                timer = threading.Thread(target=self._run_timer, name="redis-lock", daemon=True)
                timer.start()
                self._timer = timer
            self._changed.notify_all()

    def _run_timer(self) -> None:
        this = threading.current_thread()
        try:
            while True:
                with self.guard:
                    if self._timer is not this:
                        return
                    jobs = self.tick(now())
                    if not jobs:
                        if self._may_end():
                            self._timer = None
                            return
                        self._changed.wait(max(0.0, self.planned - now()))
                        continue
                run(self.flush(jobs))
        finally:
            if self._timer is this:
                self._timer = None

    # The end

    async def close(self) -> None:
        await super().close()
        timer = self._timer
        self.wake()
        if timer is not None and timer is not threading.current_thread():
            timer.join(1.0)


def _at_exit() -> None:
    hubs = [hub for hub in list(HUBS) if isinstance(hub, ThreadHub) and (hub.holds or hub.endings)]
    for hub in hubs:
        hub.give_back_renewed()
    end = now() + _AT_EXIT
    for hub in hubs:
        run(hub.settle(max(0.0, end - now())))


atexit.register(_at_exit)
