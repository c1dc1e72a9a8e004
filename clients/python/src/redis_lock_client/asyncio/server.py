"""A server and its locks, locks of several keys, read-write locks, semaphores and latches, for asyncio."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Optional, Union

from .._acquire import Acquisition, LatchWait
from .._address import client_of_url
from .._hold import Hold
from .._hub import name_of, options_of
from .._options import Number
from .._steps import at_most_once, count, release, request
from .._terms import MOST_COUNT, MOST_PERMITS, Key, checked_key, checked_number, checked_wait
from ..errors import Closed
from ..outcome import Released
from ..server import (
    BaseReadWriteLock,
    BaseSemaphore,
    PermitState,
    SemaphoreInfo,
    Unreleased,
    rest_of,
    unreleased,
)
from ..statistics import Statistics
from ._loops import Hubs, TaskHub, has_ended, hubs_of, post
from .lock import Lock, Lost
from .multi_lock import MultiLock

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .._options import (
        AsyncioClient,
        LockOptions,
        MultiLockOptions,
        ReadWriteLockOptions,
        SemaphoreOptions,
    )


class Server:
    """The locks of one server, cluster, or primary of sentinels. Opening it sends nothing.

    :param redis_client: a ``redis.asyncio.Redis`` or ``redis.asyncio.RedisCluster``, which sends the commands.
    :raises ConfigError: for another object.
    """

    def __init__(self, redis_client: AsyncioClient) -> None:
        self._hub = Hubs(redis_client, is_shared=False)
        self._name = name_of(redis_client, options_of(redis_client))
        self._own: Any = None

    @classmethod
    def open(cls, url: str) -> Server:
        """The server of a URL, with a client of its own, see :meth:`redis_lock_client.Server.open`."""
        client = client_of_url(url, True)
        server = cls(client)
        server._own = client
        return server

    @property
    def name(self) -> str:
        """The name in messages: ``host:port``, without credentials."""
        return self._name

    def lock(self, name: Key, timeout: Optional[Number] = None, **options: Unpack[LockOptions]) -> Lock:
        """A :class:`Lock`, with the options of its constructor."""
        return Lock(self, name, timeout, **options)

    def multi_lock(
        self, names: Iterable[Key], timeout: Optional[Number] = None, **options: Unpack[MultiLockOptions]
    ) -> MultiLock:
        """A :class:`MultiLock` of these keys, with the options of its constructor."""
        return MultiLock(self, names, timeout, **options)

    def read_write_lock(
        self, name: Key, timeout: Optional[Number] = None, **options: Unpack[ReadWriteLockOptions]
    ) -> ReadWriteLock:
        """A :class:`ReadWriteLock`, with the options of :class:`Lock`."""
        return ReadWriteLock(self, name, timeout, **options)

    def semaphore(self, key: Key, **options: Unpack[SemaphoreOptions]) -> Semaphore:
        """A :class:`Semaphore`, with the options of its constructor (``limit``, ``lease``, ``margin``, ``owner``)."""
        return Semaphore(self, key, **options)

    def latch(self, key: Key) -> Latch:
        """A :class:`Latch`."""
        return Latch(self, key)

    def statistics(self) -> Statistics:
        """The counters of this object, and its present numbers of holds and waits."""
        found = Statistics(**vars(self._hub.counts))
        for one in (hub.statistics() for hub in self._hub.all()):
            found.holds, found.waiting = found.holds + one.holds, found.waiting + one.waiting
        return found

    async def settled(self, timeout: Optional[Number] = None) -> Sequence[Unreleased]:
        """Waits for the background releases, see :meth:`redis_lock_client.Server.settled`."""
        wait = checked_wait(timeout, "timeout")
        hub = self._hub.here()
        await hub.settle(wait)
        return unreleased(hub)

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

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class ReadWriteLock(BaseReadWriteLock[Union["AsyncioClient", Server], Lock]):
    """A lock that any number of owners hold for reading, or one for writing, see
    :class:`redis_lock_client.ReadWriteLock`."""

    _kind = Lock


class Permit(PermitState):
    """A permit of a semaphore. Dropped without a release, it is given back in the background."""

    def __init__(self, hub: TaskHub, hold: Hold) -> None:
        self._hub = hub
        self._hold = hold
        self._dropped = weakref.finalize(self, post, hub, hub.abandon, hold)
        self._dropped.atexit = False

    @property
    def lost(self) -> Lost:
        """The loss of the permit."""
        return Lost(self._hold.notice)

    async def release(self) -> Released:
        """Gives the permit back (``SEM.RELEASE``). Raises, and goes on in the background, as :meth:`Lock.release`."""
        is_over = has_ended(self._hold)
        self._dropped.detach()
        if is_over:
            return Released.NOT_HELD
        try:
            released: Released = await self._hub.run(release(self._hold))
            return released
        except Closed:
            return Released.NOT_HELD
        except BaseException:
            self._hub.abandon(self._hold)
            raise

    async def __aenter__(self) -> Permit:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release()


class Semaphore(BaseSemaphore[Union["AsyncioClient", Server]]):
    """A semaphore, see :class:`redis_lock_client.Semaphore`. ``on_lost`` may be a coroutine function."""

    _hub: Hubs
    _hub_of = staticmethod(hubs_of)
    _awaits = True

    async def try_acquire(self) -> Optional[Permit]:
        """A permit, if one is free and no other request waits for it."""
        return await self._acquire(0.0)

    async def acquire_within(self, wait: Number) -> Optional[Permit]:
        """A permit; None when there was none within the wait, in seconds."""
        return await self._acquire(checked_wait(wait, "wait"))

    async def acquire(self) -> Permit:
        """A permit; waits without a limit, also for a semaphore that does not exist yet."""
        while True:
            permit = await self._acquire(None)
            if permit is not None:
                return permit

    async def _acquire(self, wait: Optional[float]) -> Optional[Permit]:
        hub = self._hub.here()
        hub.begin()
        acquisition = Acquisition(hub, self._terms, wait, self._on_lost)
        try:
            hold = await hub.run(acquisition.steps())
        except BaseException:
            acquisition.give_up()
            raise
        return None if hold is None else Permit(hub, hold)

    async def set(self, permits: int) -> None:
        """Creates the semaphore, or changes its number of permits (``SEM.SET``)."""
        key, number = self._terms.key, checked_number(permits, "permits", 0, MOST_PERMITS)
        hub = self._hub.here()
        await hub.run(request(hub, ("SEM.SET", key, number), key))

    async def info(self) -> Optional[SemaphoreInfo]:
        """The state of the semaphore (``SEM.INFO``); None when it does not exist and no request waits."""
        key = self._terms.key
        hub = self._hub.here()
        return SemaphoreInfo.read(await hub.run(request(hub, ("SEM.INFO", key), key)), hub.name)


class Latch:
    """A latch (``LATCH.*``): a count, and waits until it is zero. A latch that does not exist is open.

    :param redis: a client of redis-py, or a :class:`Server`.
    """

    def __init__(self, redis: Union[AsyncioClient, Server], key: Key) -> None:
        self._key = checked_key(key)
        self._redis = redis
        self._hub = hubs_of(redis)

    async def set(self, count: int) -> None:
        """Sets the count. It is sent once: :class:`Unheard` says that its outcome is unknown."""
        number = checked_number(count, "count", 0, MOST_COUNT)
        hub = self._hub.here()
        await hub.run(at_most_once(hub, self._key, ("LATCH.SET", self._key, number)))

    async def count_down(self, count: int = 1) -> int:
        """Counts down by ``count`` (``LATCH.DOWN``) and returns the rest. It is sent once, as :meth:`set` is."""
        number = checked_number(count, "count", 1, MOST_COUNT)
        hub = self._hub.here()
        return rest_of(await hub.run(at_most_once(hub, self._key, ("LATCH.DOWN", self._key, number))), hub)

    async def count(self) -> int:
        """The count; 0 when the latch is open, see :meth:`redis_lock_client.Latch.count`."""
        hub = self._hub.here()
        return int(await hub.run(count(hub, self._key)))

    async def wait(self, timeout: Optional[Number] = None) -> bool:
        """Waits until the latch is open; False when it is closed at the end of the wait, in seconds."""
        wait = checked_wait(timeout, "timeout")
        hub = self._hub.here()
        hub.begin()
        return bool(await hub.run(LatchWait(hub, self._key, wait).steps()))
