"""asyncio: one hub for each client (or server object) and event loop, in that loop.

Commands that are sent while another one is under way go together in one pipeline, so that any number of tasks uses one
connection. When the loop ends (``asyncio.run``), the hub has a moment to send releases.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import inspect
import math
import os
import sys
import weakref
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, Callable, Optional

import redis
from redis import exceptions as redis_errors

from .._client import is_cluster, name_of, translating
from .._hold import Hold, now
from .._hub import HUBS, PIPELINE, Hub
from .._link import Done, Link, read_options
from .._terms import Command
from ..errors import Closed, NoAnswer, of_redis
from ..observer import Observer
from ..statistics import Statistics

#: How long the end of an event loop waits for releases, and that of a hub for its tasks.
_LAST_RELEASES, _LAST_TURNS = 1.0, 0.2


async def waited(event: asyncio.Event, seconds: Optional[float]) -> None:
    """Waits until an event is set, at most this many seconds. (`asyncio.wait_for` may swallow a cancellation before
    Python 3.12.)"""
    if seconds is None:
        await event.wait()
        return
    waiting = asyncio.ensure_future(event.wait())
    try:
        await asyncio.wait({waiting}, timeout=seconds)
    finally:
        waiting.cancel()


class _TaskLink(Link):
    """A connection that a task reads."""

    def __init__(self, hub: TaskHub, connection: Any) -> None:
        super().__init__(hub.name, hub.guard)
        self._hub = hub
        self._connection = connection
        self._sending = asyncio.Lock()
        self._reader = hub.start(self._read())

    def forget(self) -> None:
        """As for threads; nothing of the loop is closed, which is the parent's too."""
        writer: Any = getattr(self._connection, "_writer", None)
        if self.is_open and writer is not None:
            with contextlib.suppress(OSError):
                os.close(writer.get_extra_info("socket").fileno())

    def post(self, words: Command, done: Done) -> None:
        self._hub.start(self._post(words, done))

    async def _post(self, words: Command, done: Done) -> None:
        async with self._sending:
            if not self.is_open:
                done(NoAnswer(self.server, "the connection has ended"))
                return
            self._asked.append((now(), done))
            try:
                await self._connection.send_command(*words, check_health=False)
            except Exception as error:
                self.end(of_redis(self.server, error))

    def disconnect(self) -> None:
        # The reader closes it.
        self._reader.cancel()

    async def _read(self) -> None:
        options = {**read_options(self._connection), "timeout": math.inf}
        try:
            while self.is_open:
                try:
                    self.received(await self._connection.read_response(**options))
                except redis_errors.ResponseError as error:
                    self.received(of_redis(self.server, error))
        except Exception as error:
            self.end(of_redis(self.server, error))
        finally:
            self.end(NoAnswer(self.server, "the connection was closed"))
            with contextlib.suppress(Exception):
                await self._connection.disconnect(nowait=True)


class TaskHub(Hub):
    """The hub of a client whose calls are awaited, in the running loop."""

    is_asyncio = True
    new_event, wait, sleep = staticmethod(asyncio.Event), staticmethod(waited), staticmethod(asyncio.sleep)

    def __init__(self, client: Any, counts: Statistics, is_shared: bool) -> None:
        super().__init__(client, counts, is_shared)
        self.loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timer: Optional[asyncio.TimerHandle] = None
        #: By node: the commands that wait for the one under way.
        self._lanes: dict[Any, list[tuple[Command, asyncio.Future[Any]]]] = {}
        # The end of the event loop (`asyncio.run`) finalizes its asynchronous generators.
        self._farewell = _farewell(weakref.ref(self))
        _advance(self._farewell.__anext__())

    @property
    def is_gone(self) -> bool:
        if self.is_closed or self.loop.is_closed():
            return True
        if self.loop is not asyncio.get_running_loop():
            raise RuntimeError("the lock was acquired in another event loop")
        return False

    async def of_client(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        # It raises for a cancellation that `asyncio.wait_for` has swallowed in redis-py.
        if sys.version_info >= (3, 11):
            task: Any = asyncio.current_task()
            before = task.cancelling()
            try:
                result = await function(*args, **kwargs)
            except Exception:
                if task.cancelling() <= before:
                    raise
            else:
                if task.cancelling() <= before:
                    return result
            # anyio knows its own cancellations by their message.
            raise asyncio.CancelledError(getattr(task, "_cancel_message", None))
        # Nothing tells of it, so redis-py runs in another task than the one that may be cancelled.
        doing = self.start(function(*args, **kwargs))
        try:
            await asyncio.wait({doing})
        except asyncio.CancelledError:
            doing.cancel()
            raise
        return doing.result()

    async def call(self, words: Command, key: bytes) -> Any:
        node = (await self.node(key))[0] if self.is_cluster else None
        lane = self._lanes.get(node)
        if lane is None:
            lane = self._lanes[node] = []
            try:
                return await super().call(words, key)
            finally:
                if lane and not self.loop.is_closed():
                    self.start(self._send_waiting(node))
                else:
                    del self._lanes[node]
        entry = (words, self.loop.create_future())
        lane.append(entry)
        try:
            return await entry[1]
        finally:
            if entry[1].cancelled():
                with contextlib.suppress(ValueError):
                    lane.remove(entry)

    async def _send_waiting(self, node: Any) -> None:
        """Sends the commands that have gathered, until there are none."""
        lane, sent = self._lanes[node], []
        try:
            while lane:
                sent, lane[:] = lane[:PIPELINE], lane[PIPELINE:]
                try:
                    replies = await self.pipeline([words for words, _ in sent])
                except Exception as error:
                    # One that is not redis-py's: of a class of the program.
                    replies = [error] * len(sent)
                for (_, future), reply in zip(sent, replies):
                    if future.done():
                        continue
                    if isinstance(reply, Exception):
                        future.set_exception(reply)
                    else:
                        future.set_result(reply)
                # The tasks that have their replies go first: their next commands belong to the next pipeline.
                await asyncio.sleep(0)
        finally:
            del self._lanes[node]
            for _, future in sent + lane:
                # This task was cancelled, and not those that wait for it.
                if not future.done() and not self.loop.is_closed():
                    future.set_exception(NoAnswer(self.name))

    async def open(self, key: bytes) -> Link:
        with translating(self.name):
            _, node = await self.node(key)
            maker = node if self.is_cluster else node.connection_pool
            connection = maker.connection_class(**maker.connection_kwargs)
            try:
                await self.of_client(connection.connect)
                self.check_open()
            except BaseException:
                await connection.disconnect(nowait=True)
                raise
        self.counts.connections += 1
        return _TaskLink(self, connection)

    # The background

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        # A loop keeps no task by itself.
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def tell(self, function: Callable[..., Any], *words: Any) -> None:
        self.loop.call_soon(self._tell, function, *words)

    def _tell(self, function: Callable[..., Any], *words: Any) -> None:
        told = function(*words)
        # Also that of a lambda, a partial or an object, which are no coroutine functions themselves.
        if inspect.isawaitable(told):
            self.start(_awaited(told))

    def post(self, function: Callable[..., object], *words: Any) -> None:
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(function, *words)

    def wake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.is_closed and not self.loop.is_closed():
            self.planned = now()
            self._timer = self.loop.call_later(0, self._look)

    def _look(self) -> None:
        jobs = self.tick(now())
        if jobs:
            self.start(self.flush(jobs))
        if self._may_end():
            self._timer = None
        else:
            self._timer = self.loop.call_later(max(0.0, self.planned - now()), self._look)

    # The end

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            self.close_now()
        tasks = self._tasks - {asyncio.current_task()}
        if tasks:
            await asyncio.wait(tasks, timeout=_LAST_TURNS)
        await asyncio.sleep(0)

    def close_now(self) -> None:
        super().close_now()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for task in list(self._tasks):
            if task is not asyncio.current_task():
                task.cancel()
        if not getattr(self._farewell, "ag_running", False):
            _advance(self._farewell.aclose())

    async def end_of_loop(self) -> None:
        """The event loop ends, and has cancelled the tasks: releases the holds that were renewed."""
        if self.is_closed:
            return
        self.give_back_renewed()
        jobs = [job for job in (ending.again() for ending in list(self.endings)) if job is not None]
        if jobs:
            with contextlib.suppress(asyncio.TimeoutError, Exception):
                await asyncio.wait(await self.flush(jobs), timeout=_LAST_RELEASES)
        # Its connections end with the loop; so the client can be used in the next one.
        pool = getattr(self._client(), "connection_pool", None)
        if pool is not None:
            with contextlib.suppress(Exception):
                await pool.disconnect()
        self.close_now()
        await asyncio.sleep(0)

    def end_of_program(self) -> None:
        """The interpreter ends, and the event loop was left without its last step, as `asyncio.run` does when a task
        that another one awaits raises SystemExit: releases by connections that block what was renewed."""
        if self.is_closed or self.loop.is_running():
            return
        if sys.version_info < (3, 10):
            # For the events.
            asyncio.set_event_loop(self.loop)
        user: Any
        for user in list(self.users):
            if isinstance(user, Hold):
                # Its release may be under way.
                user.is_unanswered = True
                self.abandon(user)
            else:
                user.give_up()
        self.give_back_renewed()
        jobs = [job for job in (ending.again() for ending in list(self.endings)) if job is not None]
        end = now() + _LAST_RELEASES
        clients: dict[Any, Any] = {}
        for command in [command for job in jobs for command in job.commands]:
            maker = self.client.get_node_from_key(command[1]) if self.is_cluster else self.client.connection_pool
            if maker not in clients:
                clients[maker] = _blocking_client(maker, max(0.1, end - now()))
            with contextlib.suppress(redis_errors.ResponseError):
                clients[maker].execute_command(*command)
            if now() >= end:
                break


#: The options of a connection that are those of a blocking one, too.
_COMMON = {"host", "port", "path", "db", "username", "password", "credential_provider", "protocol"}


def _blocking_client(maker: Any, timeout: float) -> Any:
    """A client of the server of a pool or node of asyncio, without asyncio, which looks up no name when the interpreter
    ends. (Not of the primary of sentinels.)"""
    # A class of the program is one of redis-py's further up.
    names = (base.__name__ for base in maker.connection_class.__mro__)
    kind = getattr(redis.connection, next(name for name in names if hasattr(redis.connection, name)))
    known = {key: value for key, value in maker.connection_kwargs.items() if key in _COMMON or key.startswith("ssl_")}
    return redis.Redis(
        connection_pool=redis.ConnectionPool(kind, **known, socket_timeout=timeout, socket_connect_timeout=timeout)
    )


def _at_exit() -> None:
    for hubs in list(HUBS):
        if isinstance(hubs, Hubs):
            for hub in hubs.all():
                # Best effort: the server ends what is left with its lease.
                with contextlib.suppress(Exception):
                    hub.end_of_program()


atexit.register(_at_exit)


async def _awaited(told: Any) -> None:
    await told


async def _farewell(hub_ref: weakref.ref[TaskHub]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        hub = hub_ref()
        if hub is not None:
            await hub.end_of_loop()


def _advance(step: Any) -> None:
    """Runs a step of an asynchronous generator that awaits nothing."""
    with contextlib.suppress(StopIteration, StopAsyncIteration, RuntimeError):
        step.send(None)


class Hubs:
    """The hubs of one client, or of one server object."""

    is_asyncio = True
    observer: Optional[Observer] = None

    def __init__(self, client: Any, is_shared: bool) -> None:
        self.counts = Statistics()
        self.is_cluster = is_cluster(client)
        self.name = name_of(client)
        self.is_closed = False
        self._client = weakref.ref(client)
        self._kept = None if is_shared else client
        self._is_shared = is_shared
        #: Changed by the threads of several loops, each time by one operation of the dictionary.
        self._hubs: dict[asyncio.AbstractEventLoop, TaskHub] = {}
        HUBS.add(self)

    def here(self) -> TaskHub:
        """The hub of the running loop."""
        if self.is_closed:
            raise Closed("the server object is closed")
        loop = asyncio.get_running_loop()
        hub = self._hubs.get(loop)
        if hub is None or hub.is_closed:
            for one in list(self._hubs):
                # Also of loops that were closed without their last step.
                if one.is_closed() or self._hubs[one].is_closed:
                    self._hubs.pop(one, None)
            hub = self._hubs[loop] = TaskHub(self._client(), self.counts, self._is_shared)
            hub.observer = self.observer
        return hub

    def all(self) -> list[TaskHub]:
        """The hubs of all loops."""
        return list(self._hubs.values())

    async def close(self) -> None:
        """Closes the hub of the running loop; no other can be used any more."""
        self.is_closed = True
        hub = self._hubs.pop(asyncio.get_running_loop(), None)
        try:
            if hub is not None:
                await hub.close()
        finally:
            self.retire()

    def retire(self) -> None:
        """The hubs end when nothing is held or waited for any more. Called by any thread."""
        for hub in self.all():
            hub.post(hub.retire)

    def forget(self) -> None:
        """In a forked child."""
        for hub in self.all():
            hub.forget()
            # Its destructors would change what the parent waits for.
            _inherited.append(hub)
        self._hubs.clear()


_inherited: list[TaskHub] = []
