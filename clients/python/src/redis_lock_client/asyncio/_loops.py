"""The driver for asyncio: one hub for each client (or server object) and event loop, in that loop.

Commands that are sent while another one is under way go together in one pipeline, so that any number of tasks uses one
connection. When the loop ends (``asyncio.run``), the hub has a moment to send releases.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import weakref
from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import Any, Callable, Optional

from redis import exceptions as redis_errors
from redis.crc import key_slot

from .._effects import Ask, Await, Batch, Call, Open, Pause, Place, Refresh
from .._hold import Hold, now
from .._hub import Hub, Job
from .._link import Done, Link
from .._terms import Command
from .._threads import PIPELINE, POOL_WORDS, RAW, check_client, is_of_provider, read_options, translated
from ..errors import Closed, Error, NoAnswer, of_redis
from ..outcome import LostReason
from ..statistics import Statistics

#: How long the end of an event loop waits for releases, and that of a hub for its tasks.
_LAST_RELEASES, _LAST_TURNS = 1.0, 0.2
#: How long a reader waits for a reply at a time.
_LONG = 86_400.0


class _TaskLink(Link):
    """A connection that a task reads."""

    def __init__(self, hub: TaskHub, connection: Any, pool: Any) -> None:
        super().__init__(hub.name, hub.guard)
        self._hub = hub
        self._connection = connection
        self._pool = pool
        self._sending = asyncio.Lock()
        self._reader = hub.spawn(self._read())

    def forget(self) -> None:
        """In a forked child: closes its copy of the socket, and nothing of the loop, which is the parent's too."""
        writer: Any = getattr(self._connection, "_writer", None)
        if self.is_open and writer is not None:
            with contextlib.suppress(OSError):
                os.close(writer.get_extra_info("socket").fileno())

    def post(self, words: Command, done: Done) -> None:
        self._hub.spawn(self._send(words, done))

    async def _send(self, words: Command, done: Done) -> None:
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
        # The reader gives the connection back.
        self._reader.cancel()

    async def _read(self) -> None:
        options = {**read_options(self._connection), "timeout": _LONG}
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
            await give_back(self._connection, self._pool)


async def give_back(connection: Any, pool: Any) -> None:
    """Closes a connection, and gives it back to its pool."""
    with contextlib.suppress(Exception):
        await connection.disconnect(nowait=True)
        if pool is not None:
            await pool.release(connection)


class TaskHub(Hub):
    """The hub of a client whose calls are awaited, in the running loop."""

    def __init__(self, client: Any, counts: Statistics, is_shared: bool, on_end: Callable[[TaskHub], Any]) -> None:
        super().__init__(client, counts, is_shared)
        self._on_end = on_end
        self.loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._timer: Optional[asyncio.TimerHandle] = None
        #: By node: the calls that wait for the one under way.
        self._lanes: dict[Any, list[tuple[Call, asyncio.Future[Any]]]] = {}
        # The end of the event loop (`asyncio.run`) finalizes its asynchronous generators.
        self._farewell = _farewell(weakref.ref(self))
        _advance(self._farewell.__anext__())

    def new_event(self) -> asyncio.Event:
        return asyncio.Event()

    def tell(self, function: Callable[[LostReason], Any], reason: LostReason) -> None:
        self.loop.call_soon(self._tell, function, reason)

    def _tell(self, function: Callable[[LostReason], Any], reason: LostReason) -> None:
        told = function(reason)
        # Also that of a lambda, a partial or an object, which are no coroutine functions themselves.
        if inspect.isawaitable(told):
            self.spawn(_awaited(told))

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Starts a task; a loop keeps none by itself."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # Steps

    async def run(self, steps: Generator[Any, Any, Any]) -> Any:
        """Runs steps in this task, and returns their result."""
        user = object()
        self.users.add(user)
        try:
            effect = next(steps)
            while True:
                try:
                    result = await self._perform(effect)
                except BaseException as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(result)
        except StopIteration as end:
            return end.value
        finally:
            self.users.discard(user)
            self.used = now()

    async def _perform(self, effect: Any) -> Any:
        if isinstance(effect, Call):
            return await self._call(effect)
        if isinstance(effect, Batch):
            if len(effect.calls) > 1:
                return await self._batch(effect.calls)
            try:
                return [await self._call(effect.calls[0])]
            except Error as error:
                return [error]
        if isinstance(effect, Await):
            if effect.seconds is None:
                return await effect.event.wait()  # type: ignore[attr-defined]
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(effect.event.wait(), effect.seconds)  # type: ignore[attr-defined]
            return None
        if isinstance(effect, Pause):
            return await asyncio.sleep(effect.seconds)
        if isinstance(effect, Ask):
            return await self._ask(effect)
        try:
            if isinstance(effect, Place):
                return await self._place(effect.key)
            if isinstance(effect, Open):
                return await self._open(effect.key)
            assert isinstance(effect, Refresh)
            if self.is_cluster:
                await self.client.nodes_manager.initialize()
        except Exception as error:
            raise translated(self.name, error)  # noqa: B904 - it has its cause

    async def _call(self, call: Call) -> Any:
        node = await self._place(call.key)
        waiting = self._lanes.get(node)
        if waiting is not None:
            future = self.loop.create_future()
            entry = (call, future)
            waiting.append(entry)
            try:
                return await future
            finally:
                if not future.done() or future.cancelled():
                    with contextlib.suppress(ValueError):
                        waiting.remove(entry)
        self._lanes[node] = []
        try:
            return await self._execute(call)
        finally:
            if self._lanes[node] and not self.loop.is_closed():
                self.spawn(self._send_waiting(node))
            else:
                del self._lanes[node]

    async def _execute(self, call: Call) -> Any:
        try:
            return await self.client.execute_command(*call.words, **RAW)
        except Exception as error:
            if is_of_provider(error) and not self.is_cluster:
                # redis-py keeps such a connection, which has not logged in.
                await self.client.connection_pool.disconnect(inuse_connections=False)
            raise translated(self.name, error)  # noqa: B904 - it has its cause

    async def _send_waiting(self, node: Any) -> None:
        """Sends the calls that have gathered, until there are none."""
        sent: list[tuple[Call, asyncio.Future[Any]]] = []
        try:
            while self._lanes[node]:
                sent, self._lanes[node][:] = self._lanes[node][:PIPELINE], self._lanes[node][PIPELINE:]
                replies = await self._batch([call for call, _ in sent])
                for (_, future), reply in zip(sent, replies):
                    if future.done():
                        continue
                    if isinstance(reply, Error):
                        future.set_exception(reply)
                    else:
                        future.set_result(reply)
        finally:
            for _, future in sent + self._lanes.pop(node):
                future.cancel()

    async def _batch(self, calls: list[Call]) -> list[Any]:
        """A reply or an error for each."""
        try:
            if len(calls) == 1:
                return [await self._execute(calls[0])]
            pipeline = self.client.pipeline() if self.is_cluster else self.client.pipeline(transaction=False)
            for call in calls:
                pipeline.execute_command(*call.words)
            replies = await pipeline.execute(raise_on_error=False)
        except Exception as error:
            return [translated(self.name, error)] * len(calls)
        return [of_redis(self.name, one) if isinstance(one, Exception) else one for one in replies]

    async def _ask(self, ask: Ask) -> Any:
        future = self.loop.create_future()
        ask.link.post(ask.words, lambda reply: None if future.done() else future.set_result(reply))
        try:
            reply = await asyncio.wait_for(asyncio.shield(future), self.patience)
        except asyncio.TimeoutError:
            ask.link.end(NoAnswer(self.name))
            raise NoAnswer(self.name) from None
        if isinstance(reply, Error):
            raise reply
        return reply

    async def _place(self, key: bytes) -> Any:
        if not self.is_cluster:
            return None
        try:
            await self.client.initialize()
            return self.client.get_node_from_key(key).name
        except Exception as error:
            raise translated(self.name, error)  # noqa: B904 - it has its cause

    async def _open(self, key: bytes) -> Link:
        pool = None
        if self.is_cluster:
            await self._place(key)
            node = self.client.get_node_from_key(key)
            connection = node.connection_class(**node.connection_kwargs)
            await connection.connect()
        else:
            pool = self.client.connection_pool
            connection = await pool.get_connection(*POOL_WORDS)
        if self.is_closed:
            await give_back(connection, pool)
            self.check_open()
        self.counts.connections += 1
        return _TaskLink(self, connection, pool)

    # The timer

    def begin(self) -> None:
        self.check_open()
        if self._timer is None:
            self.wake()

    def wake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.is_closed and not self.loop.is_closed():
            self.planned = now()
            self._timer = self.loop.call_later(0, self._look)

    wake_timer = wake

    def _look(self) -> None:
        jobs, self.planned = self.tick(now())
        if jobs:
            self.spawn(self._flush(jobs))
        if self.may_end:
            self._timer = None
            links, self.links = list(self.links.values()), {}
            for link in links:
                link.close()
            return
        self._timer = self.loop.call_later(max(0.0, self.planned - now()), self._look)

    async def _flush(self, jobs: list[Job]) -> None:
        """Sends the commands of each node by itself, as a server may hang."""
        groups: dict[Any, list[Job]] = {}
        for job in jobs:
            node = None
            with contextlib.suppress(Error):
                node = await self._place(job.calls[0].key)
            groups.setdefault(node, []).append(job)
        parts = [group[at : at + PIPELINE] for group in groups.values() for at in range(0, len(group), PIPELINE)]
        await asyncio.gather(*map(self._send, parts))

    async def _send(self, jobs: list[Job]) -> None:
        try:
            replies = await self._batch([call for job in jobs for call in job.calls])
        except Exception as error:
            replies = [of_redis(self.name, error)] * sum(len(job.calls) for job in jobs)
        except asyncio.CancelledError:
            for job in jobs:
                self.done(job, [NoAnswer(self.name)] * len(job.calls))
            raise
        for job in jobs:
            self.done(job, replies[: len(job.calls)])
            replies = replies[len(job.calls) :]
        self.wake()

    # The end

    def give_back(self, hold: Hold) -> None:
        post(self, self.abandon, hold)

    async def settle(self, seconds: Optional[float], waits_for_users: bool = False) -> None:
        """Waits until the background releases have ended."""
        end = float("inf") if seconds is None else now() + seconds
        while (self.endings or (waits_for_users and self.users)) and now() < end:
            # sleep: polls, at most this late
            await asyncio.sleep(min(0.01, max(0.0, end - now())))

    async def close(self) -> None:
        """Ends the waits, releases what is held, and closes everything. Called again after a cancellation, it goes
        on."""
        try:
            if not self.is_closed:
                self.begin_closing()
                await self.settle(self.patience, waits_for_users=True)
        finally:
            self.end_now()
        tasks = self._tasks - {asyncio.current_task()}
        if tasks:
            await asyncio.wait(tasks, timeout=_LAST_TURNS)
        await asyncio.sleep(0)

    def end_now(self) -> None:
        """Closes the connections at once."""
        self.close_now()
        self._on_end(self)
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
        for hold in list(self.holds):
            if hold.renews:
                self.abandon(hold)
        jobs = [job for job in (ending.again() for ending in list(self.endings)) if job is not None]
        if jobs:
            with contextlib.suppress(asyncio.TimeoutError, Exception):
                await asyncio.wait_for(self._flush(jobs), _LAST_RELEASES)
        # Its connections end with the loop; so the client can be used in the next one.
        pool = getattr(self._client(), "connection_pool", None)
        if pool is not None:
            with contextlib.suppress(Exception):
                await pool.disconnect()
        self.end_now()
        await asyncio.sleep(0)


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

    def __init__(self, client: Any, is_shared: bool) -> None:
        check_client(client, True)
        self.counts = Statistics()
        self.is_closed = False
        self._client = weakref.ref(client)
        self._kept = None if is_shared else client
        self._is_shared = is_shared
        #: Changed by the threads of several loops, each time by one operation of the dictionary.
        self._hubs: dict[asyncio.AbstractEventLoop, TaskHub] = {}
        _all.add(self)

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
            hub = self._hubs[loop] = TaskHub(self._client(), self.counts, self._is_shared, self._ended)
        return hub

    def _ended(self, hub: TaskHub) -> None:
        if self._hubs.get(hub.loop) is hub:
            del self._hubs[hub.loop]

    def all(self) -> list[TaskHub]:
        """The hubs of all loops."""
        return list(self._hubs.values())

    def check_slots(self, keys: tuple[bytes, ...]) -> bool:
        """Whether the keys are in one slot, where that counts."""
        return not hasattr(self._client(), "get_node_from_key") or len(set(map(key_slot, keys))) == 1

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
            post(hub, hub.retire)


def post(hub: TaskHub, function: Callable[..., object], *words: Any) -> None:
    """Calls a function in the hub's loop, unless that has ended."""
    with contextlib.suppress(RuntimeError):
        hub.loop.call_soon_threadsafe(function, *words)


def has_ended(hold: Hold) -> bool:
    """Whether a hold is over because its hub has ended: closed, or its event loop was closed.

    :raises RuntimeError: when it belongs to another event loop, whose sockets this one must not use.
    """
    hub: Any = hold.hub
    if hold.is_released or hub.is_closed or hub.loop.is_closed():
        return True
    if hub.loop is not asyncio.get_running_loop():
        raise RuntimeError("the lock was acquired in another event loop")
    return False


_inherited: list[TaskHub] = []
_all: weakref.WeakSet[Hubs] = weakref.WeakSet()
_shared: weakref.WeakKeyDictionary[Any, Hubs] = weakref.WeakKeyDictionary()


def hubs_of(client: Any) -> Hubs:
    """The hubs of a server object, or the shared ones of a client."""
    hubs = getattr(client, "_hub", None)
    if isinstance(hubs, Hubs):
        return hubs
    check_client(client, True)
    found = _shared.get(client)
    if found is None:
        found = _shared[client] = Hubs(client, is_shared=True)
        weakref.finalize(client, found.retire).atexit = False
    return found


def _begin_anew() -> None:
    for hubs in list(_all):
        for hub in hubs.all():
            for link in [*hub.links.values(), *(hold.link for hold in [*hub.holds, *hub.lost_holds] if hold.link)]:
                link.forget()
            hub.begin_anew()
            # Its destructors would change what the parent waits for.
            _inherited.append(hub)
        hubs._hubs.clear()


os.register_at_fork(after_in_child=_begin_anew)
