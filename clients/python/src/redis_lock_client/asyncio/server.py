"""A server and its locks, read-write locks, semaphores and latches, for asyncio. See :mod:`redis_lock_client.server`
for what the methods do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Optional, Union

from .._terms import Number, checked_wait
from ..outcome import Released
from ..server import (
    BaseLatch,
    BasePermit,
    BaseReadWriteLock,
    BaseSemaphore,
    BaseServer,
    SemaphoreInfo,
    Unreleased,
)
from ._loops import Hubs, hubs_of
from .lock import Lock, Lost, MultiLock

if TYPE_CHECKING:
    import redis.asyncio


class ReadWriteLock(BaseReadWriteLock[Union["redis.asyncio.Redis", "redis.asyncio.RedisCluster", "Server"], Lock]):
    """A lock that any number of owners hold for reading, or one for writing, see
    :class:`redis_lock_client.ReadWriteLock`."""

    _kind = Lock


class Permit(BasePermit):
    """A permit of a semaphore. Dropped without a release, it is given back in the background."""

    @property
    def lost(self) -> Lost:
        """The loss of the permit."""
        return Lost(self._hold)

    async def release(self) -> Released:
        """Gives the permit back, see :meth:`redis_lock_client.Permit.release`."""
        return await self._release()

    async def __aenter__(self) -> Permit:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release()


class Semaphore(BaseSemaphore[Union["redis.asyncio.Redis", "redis.asyncio.RedisCluster", "Server"], Permit]):
    """A semaphore, see :class:`redis_lock_client.Semaphore`. ``on_lost`` may be a coroutine function."""

    _permit = Permit
    _hub_of = staticmethod(hubs_of)
    _is_asyncio = True

    async def try_acquire(self) -> Optional[Permit]:
        """A permit, if one is free and no other request waits for it."""
        return await self._acquire(0.0)

    async def acquire_within(self, wait: Number) -> Optional[Permit]:
        """A permit; None when there was none within the wait, in seconds."""
        return await self._acquire(checked_wait(wait, "wait"))

    async def acquire(self) -> Permit:
        """A permit; waits without a limit, also for a semaphore that does not exist yet."""
        return await self._acquire_without_limit()

    async def set(self, permits: int) -> None:
        """Creates the semaphore, or changes its number of permits."""
        await self._set(permits)

    async def info(self) -> Optional[SemaphoreInfo]:
        """The state of the semaphore; None when it does not exist and no request waits."""
        return await self._info()


class Latch(BaseLatch[Union["redis.asyncio.Redis", "redis.asyncio.RedisCluster", "Server"]]):
    """A latch, see :class:`redis_lock_client.Latch`."""

    _hub_of = staticmethod(hubs_of)

    async def set(self, count: int) -> None:
        """Sets the count."""
        await self._set(count)

    async def count_down(self, count: int = 1) -> int:
        """Counts down by ``count`` and returns the rest."""
        return await self._count_down(count)

    async def count(self) -> int:
        """The count; 0 when the latch is open."""
        return await self._count()

    async def wait(self, timeout: Optional[Number] = None) -> bool:
        """Waits until the latch is open; False when it is closed at the end of the wait, in seconds."""
        return await self._wait(timeout)


class Server(BaseServer[Lock, MultiLock, ReadWriteLock, Semaphore, Latch]):
    """The locks of one server, cluster, or primary of sentinels, see :class:`redis_lock_client.Server`.

    :param redis_client: a ``redis.asyncio.Redis`` or ``redis.asyncio.RedisCluster``, which sends the commands.
    :raises ConfigError: for another object.
    """

    _is_asyncio = True
    _kinds = (Lock, MultiLock, ReadWriteLock, Semaphore, Latch)

    def __init__(self, redis_client: Union[redis.asyncio.Redis, redis.asyncio.RedisCluster]) -> None:
        self._hub = Hubs(redis_client, is_shared=False)

    async def settled(self, timeout: Optional[Number] = None) -> Sequence[Unreleased]:
        """Waits for the background releases, see :meth:`redis_lock_client.Server.settled`."""
        return await self._settled(timeout)

    async def aclose(self) -> None:
        """Ends all waits and releases what is held, see :meth:`redis_lock_client.Server.close`."""
        await self._hub.close()
        if self._own is not None:
            # `aclose` is newer than redis-py 5.0.0.
            await getattr(self._own, "aclose", self._own.close)()

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
