"""The event loop of the synchronous interface, in a daemon thread.

The thread starts with the first use. It ends when no engine is left: after ``Server.close()``, or when nothing has
been held, waited for or sent for half a minute. The next use starts another one. At the end of the interpreter it has
a moment to send releases. A forked process begins anew: it closes its copies of the sockets, and knows nothing of what
its parent holds.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Coroutine
from typing import Any, Callable, Generic, Optional, TypeVar, cast

from ._engine.engine import Engine
from ._engine.hold import Hold, OnLost
from ._engine.source import Source, check_client, is_asyncio_client, source_of
from ._engine.terms import RESPONSE_TIMEOUT, Terms
from ._workers import Workers
from .errors import Closed, ConfigError
from .statistics import Statistics

T = TypeVar("T")
Work = Callable[[Engine], Coroutine[Any, Any, T]]

#: When the end of an unused thread is tried again.
_LATER = 0.01
#: How long the end of the interpreter waits for releases.
_AT_EXIT = 0.5


class Home:
    """The engine of one server, which exists while it is used."""

    def __init__(self, source: Source, patience: float, parks: bool) -> None:
        self.source = source
        self.patience = patience
        self.parks = parks
        self.counts = Statistics()
        self.is_closed = False
        #: Used by the thread of the loop only.
        self.engine: Optional[Engine] = None

    def call(self, work: Work[T]) -> T:
        """Runs a coroutine with the engine and returns its result. An exception in this thread (``KeyboardInterrupt``)
        cancels it."""
        self.check_open()
        return _portal.call(self, work)

    def check_open(self) -> None:
        """Raises :class:`Closed` when the server object was closed."""
        if self.is_closed:
            raise Closed("the server object is closed")

    def close(self) -> None:
        """Closes the engine, and waits for that. Called again after an interrupt, it goes on."""
        self.is_closed = True
        try:
            _portal.close(self)
        except BaseException:
            self.retire()
            raise

    def retire(self) -> None:
        """Closes the engine when nothing is held or waited for any more. Does not wait; called by any thread."""
        _portal.post(self._retire)

    def _retire(self) -> None:
        if self.engine is not None:
            self.engine.retire()

    def post(self, function: Callable[[], object]) -> None:
        """Calls a function in the thread of the loop, if there is one, and does not wait."""
        _portal.post(function)

    def engine_here(self) -> Engine:
        """The engine, in the thread of the loop.

        :raises Closed: when the server object was closed, and its engine too.
        """
        if self.engine is None or self.engine.is_closed:
            # The call may have begun before the end.
            self.check_open()
            self.engine = Engine(self.source, self.patience, self.parks, self.counts, self._ended)
            _portal.begun(self)
        return self.engine

    def _ended(self) -> None:
        self.engine = None
        _portal.ended(self)


class Delivery:
    """The hold of an acquisition on its way to its object. A signal handler may raise at any moment in the thread that
    acquires; what has not arrived then is given back."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._parcel = _Parcel()
        # Also if the handler raises again, before `fail` is called.
        self._dropped = weakref.finalize(self, home.post, self._parcel.give_back)
        self._dropped.atexit = False

    def acquire(self, engine: Engine, terms: Terms, wait: Optional[float], on_lost: Optional[OnLost]) -> Any:
        """Acquires as :meth:`Engine.acquire` does."""
        return self._parcel.fill(engine.acquire(terms, wait, on_lost))

    def end(self) -> None:
        """The hold has arrived, or there is none."""
        self._dropped.detach()

    def fail(self) -> None:
        """Gives the hold back, also one that is still to come."""
        self._home.post(self._parcel.give_back)
        self._dropped.detach()


class _Parcel:
    """Used in the thread of the loop."""

    def __init__(self) -> None:
        self._hold: Optional[Hold] = None
        self._is_returned = False

    async def fill(self, work: Coroutine[Any, Any, Optional[Hold]]) -> Optional[Hold]:
        self._hold = await work
        if self._is_returned:
            self.give_back()
        return self._hold

    def give_back(self) -> None:
        self._is_returned = True
        if self._hold is not None:
            self._hold.give_back()


class _Call(Generic[T]):
    """A coroutine that runs in the loop for a thread that waits.

    It is driven without a task: its first step runs in the callback that starts it, and its last one wakes the thread,
    which saves two of five iterations of the loop.
    """

    def __init__(self, home: Home, work: Work[T]) -> None:
        self._home = home
        self._work = work
        self._steps: Optional[Coroutine[Any, Any, T]] = None
        #: What the coroutine waits for.
        self._awaited: Optional[asyncio.Future[Any]] = None
        self._result: Optional[T] = None
        self._error: Optional[BaseException] = None
        self._is_done = False
        self._is_abandoned = False
        # A lock as a one-shot event: cheaper than `threading.Event`, and signals interrupt the wait.
        self._done = threading.Lock()
        self._done.acquire()

    def start(self) -> None:
        """Starts the coroutine, in the thread of the loop."""
        if self._is_abandoned:
            return
        try:
            self._steps = self._work(self._home.engine_here())
        except BaseException as error:
            self._finish(None, error)
        else:
            self._step(None)

    def _step(self, awaited: Optional[asyncio.Future[Any]]) -> None:
        """Runs the coroutine until it waits again, or has ended."""
        if self._steps is None or self._is_done:
            return
        self._awaited = None
        try:
            # The result or the error of the future is read by the coroutine.
            following = self._steps.send(None)
        except StopIteration as end:
            self._finish(end.value, None)
        except BaseException as error:
            self._finish(None, error)
        else:
            if following is None:
                asyncio.get_running_loop().call_soon(self._step, None)
                return
            self._awaited = following
            following.add_done_callback(self._step)
            if self._is_abandoned:
                following.cancel()

    def _finish(self, result: Optional[T], error: Optional[BaseException]) -> None:
        self._result, self._error, self._is_done = result, error, True
        if self._is_abandoned:
            self._discard()
        self._done.release()

    def _discard(self) -> None:
        """Releases a grant whose caller has given up."""
        give_back = getattr(self._result, "give_back", None)
        if give_back is not None:
            give_back()

    def wait(self) -> T:
        """Waits for the result."""
        self._done.acquire()
        error, self._error = self._error, None
        if isinstance(error, asyncio.CancelledError):
            raise Closed("the server object was closed during the call")
        if error is not None:
            raise error
        return cast(T, self._result)

    def abandon(self) -> None:
        """Cancels the coroutine, in the thread of the loop; a result that it has already is discarded."""
        if self._is_abandoned:
            return
        self._is_abandoned = True
        if self._is_done:
            self._discard()
        elif self._awaited is not None:
            self._awaited.cancel()


class _Portal:
    """The thread, its loop, and the engines in it."""

    def __init__(self) -> None:
        # A signal handler or a destructor may use a lock while its thread is in here. So this one is re-entrant, and
        # the thread of the loop, which the handler waits for, does not wait for it.
        self._lock = threading.RLock()
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._thread: Optional[threading.Thread] = None
        #: Calls that wait. Weak, in case a signal handler raises before one is removed.
        self._calls: weakref.WeakSet[_Call[Any]] = weakref.WeakSet()
        #: Changed by the thread of the loop only.
        self._homes: set[Home] = set()

    def call(self, home: Home, work: Work[T]) -> T:
        if threading.current_thread() is self._thread:
            raise RuntimeError("a method that waits was called in the thread of the event loop")
        if sys.is_finalizing():
            # A destructor runs, and the thread does not any more.
            raise Closed("the interpreter ends")
        call = _Call(home, work)
        with self._lock:
            loop = self._loop or self._start()
            self._calls.add(call)
        try:
            loop.call_soon_threadsafe(call.start)
            return call.wait()
        except BaseException:
            loop.call_soon_threadsafe(call.abandon)
            raise
        finally:
            with self._lock:
                self._calls.discard(call)
                if not self._calls and not self._homes:
                    loop.call_soon_threadsafe(self._stop_if_unused, loop)

    def close(self, home: Home) -> None:
        """Closes the engine of a home, and the thread with the last one."""
        with self._lock:
            if self._loop is None:
                return
            thread = self._thread
        with contextlib.suppress(Closed):
            self.call(home, lambda engine: engine.close())
        with self._lock:
            is_last = not self._homes and not self._calls
        if is_last and thread is not None and thread is not threading.current_thread():
            thread.join(1.0)

    def post(self, function: Callable[[], object]) -> None:
        loop = self._loop
        if loop is not None:
            # The loop may end at this moment, and everything in it.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(function)

    def begun(self, home: Home) -> None:
        self._homes.add(home)

    def ended(self, home: Home) -> None:
        self._homes.discard(home)
        loop = self._loop
        if loop is not None:
            loop.call_soon(self._stop_if_unused, loop)

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        loop.set_default_executor(Workers())
        thread = threading.Thread(target=_run, args=(loop,), name="redis-lock", daemon=True)
        try:
            thread.start()
            self._loop, self._thread = loop, thread
        except BaseException as error:
            self._loop = self._thread = None
            if isinstance(error, RuntimeError) and thread.ident is None:
                # The interpreter ends, or the process has too many threads.
                loop.close()
            else:
                # A signal handler has raised, and the thread may run.
                loop.call_soon_threadsafe(loop.stop)
            raise
        return loop

    def _stop_if_unused(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._lock.acquire(blocking=False):
            loop.call_later(_LATER, self._stop_if_unused, loop)
            return
        try:
            if self._loop is loop and not self._calls and not self._homes:
                self._loop = None
                self._thread = None
                loop.stop()
        finally:
            self._lock.release()

    def at_exit(self) -> None:
        """Sends what is still to be released, within a moment."""
        loop, homes = self._loop, list(self._homes)
        if loop is None or not homes:
            return

        async def end() -> None:
            engines = [home.engine for home in homes if home.engine is not None]
            await asyncio.wait([asyncio.ensure_future(engine.end_of_loop()) for engine in engines], timeout=_AT_EXIT)

        with contextlib.suppress(Exception):
            asyncio.run_coroutine_threadsafe(end(), loop).result(_AT_EXIT * 2)

    def forget_sockets(self) -> None:
        """Closes this process's copies of the sockets, in a forked child. Nothing is sent, and the loop's own objects
        are kept for ever, because their destructors would change what the parent waits for."""
        for home in self._homes:
            if home.engine is not None:
                home.engine.dialer.forget_sockets()
                _inherited.append(home.engine)
            home.engine = None
            home.counts = home.counts.inherited()
        _inherited.append((self._loop, self._thread))


def _run(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        if pending:
            loop.run_until_complete(asyncio.wait(pending, timeout=0.5))
        # Transports that were aborted close their sockets in the next iteration.
        loop.run_until_complete(asyncio.sleep(0))
    finally:
        loop.close()


_portal = _Portal()
_inherited: list[Any] = []
_homes: weakref.WeakKeyDictionary[Any, Home] = weakref.WeakKeyDictionary()
_homes_lock = threading.RLock()


def home_of(client: Any) -> Home:
    """The engine of a server object, or the shared one of a client, which closes when the client is collected and
    nothing is held any more."""
    home = getattr(client, "_home", None)
    if isinstance(home, Home):
        return home
    check_client(client)
    with _homes_lock:
        found = _homes.get(client)
        if found is None:
            found = _homes[client] = Home(sync_source_of(client), RESPONSE_TIMEOUT, False)
            weakref.finalize(client, found.retire).atexit = False
    return found


def sync_source_of(client: Any) -> Source:
    """The source of a synchronous client."""
    if is_asyncio_client(client):
        raise ConfigError("this client is asynchronous: use redis_lock_client.asyncio")
    return source_of(client)


def _begin_anew() -> None:
    global _portal, _homes_lock
    _homes_lock = threading.RLock()
    old, _portal = _portal, _Portal()
    old.forget_sockets()


os.register_at_fork(after_in_child=_begin_anew)
atexit.register(lambda: _portal.at_exit())
