"""A server and its locks, read-write locks, semaphores and latches, for asyncio. See :mod:`redis_lock_client.server`
for what the methods do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Union

from .._hold import left
from ..server import BaseLatch, BasePermit, BaseReadWriteLock, BaseSemaphore, BaseServer, maker
from ._loops import Hubs
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

    release = BasePermit._release
    leave = BasePermit._leave

    async def __aenter__(self) -> Permit:
        return self

    async def __aexit__(self, _: object, raised: object, __: object) -> None:
        try:
            await self.release()
        except Exception as error:
            left(error, raised)


class Semaphore(BaseSemaphore[Union["redis.asyncio.Redis", "redis.asyncio.RedisCluster", "Server"], Permit]):
    """A semaphore, see :class:`redis_lock_client.Semaphore`. ``on_lost`` may be a coroutine function."""

    _permit = Permit
    _hubs = Hubs

    try_acquire = BaseSemaphore[Any, Permit]._try_acquire
    acquire_within = BaseSemaphore[Any, Permit]._acquire_within
    acquire = BaseSemaphore[Any, Permit]._acquire
    resume = BaseSemaphore[Any, Permit]._resume
    set = BaseSemaphore._set
    info = BaseSemaphore._info


class Latch(BaseLatch[Union["redis.asyncio.Redis", "redis.asyncio.RedisCluster", "Server"]]):
    """A latch, see :class:`redis_lock_client.Latch`."""

    _hubs = Hubs

    set = BaseLatch._set
    count_down = BaseLatch._count_down
    count = BaseLatch._count
    wait = BaseLatch._wait


class Server(BaseServer[Union["redis.asyncio.Redis", "redis.asyncio.RedisCluster"]]):
    """The locks of one server, cluster, or primary of sentinels, see :class:`redis_lock_client.Server`.

    :param redis_client: a ``redis.asyncio.Redis`` or ``redis.asyncio.RedisCluster``, which sends the commands.
    :raises ConfigError: for another object.
    """

    _hubs = Hubs
    lock = maker(Lock)
    multi_lock = maker(MultiLock)
    read_write_lock = maker(ReadWriteLock)
    semaphore = maker(Semaphore)
    latch = maker(Latch)

    settled = BaseServer._settled

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
