"""A server and its locks, read-write locks, semaphores and latches, for threads."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Generic, Optional, TypeVar, Union, cast

from ._acquire import Acquisition, LatchWait
from ._address import client_of_url
from ._client import check_client
from ._hold import Hold, left
from ._hub import hub_of
from ._info import SemaphoreInfo, semaphore_info
from ._requests import at_most_once, leave, release, request, resume
from ._terms import (
    DEFAULT_WITHIN,
    MOST_AT_ONCE,
    MOST_COUNT,
    MOST_PERMITS,
    Key,
    Number,
    Terms,
    Text,
    check_function,
    checked_key,
    checked_number,
    checked_queue,
    checked_rest,
    checked_terms,
    checked_wait,
    owned_by,
)
from ._threads import ThreadHub, blocking, run
from .errors import Error, bad_reply, refused
from .lock import Lock, Lost, MultiLock
from .outcome import LostReason, Mode, Released
from .statistics import Statistics

if TYPE_CHECKING:
    import redis
    from typing_extensions import Concatenate, ParamSpec, Unpack

    from ._locks import ReadWriteLockOptions

    P = ParamSpec("P")

S = TypeVar("S", bound="BaseServer[Any]")
T = TypeVar("T")
#: What the constructors take.
Client = TypeVar("Client")


@dataclass(frozen=True)
class Unreleased:
    """A lock or permit that could not be released in the background. It ends with its lease, or with its connection
    (``session=True``)."""

    key: bytes
    error: Error


def maker(kind: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """A method of a server object that calls the constructor of a class."""

    def make(server: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return kind(server, *args, **kwargs)

    make.__doc__ = f"A :class:`{kind.__name__}` of this server, with the parameters of its constructor."
    return make


class BaseServer(Generic[Client]):
    """What the two kinds of ``Server`` share."""

    _hubs: Any
    #: The client that :meth:`open` has made.
    _own: Any = None

    def __init__(self, redis_client: Client) -> None:
        check_client(redis_client, self._hubs.is_asyncio)
        self._hub = self._hubs(redis_client, is_shared=False)

    @classmethod
    def open(cls: type[S], url: str) -> S:
        """The server of a URL, with a client of its own that is closed with it: ``redis://host:port/db``, ``rediss://``
        with TLS, ``unix:///path``, ``redis+cluster://a:7000,b:7000``, ``redis+sentinel://a:26379,b:26379/name``.

        :param url: a login, ``user:password@`` or ``:password@``, is before the hosts. Options are behind a ``?``:
            ``db=N``, ``protocol=2`` or ``3``, for sentinels ``sentinel-user=`` and ``sentinel-password=``. A special
            character is written as ``%`` and two digits. A client with other options is given to the constructor.
        :raises ConfigError: for another text, without quoting it.
        """
        client = client_of_url(url, cls._hubs.is_asyncio)
        server = cls(client)
        server._own = client
        return server

    @property
    def name(self) -> str:
        """The name in messages: ``host:port``, without credentials."""
        return str(self._hub.name)

    def statistics(self) -> Statistics:
        """The counters of this object, and its present numbers of holds and waits."""
        found = Statistics(**vars(self._hub.counts))
        for hub in self._hub.all():
            found.holds += len(hub.holds) + len(hub.lost_holds)
            found.waiting += len(hub.waits)
        return found

    async def _settled(self, timeout: Optional[Number] = None) -> Sequence[Unreleased]:
        """Waits until the background releases have ended, and returns those that have failed since the last call.

        :param timeout: how long it waits, in seconds; None for no limit. At its end the failures so far are returned,
            and the other releases go on.
        """
        failed = await self._hub.here().settle(checked_wait(timeout, "timeout"))
        return [Unreleased(key, error) for key, error in failed]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class BaseReadWriteLock(Generic[Client, T]):
    """The arguments of ``ReadWriteLock``."""

    _kind: Any

    def __init__(
        self, redis: Client, name: Key, timeout: Optional[Number] = None, **options: Unpack[ReadWriteLockOptions]
    ) -> None:
        self._arguments = (redis, name, timeout)
        self._options = options
        # Refuses wrong arguments now.
        self.read_lock()

    def read_lock(self) -> T:
        """A :class:`Lock` for reading."""
        return self._lock(Mode.READ)

    def write_lock(self) -> T:
        """A :class:`Lock` for writing."""
        return self._lock(Mode.WRITE)

    def _lock(self, mode: Mode) -> T:
        lock: T = self._kind(*self._arguments, **self._options, mode=mode)
        return lock


class BasePermit:
    """What a permit knows of itself."""

    def __init__(self, hold: Hold) -> None:
        self._hold = hold
        self._dropped = weakref.finalize(self, hold.hub.give_back, hold)
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
    def count(self) -> int:
        """How many permits it stands for."""
        return self._hold.claim.permits or 1

    def valid_for(self) -> float:
        """How long the permit is certainly still held, in seconds. 0 in a forked child, which does not hold it."""
        return self._hold.valid_for()

    async def _release(self) -> Released:
        """Gives the permit back (``SEM.RELEASE``). Raises, and goes on in the background, as :meth:`Lock.release`."""
        hub, hold = self._hold.hub, self._hold
        if hold.is_gone or hub.is_closing:
            return Released.NOT_HELD
        released: Released = await release(hold)
        self._dropped.detach()
        return released

    async def _leave(self, rest: Number) -> Released:
        """Leaves the permit held for this many seconds (``SEM.RENEW``), as :meth:`Lock.leave` does."""
        span, hold = checked_rest(rest), self._hold
        if hold.is_gone or hold.hub.is_closing:
            return Released.NOT_HELD
        left_so: Released = await leave(hold, span)
        self._dropped.detach()
        return left_so


class BaseSemaphore(Generic[Client, T]):
    """The arguments of ``Semaphore``, and its requests."""

    _permit: Callable[[Hold], T]
    _hubs: Any

    def __init__(
        self,
        redis: Client,
        key: Key,
        *,
        limit: Optional[int] = None,
        lease: Optional[Number] = None,
        margin: Optional[Number] = None,
        owner: Optional[Text] = None,
        on_lost: Optional[Callable[[LostReason], Any]] = None,
        replicas: Optional[int] = None,
        replicas_within: Number = DEFAULT_WITHIN,
        queue: Optional[int] = None,
        count: Optional[int] = None,
    ) -> None:
        check_function(on_lost, "on_lost", self._hubs.is_asyncio)
        if limit is not None:
            checked_number(limit, "limit", 1, MOST_PERMITS)
        if count is not None:
            checked_number(count, "count", 1, min(MOST_AT_ONCE, limit or MOST_AT_ONCE))
        self._terms = checked_terms(
            (checked_key(key),),
            lease=lease,
            margin=margin,
            owner=owner,
            replicas=replicas,
            replicas_within=replicas_within,
            queue=queue,
            is_permit=True,
            limit=limit,
            permits=count,
        )
        self._on_lost = on_lost
        self._redis = redis
        self._hub = hub_of(redis, self._hubs)

    async def _acquire_in(self, limit: Optional[float]) -> Optional[T]:
        hub = self._hub.here()
        hub.begin()
        permit: Optional[T] = await Acquisition(hub, self._terms, limit, self._on_lost).run(self._permit)
        return permit

    async def _try_acquire(self) -> Optional[T]:
        """A permit, if one is free and no other request waits for it."""
        return await self._acquire_in(0.0)

    async def _acquire_within(self, wait: Number) -> Optional[T]:
        """A permit; None when there was none within the wait.

        :param wait: how long it waits, in seconds.
        """
        return await self._acquire_in(checked_wait(wait, "wait"))

    async def _acquire(self) -> T:
        """A permit; waits without a limit.

        :raises NoSemaphore: when nobody has created the semaphore, as the other two methods do.
        """
        return cast("T", await self._acquire_in(None))

    async def _resume(self, owner: Text, token: int) -> T:
        """Takes over the permit of another process, by its :attr:`Permit.owner` and :attr:`Permit.token`, with the
        lease of this object from now. The server does not compare the token.

        :raises NotOwned: when that owner has no permit.
        """
        claim, number = owned_by(self._terms, owner), checked_number(token, "token", 0, MOST_COUNT)
        return await resume(self._hub.here(), claim, number, self._on_lost, self._permit)

    async def _set(self, permits: int) -> None:
        """Creates the semaphore, or changes its number of permits (``SEM.SET``)."""
        number = checked_number(permits, "permits", 0, MOST_PERMITS)
        hub = self._hub.here()
        await request(hub, "SEM.SET", self._terms.key, number)

    async def _info(self) -> Optional[SemaphoreInfo]:
        """The state of the semaphore (``SEM.INFO``); None when it does not exist and no request waits."""
        hub = self._hub.here()
        reply = await request(hub, "SEM.INFO", self._terms.key)
        if reply is None:
            return None
        found = semaphore_info(reply)
        if found is None:
            raise bad_reply(hub.name)
        return found


class BaseLatch(Generic[Client]):
    """The arguments of ``Latch``, and its requests."""

    _hubs: Any

    def __init__(self, redis: Client, key: Key) -> None:
        self._key = checked_key(key)
        self._redis = redis
        self._hub = hub_of(redis, self._hubs)

    async def _set(self, count: int) -> None:
        """Sets the count (``LATCH.SET``). It is sent once.

        :raises Unheard: when it is unknown whether the request was served.
        """
        number = checked_number(count, "count", 0, MOST_COUNT)
        hub = self._hub.here()
        await at_most_once(hub, "LATCH.SET", self._key, number)

    async def _count_down(self, count: int = 1) -> int:
        """Counts down by ``count`` (``LATCH.DOWN``) and returns the rest. It is sent once, as :meth:`set` is."""
        number = checked_number(count, "count", 1, MOST_COUNT)
        hub = self._hub.here()
        rest = await at_most_once(hub, "LATCH.DOWN", self._key, number)
        if not isinstance(rest, int):
            raise bad_reply(hub.name)
        return max(0, rest)

    async def _count(self) -> int:
        """The count; 0 when the latch is open (``LATCH.WAIT``, of a closed one also ``GET``: no command of the module
        has it).

        :raises WrongType: when the key holds something else than a count.
        """
        hub = self._hub.here()
        # Refused if the key holds something else, or the server has no module.
        if await request(hub, "LATCH.WAIT", self._key) == 1:
            return 0
        digits: Any = await request(hub, "GET", self._key)
        try:
            return max(0, int(digits)) if digits is not None else 0
        except (TypeError, ValueError):
            # Changed in between.
            raise refused(hub.name, "WRONGTYPE", "the key holds no count") from None

    async def _wait(self, timeout: Optional[Number] = None, queue: Optional[int] = None) -> bool:
        """Waits until the latch is open (``LATCH.WAIT``); False when it is closed at the end of the wait.

        :param timeout: how long it waits, in seconds; None for no limit.
        :param queue: behind how many requests it waits, see :class:`Lock`.
        :raises ConnectionFailed: when the server did not answer.
        """
        limit, terms = checked_wait(timeout, "timeout"), Terms((self._key,), queue=checked_queue(queue))
        hub = self._hub.here()
        hub.begin()
        return bool(await LatchWait(hub, terms, limit).run())


# For threads


class ReadWriteLock(BaseReadWriteLock[Union["redis.Redis", "redis.RedisCluster", "Server"], Lock]):
    """A lock that any number of owners hold for reading, or one for writing.

    :param redis: a client of redis-py, or a :class:`Server`.
    :param name: the key. In a cluster it has a hash tag, or no braces at all.
    :param timeout: the lease of a hold in seconds, not renewed. None or 0: renewed until the release.
    :param options: the other options of :class:`Lock`, but for ``mode``; they hold for readers and writers.
    """

    _kind = Lock


class Permit(BasePermit):
    """A permit of a semaphore. Dropped without a release, it is given back in the background."""

    @property
    def lost(self) -> Lost:
        """The loss of the permit."""
        return Lost(self._hold)

    def release(self) -> Released:
        try:
            released: Released = run(self._release())
            return released
        except BaseException:
            self._hold.hub.give_back(self._hold)
            raise

    release.__doc__ = BasePermit._release.__doc__
    leave = blocking(BasePermit._leave)

    def __enter__(self) -> Permit:
        return self

    def __exit__(self, _: object, raised: object, __: object) -> None:
        try:
            self.release()
        except BaseException as error:
            self._hold.hub.give_back(self._hold)
            left(error, raised)


class Semaphore(BaseSemaphore[Union["redis.Redis", "redis.RedisCluster", "Server"], Permit]):
    """A semaphore (``SEM.*``). A permit is waited for, renewed and released as a lock is.

    :param redis: a client of redis-py, or a :class:`Server`.
    :param key: the key, as text or bytes. In a cluster it has a hash tag, or no braces at all.
    :param limit: the number of permits with which the first acquisition creates the semaphore. Without it a semaphore
        that does not exist is an error (:class:`NoSemaphore`, for which the user needs ``+exists``; without that
        permission it has no permits, and a wait lasts until another client creates it).
    :param lease: the lease of a permit in seconds (30 by default), which is renewed until the release.
    :param margin: how long before the end of the lease a loss is reported, in seconds (a sixth of the lease).
    :param owner: the owner, see :class:`Lock`: it holds at most one permit. None: a fresh one for each permit.
    :param on_lost: called with the :class:`LostReason` in a thread of its own when a permit is lost.
    :param replicas: how many replicas have to have a permit, see :class:`Lock`, and ``replicas_within`` how soon.
    :param queue: behind how many requests a request waits, see :class:`Lock`.
    :param count: how many permits an acquisition takes in one step, all or none (1 to 64; one by default). The
        :class:`Permit` stands for all of them.
    """

    _permit = Permit
    _hubs = ThreadHub

    try_acquire = blocking(BaseSemaphore[Any, Permit]._try_acquire)
    acquire_within = blocking(BaseSemaphore[Any, Permit]._acquire_within)
    acquire = blocking(BaseSemaphore[Any, Permit]._acquire)
    resume = blocking(BaseSemaphore[Any, Permit]._resume)
    set = blocking(BaseSemaphore._set)
    info = blocking(BaseSemaphore._info)


class Latch(BaseLatch[Union["redis.Redis", "redis.RedisCluster", "Server"]]):
    """A latch (``LATCH.*``): a count, and waits until it is zero. A latch that does not exist is open.

    :param redis: a client of redis-py, or a :class:`Server`.
    """

    _hubs = ThreadHub

    set = blocking(BaseLatch._set)
    count_down = blocking(BaseLatch._count_down)
    count = blocking(BaseLatch._count)
    wait = blocking(BaseLatch._wait)


class Server(BaseServer[Union["redis.Redis", "redis.RedisCluster"]]):
    """The locks of one server, cluster, or primary of sentinels. Opening it sends nothing.

    :param redis_client: a ``redis.Redis`` or ``redis.RedisCluster``, which sends the commands.
    :raises ConfigError: for another object.
    """

    _hubs = ThreadHub
    lock = maker(Lock)
    multi_lock = maker(MultiLock)
    read_write_lock = maker(ReadWriteLock)
    semaphore = maker(Semaphore)
    latch = maker(Latch)

    settled = blocking(BaseServer._settled)

    def close(self) -> None:
        """Ends all waits (they raise :class:`Closed`), releases what is held, and ends the connections of this object,
        within the client's ``socket_timeout`` (5 s without one). What is held is over then: the release of a lock
        raises :class:`NotOwned`, that of a permit is ``Released.NOT_HELD``. Idempotent."""
        run(self._hub.close())
        if self._own is not None:
            self._own.close()
            if hasattr(self._own, "connection_pool"):
                # redis-py before 5.0.1 leaves it open.
                self._own.connection_pool.disconnect()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
