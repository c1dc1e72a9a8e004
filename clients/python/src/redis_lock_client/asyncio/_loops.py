"""The engines of the asyncio interface: one for each server and event loop, in that loop.

An engine starts with the first use and closes its connections when nothing has been held, waited for or sent for half a
minute. When the loop ends (``asyncio.run``), it has a moment to send releases.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import weakref
from typing import Any, Callable

from .._engine.engine import Engine
from .._engine.hold import Hold
from .._engine.source import Source, check_client, is_asyncio_client, source_of
from .._engine.terms import RESPONSE_TIMEOUT
from ..errors import Closed, ConfigError
from ..statistics import Statistics


class Home:
    """The engines of one server, which exist while they are used."""

    def __init__(self, source: Source, patience: float, parks: bool) -> None:
        self.source = source
        self.patience = patience
        self.parks = parks
        self.counts = Statistics()
        self.is_closed = False
        #: Changed by the threads of several loops, each time by one operation of the dictionary.
        self._engines: dict[asyncio.AbstractEventLoop, Engine] = {}
        _all.add(self)

    def engine(self) -> Engine:
        """The engine of the running loop."""
        if self.is_closed:
            raise Closed("the server object is closed")
        loop = asyncio.get_running_loop()
        engine = self._engines.get(loop)
        if engine is None or engine.is_closed:
            self._forget_ended()
            engine = Engine(self.source, self.patience, self.parks, self.counts, lambda: self._ended(loop))
            self._engines[loop] = engine
        return engine

    def _ended(self, loop: asyncio.AbstractEventLoop) -> None:
        self._engines.pop(loop, None)

    def _forget_ended(self) -> None:
        """Forgets the engines of loops that were closed without their last step (`shutdown_asyncgens`)."""
        for loop in list(self._engines):
            if loop.is_closed():
                self._ended(loop)

    async def close(self) -> None:
        """Closes the engine of the running loop; no other can be used any more. Called again after a cancellation, it
        goes on."""
        self.is_closed = True
        engine = self._engines.get(asyncio.get_running_loop())
        try:
            if engine is not None:
                await engine.close()
        finally:
            self.retire()

    def retire(self) -> None:
        """The engines close when nothing is held or waited for any more. Called by any thread."""
        for engine in list(self._engines.values()):
            post(engine, engine.retire)

    def forget_sockets(self) -> None:
        """Closes this process's copies of the sockets, in a forked child."""
        for engine in list(self._engines.values()):
            engine.dialer.forget_sockets()
            # Its destructors would change what the parent waits for.
            _inherited.append(engine)
        self._engines.clear()
        self.counts = self.counts.inherited()


def post(engine: Engine, function: Callable[[], object]) -> None:
    """Calls a function in the engine's loop, unless that has ended."""
    with contextlib.suppress(RuntimeError):
        engine.loop.call_soon_threadsafe(function)


def has_ended(hold: Hold) -> bool:
    """Whether the engine of a hold has ended, and with it the hold: closed, or its event loop was closed.

    :raises RuntimeError: when it belongs to another event loop, whose sockets this one must not use.
    """
    engine = hold.engine
    if engine.is_closed or engine.loop.is_closed():
        return True
    if engine.loop is not asyncio.get_running_loop():
        raise RuntimeError("the lock was acquired in another event loop")
    return False


_all: weakref.WeakSet[Home] = weakref.WeakSet()
_homes: weakref.WeakKeyDictionary[Any, Home] = weakref.WeakKeyDictionary()
_inherited: list[Engine] = []


def home_of(client: Any) -> Home:
    """The engines of a server object, or the shared ones of a client."""
    home = getattr(client, "_home", None)
    if isinstance(home, Home):
        return home
    check_client(client)
    found = _homes.get(client)
    if found is None:
        found = _homes[client] = Home(asyncio_source_of(client), RESPONSE_TIMEOUT, False)
        weakref.finalize(client, found.retire).atexit = False
    return found


def asyncio_source_of(client: Any) -> Source:
    """The source of an asynchronous client."""
    if not is_asyncio_client(client):
        raise ConfigError("a client of redis.asyncio is needed: redis.asyncio.Redis or redis.asyncio.RedisCluster")
    return source_of(client)


def _begin_anew() -> None:
    for home in list(_all):
        home.forget_sockets()


os.register_at_fork(after_in_child=_begin_anew)
