"""``Lock`` with the interface of redis-py's asyncio ``Lock``, and locks of several keys. See
:mod:`redis_lock_client.lock` for what the methods do."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any, Optional, TypeVar, Union, cast

import redis.asyncio
import redis.asyncio.lock

from .._election import AnyElection, Leader
from .._hold import LostState
from .._hub import hub_of
from .._locks import AnyLock, BaseLock, BaseMultiLock, Name
from .._terms import Key, Text
from ..observer import Observer
from ._loops import Hubs, waited

if TYPE_CHECKING:
    from typing_extensions import TypeAlias

    from .server import Server

    #: What the constructors take.
    Client: TypeAlias = Union[redis.asyncio.Redis, redis.asyncio.RedisCluster, Server]

L = TypeVar("L", bound="TaskLock[Any]")


class Lost(LostState):
    """The loss of a lock, if there was one."""

    async def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until the lock is lost, at most ``timeout`` seconds. False when it was not, is released, or is
        not held."""
        hold = self._hold
        if hold is not None:
            loop = asyncio.get_running_loop()
            ended = asyncio.Event()

            def end() -> None:
                # The hold may belong to another loop, and this one may be closed by then.
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(ended.set)

            hold.when_ended(end)
            try:
                await waited(ended, timeout)
            finally:
                hold.forget(end)
        return self.is_set()


class TaskLock(AnyLock["Client", Name]):
    """The methods of a lock of one key or several, for asyncio."""

    _hubs = Hubs

    @property
    def lost(self) -> Lost:
        """The loss of the present hold: ``is_set()``, ``wait(timeout)``, ``reason``."""
        return Lost(self._hold_to_lose())

    async def __aenter__(self: L) -> L:
        if await self.acquire():
            return self
        raise self._not_acquired()

    async def __aexit__(self, _: object, raised: object, __: object) -> None:
        try:
            if not self.local.is_left:
                await self.release()
        except Exception as error:
            self._left(error, raised)

    acquire = AnyLock._acquire
    locked = AnyLock._locked
    owned = AnyLock._owned
    release = AnyLock._release
    leave = AnyLock._leave
    do_release = AnyLock._do_release
    extend = AnyLock._extend
    reacquire = AnyLock._reacquire
    execute = AnyLock._execute
    set_note = AnyLock._set_note


class Lock(TaskLock[Key], BaseLock["Client"], redis.asyncio.lock.Lock):  # type: ignore[misc]
    """A lock of the redis-lock module, in the place of ``redis.asyncio.lock.Lock``: :class:`redis_lock_client.Lock`,
    with the same parameters, whose methods are coroutines. ``on_lost`` may be a coroutine function."""

    info = BaseLock._info
    resume = BaseLock._resume


class MultiLock(TaskLock[Iterable[Key]], BaseMultiLock["Client"]):
    """Several keys that are locked together or not at all: :class:`redis_lock_client.MultiLock`, with the same
    parameters, whose methods are coroutines. ``on_lost`` may be a coroutine function."""


class Election(AnyElection["Client"]):
    """An election on a key: :class:`redis_lock_client.Election` for asyncio."""

    _lock_class = Lock

    def campaign(self, note: Text, **options: Any) -> Lock:
        """The candidacy, a :class:`Lock`: ``async with`` or ``acquire()`` waits until it is the leader."""
        return cast("Lock", self._candidacy(note, options))

    leader = AnyElection._leader

    async def observe(self) -> AsyncIterator[Optional[Leader]]:
        """As :meth:`redis_lock_client.Election.observe`."""
        last: Any = self
        while True:
            leader = await self._look(last)
            if leader != last:
                yield leader
            else:
                await asyncio.sleep(self._interval)
            last = leader


def observe(client: Client, observer: Optional[Observer]) -> None:
    """As :func:`redis_lock_client.observe`, in all event loops."""
    hubs = hub_of(client, Hubs)
    for hub in [hubs, *hubs.all()]:
        hub.observer = observer


class Redis(redis.asyncio.Redis):
    """``redis.asyncio.Redis``, with :class:`Lock` as the default class of :meth:`lock`."""

    def lock(self, *args: Any, **kwargs: Any) -> Any:
        """``redis.asyncio.Redis.lock``."""
        # The class is the seventh parameter.
        if len(args) < 6 and kwargs.get("lock_class") is None:
            kwargs["lock_class"] = Lock
        return super().lock(*args, **kwargs)
