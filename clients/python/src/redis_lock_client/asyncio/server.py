"""A server and its locks, locks of several keys, read-write locks, semaphores and latches, for asyncio."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from .._engine.address import source_of_url
from .._engine.commands import Kind
from .._engine.hold import Hold
from .._engine.terms import (
    MOST_COUNT,
    MOST_PERMITS,
    RESPONSE_TIMEOUT,
    Text,
    check_function,
    checked_flag,
    checked_key,
    checked_number,
    checked_terms,
    checked_wait,
)
from .._options import Number
from ..errors import Closed, bad_reply
from ..outcome import LostReason, Mode, Released
from ..server import SemaphoreInfo, Unreleased, checked_patience
from ..statistics import Statistics
from ._loops import Home, asyncio_source_of, has_ended, home_of, post
from .lock import Lock, Lost, tell
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

    :param redis_client: a ``redis.asyncio.Redis`` or ``redis.asyncio.RedisCluster``. Its options
        are used (address, login, TLS, database, client name), and not its connections.
    :param response_timeout: how long a request may take, in seconds.
    :param parked_waits: whether each wait gets a connection of its own, instead of a ticket.
    :raises ConfigError: for another object, or an option that cannot be kept.
    """

    def __init__(
        self, redis_client: AsyncioClient, *, response_timeout: Number = RESPONSE_TIMEOUT, parked_waits: bool = False
    ) -> None:
        patience = checked_patience(response_timeout)
        self._home = Home(asyncio_source_of(redis_client), patience, checked_flag(parked_waits, "parked_waits"))

    @classmethod
    def open(cls, url: str, *, response_timeout: Number = RESPONSE_TIMEOUT, parked_waits: bool = False) -> Server:
        """The server of a URL: ``redis://host:port/db``, ``rediss://`` with TLS, ``unix:///path``,
        ``redis+cluster://a:7000,b:7000``, ``redis+sentinel://a:26379,b:26379/name``.

        :param url: a login, ``user:password@`` or ``:password@``, is before the hosts. Options of redis-py's URLs
            (``client_name``, ``ssl_ca_certs``, ...) are behind a ``?``; with sentinels it is their own login,
            ``?sentinel-user=...&sentinel-password=...``. A special character is written as ``%`` and two digits.
        :param response_timeout: how long a request may take, in seconds.
        :param parked_waits: whether each wait gets a connection of its own, instead of a ticket.
        :raises ConfigError: for another text, without quoting it.
        """
        server = cls.__new__(cls)
        server._home = Home(
            source_of_url(url), checked_patience(response_timeout), checked_flag(parked_waits, "parked_waits")
        )
        return server

    @property
    def name(self) -> str:
        """The name in messages: ``host:port``, without credentials."""
        return self._home.source.name

    def lock(self, name: Text, timeout: Optional[Number] = None, **options: Unpack[LockOptions]) -> Lock:
        """A :class:`Lock`, with the options of its constructor."""
        return Lock(self, name, timeout, **options)

    def multi_lock(
        self, names: Iterable[Text], timeout: Optional[Number] = None, **options: Unpack[MultiLockOptions]
    ) -> MultiLock:
        """A :class:`MultiLock` of these keys, with the options of its constructor."""
        return MultiLock(self, names, timeout, **options)

    def read_write_lock(
        self, name: Text, timeout: Optional[Number] = None, **options: Unpack[ReadWriteLockOptions]
    ) -> ReadWriteLock:
        """A :class:`ReadWriteLock`, with the options of :class:`Lock`."""
        return ReadWriteLock(self, name, timeout, **options)

    def semaphore(self, key: Text, **options: Unpack[SemaphoreOptions]) -> Semaphore:
        """A :class:`Semaphore`, with the options of its constructor (``limit``, ``lease``, ``margin``, ``owner``)."""
        return Semaphore(self, key, **options)

    def latch(self, key: Text) -> Latch:
        """A :class:`Latch`."""
        return Latch(self, key)

    def statistics(self) -> Statistics:
        """The counters of this object, and its present numbers of holds and waits."""
        return Statistics(**vars(self._home.counts))

    async def settled(self, timeout: Optional[Number] = None) -> Sequence[Unreleased]:
        """Waits until the background releases have ended, and returns those that have failed since the last call.

        :param timeout: how long it waits, in seconds; None for no limit. At its end the failures so far are returned,
            and the other releases go on.
        """
        wait = checked_wait(timeout, "timeout")
        failed = await self._home.engine().background.settled(wait)
        return [Unreleased(key, error) for key, error in failed]

    async def aclose(self) -> None:
        """Ends all waits (they raise :class:`Closed`), releases what is held, and closes the connections, within the
        response timeout. What is held is over then: the release of a lock raises :class:`NotOwned`, that of a permit is
        ``Released.NOT_HELD``. Idempotent."""
        await self._home.close()

    async def __aenter__(self) -> Server:
        return self

    async def __aexit__(
        self,
        exc_type: Optional[type[BaseException]],
        exc_value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class ReadWriteLock:
    """A lock that any number of owners hold for reading, or one for writing.

    :param redis: a client of redis-py, or a :class:`Server`.
    :param name: the key. In a cluster it has a hash tag, or no braces at all.
    :param timeout: the lease of a hold in seconds, not renewed. None or 0: renewed until the release.
    :param options: the other options of :class:`Lock`, but for ``mode``; they hold for readers and writers.
    """

    def __init__(
        self,
        redis: Union[AsyncioClient, Server],
        name: Text,
        timeout: Optional[Number] = None,
        **options: Unpack[ReadWriteLockOptions],
    ) -> None:
        self._arguments = (redis, name, timeout)
        self._options = options
        # Refuses wrong arguments now.
        self.read_lock()

    def read_lock(self) -> Lock:
        """A :class:`Lock` for reading."""
        return Lock(*self._arguments, **self._options, mode=Mode.READ)

    def write_lock(self) -> Lock:
        """A :class:`Lock` for writing."""
        return Lock(*self._arguments, **self._options, mode=Mode.WRITE)


class Permit:
    """A permit of a semaphore. Dropped without a release, it is given back in the background."""

    def __init__(self, hold: Hold) -> None:
        self._hold = hold
        self._pid = os.getpid()
        self._dropped = weakref.finalize(self, post, hold.engine, hold.give_back)
        self._dropped.atexit = False

    @property
    def token(self) -> int:
        """Identifies the grant. It is no fencing token: several permits are valid at a time."""
        return self._hold.token

    @property
    def owner(self) -> bytes:
        """The owner of the permit, a credential."""
        return self._hold.claim.owner

    @property
    def lost(self) -> Lost:
        """The loss of the permit."""
        return Lost(self._hold.notice)

    def valid_for(self) -> float:
        """How long the permit is certainly still held, in seconds. 0 in a forked child, which does not hold it."""
        return self._hold.valid_for() if self._pid == os.getpid() else 0.0

    async def release(self) -> Released:
        """Gives the permit back (``SEM.RELEASE``). Raises, and goes on in the background, as :meth:`Lock.release`."""
        hold = self._hold
        is_over = self._pid != os.getpid() or hold.notice.is_over or has_ended(hold)
        self._dropped.detach()
        if is_over:
            return Released.NOT_HELD
        try:
            return await hold.release()
        except Closed:
            if hold.engine.is_closing:
                return Released.NOT_HELD
            raise

    async def __aenter__(self) -> Permit:
        return self

    async def __aexit__(
        self,
        exc_type: Optional[type[BaseException]],
        exc_value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        await self.release()


class Semaphore:
    """A semaphore (``SEM.*``). A permit is waited for, renewed and released as a lock is.

    :param redis: a client of redis-py, or a :class:`Server`.
    :param key: the key, as text or bytes. In a cluster it has a hash tag, or no braces at all.
    :param limit: the number of permits with which the first acquisition creates the semaphore. Without it a semaphore
        that does not exist has no permits: a wait without a limit lasts until another client creates it.
    :param lease: the lease of a permit in seconds (30 by default), which is renewed until the release.
    :param margin: how long before the end of the lease a loss is reported, in seconds (a sixth of the lease).
    :param owner: the owner, see :class:`Lock`: it holds at most one permit. None: a fresh one for each permit.
    :param on_lost: called with the :class:`LostReason` when a permit is lost; a function, or a coroutine function.
    """

    def __init__(
        self,
        redis: Union[AsyncioClient, Server],
        key: Text,
        *,
        limit: Optional[int] = None,
        lease: Optional[Number] = None,
        margin: Optional[Number] = None,
        owner: Optional[Text] = None,
        on_lost: Optional[Callable[[LostReason], Any]] = None,
    ) -> None:
        check_function(on_lost, "on_lost", True)
        kind = Kind(is_permit=True, limit=None if limit is None else checked_number(limit, "limit", 1, MOST_PERMITS))
        self._terms = checked_terms((checked_key(key),), kind, lease=lease, margin=margin, owner=owner)
        self._on_lost = on_lost
        self._home = home_of(redis)

    async def try_acquire(self) -> Optional[Permit]:
        """A permit, if one is free and no other request waits for it."""
        return await self._acquire(0.0)

    async def acquire_within(self, wait: Number) -> Optional[Permit]:
        """A permit; None when there was none within the wait.

        :param wait: how long it waits, in seconds.
        """
        return await self._acquire(checked_wait(wait, "wait"))

    async def acquire(self) -> Permit:
        """A permit; waits without a limit, also for a semaphore that does not exist yet."""
        while True:
            permit = await self._acquire(None)
            if permit is not None:
                return permit

    async def _acquire(self, wait: Optional[float]) -> Optional[Permit]:
        terms, on_lost = self._terms, None if self._on_lost is None else self._tell
        hold = await self._home.engine().acquire(terms, wait, on_lost)
        return None if hold is None else Permit(hold)

    def _tell(self, reason: LostReason) -> None:
        tell(self._on_lost, reason)

    async def set(self, permits: int) -> None:
        """Creates the semaphore, or changes its number of permits (``SEM.SET``)."""
        key, number = self._terms.key, checked_number(permits, "permits", 0, MOST_PERMITS)
        await self._home.engine().repeatable(key, (b"SEM.SET", key, number))

    async def info(self) -> Optional[SemaphoreInfo]:
        """The state of the semaphore (``SEM.INFO``); None when it does not exist and no request waits."""
        key = self._terms.key
        reply = await self._home.engine().repeatable(key, (b"SEM.INFO", key))
        return SemaphoreInfo.read(reply, self._home.source.name)


class Latch:
    """A latch (``LATCH.*``): a count, and waits until it is zero. A latch that does not exist is open.

    :param redis: a client of redis-py, or a :class:`Server`.
    """

    def __init__(self, redis: Union[AsyncioClient, Server], key: Text) -> None:
        self._key = checked_key(key)
        self._home = home_of(redis)

    async def set(self, count: int) -> None:
        """Sets the count (``LATCH.SET``). It is sent once.

        :raises Unheard: when it is unknown whether the request was served.
        """
        key, number = self._key, checked_number(count, "count", 0, MOST_COUNT)
        await self._home.engine().at_most_once(key, (b"LATCH.WAIT", key), (b"LATCH.SET", key, number))

    async def count_down(self, count: int = 1) -> int:
        """Counts down by ``count`` (``LATCH.DOWN``) and returns the rest. It is sent once, as :meth:`set` is."""
        key, number = self._key, checked_number(count, "count", 1, MOST_COUNT)
        reply = await self._home.engine().at_most_once(key, (b"LATCH.WAIT", key), (b"LATCH.DOWN", key, number))
        if not isinstance(reply, int):
            raise bad_reply(self._home.source.name)
        return max(0, reply)

    async def count(self) -> int:
        """The count; 0 when the latch is open (``LATCH.WAIT``, of a closed one also ``GET``).

        :raises WrongType: when the key holds something else than a count.
        """
        key = self._key
        return await self._home.engine().count(key)

    async def wait(self, timeout: Optional[Number] = None) -> bool:
        """Waits until the latch is open (``LATCH.WAIT``); False when it is closed at the end of the wait.

        :param timeout: how long it waits, in seconds; None for no limit.
        :raises ConnectionFailed: when the server did not answer.
        """
        key, wait = self._key, checked_wait(timeout, "timeout")
        return await self._home.engine().wait_open(key, wait)
