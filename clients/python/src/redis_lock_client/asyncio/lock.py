"""``Lock`` with the interface of redis-py's asyncio ``Lock``, and locks of several keys. See
:mod:`redis_lock_client.lock` for what the methods do."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Literal, Optional, TypeVar, Union

import redis.asyncio
import redis.asyncio.lock
from redis import exceptions as redis_errors

from .._hold import LostState
from .._locks import AnyLock, BaseLock, BaseMultiLock
from .._terms import Number, Text
from ._loops import hubs_of

if TYPE_CHECKING:
    from typing_extensions import TypeAlias

    from .server import Server

    #: What the constructors take.
    Client: TypeAlias = Union[redis.asyncio.Redis, redis.asyncio.RedisCluster, Server]

L = TypeVar("L", bound="TaskLock")


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
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(ended.wait(), timeout)
            finally:
                hold.forget(end)
        return self.is_set()


class TaskLock(AnyLock):
    """The methods of a lock of one key or several, for asyncio."""

    _hub_of = staticmethod(hubs_of)
    _is_asyncio = True

    @property
    def lost(self) -> Lost:
        """The loss of the present hold: ``is_set()``, ``wait(timeout)``, ``reason``."""
        return Lost(self._hold())

    async def __aenter__(self: L) -> L:
        if await self.acquire():
            return self
        raise self._not_acquired()

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.release()
        except redis_errors.LockError as error:
            self._left(error)

    async def acquire(
        self,
        blocking: Optional[bool] = None,
        blocking_timeout: Optional[Number] = None,
        token: Optional[Text] = None,
    ) -> bool:
        """Acquires the lock, or all keys, see :meth:`redis_lock_client.Lock.acquire`. Cancelled, it is given up."""
        return await self._acquire(blocking, blocking_timeout, token)

    async def locked(self) -> bool:
        """Whether any owner holds the lock, or one of several."""
        return await self._locked()

    async def owned(self) -> bool:
        """Whether this object holds the lock, by the server."""
        return await self._owned()

    async def release(self) -> None:
        """Releases the lock, see :meth:`redis_lock_client.Lock.release`."""
        await self._release()

    async def do_release(self, expected_token: Text) -> None:
        """Releases the hold of this owner, which another object may have acquired."""
        await self._do_release(expected_token)

    async def extend(self, additional_time: Number, replace_ttl: bool = False) -> Literal[True]:
        """Adds time to the lease, or replaces it, see :meth:`redis_lock_client.Lock.extend`."""
        await self._set(additional_time, replace_ttl)
        return True

    async def reacquire(self) -> Literal[True]:
        """Sets the lease to the timeout again."""
        await self._set(None, False)
        return True


class Lock(TaskLock, BaseLock["Client"], redis.asyncio.lock.Lock):  # type: ignore[misc]
    """A lock of the redis-lock module, in the place of ``redis.asyncio.lock.Lock``: :class:`redis_lock_client.Lock`,
    with the same parameters, whose methods are coroutines. ``on_lost`` may be a coroutine function."""


class MultiLock(TaskLock, BaseMultiLock["Client"]):
    """Several keys that are locked together or not at all: :class:`redis_lock_client.MultiLock`, with the same
    parameters, whose methods are coroutines. ``on_lost`` may be a coroutine function."""


class Redis(redis.asyncio.Redis):
    """``redis.asyncio.Redis``, with :class:`Lock` as the default class of :meth:`lock`."""

    def lock(self, *args: Any, **kwargs: Any) -> Any:
        """``redis.asyncio.Redis.lock``."""
        # The class is the seventh parameter.
        if len(args) < 6 and kwargs.get("lock_class") is None:
            kwargs["lock_class"] = Lock
        return super().lock(*args, **kwargs)
