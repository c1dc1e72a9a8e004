"""A server and its locks, locks of several keys, read-write locks, semaphores and latches, for threads."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Callable, Generic, Optional, TypeVar, Union

from ._acquire import Acquisition, LatchWait
from ._address import client_of_url
from ._base import AnyLock
from ._hold import Hold, field
from ._hub import Hub
from ._options import Number
from ._steps import at_most_once, count, release, request
from ._terms import (
    MOST_COUNT,
    MOST_PERMITS,
    Key,
    Kind,
    Text,
    check_function,
    checked_key,
    checked_number,
    checked_terms,
    checked_wait,
)
from ._threads import ThreadHub, hub_of
from .errors import Closed, Error, bad_reply
from .lock import Lock, Lost
from .multi_lock import MultiLock
from .outcome import LostReason, Mode, Released
from .statistics import Statistics

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._options import (
        LockOptions,
        MultiLockOptions,
        ReadWriteLockOptions,
        SemaphoreOptions,
        SyncClient,
    )


#: What the constructors take, and the class of the locks.
Client = TypeVar("Client")
AnyKind = TypeVar("AnyKind", bound=AnyLock)


@dataclass(frozen=True)
class Unreleased:
    """A lock or permit that could not be released in the background. It ends with its lease, or with its connection
    (``session=True``)."""

    key: bytes
    error: Error


@dataclass(frozen=True)
class SemaphoreInfo:
    """The state of a semaphore (``SEM.INFO``)."""

    #: The number of permits, held and free.
    permits: int
    #: The free permits; negative after a change to fewer permits than are held.
    free: int
    held: int
    waiters: int
    #: How long the first waiter has waited, in seconds.
    longest_wait: float

    @staticmethod
    def read(reply: Any, server: str) -> Optional[SemaphoreInfo]:
        """The reply of ``SEM.INFO``."""
        if reply is None:
            return None
        names = (b"permits", b"free", b"held", b"waiters", b"longest-wait-ms")
        numbers = [field(reply, name) for name in names]
        if not all(isinstance(number, int) for number in numbers):
            raise bad_reply(server)
        permits, free, held, waiters, longest = numbers
        return SemaphoreInfo(permits, free, held, waiters, longest / 1000)


def unreleased(hub: Hub) -> Sequence[Unreleased]:
    """The releases that have failed since the last call."""
    failed, hub.failed = hub.failed, []
    return [Unreleased(key, error) for key, error in failed]


class Server:
    """The locks of one server, cluster, or primary of sentinels. Opening it sends nothing.

    :param redis_client: a ``redis.Redis`` or ``redis.RedisCluster``, which sends the commands.
    :raises ConfigError: for another object.
    """

    def __init__(self, redis_client: SyncClient) -> None:
        self._hub = ThreadHub(redis_client)
        self._own: Any = None

    @classmethod
    def open(cls, url: str) -> Server:
        """The server of a URL, with a client of its own that :meth:`close` closes: ``redis://host:port/db``,
        ``rediss://`` with TLS, ``unix:///path``, ``redis+cluster://a:7000,b:7000``,
        ``redis+sentinel://a:26379,b:26379/name``.

        :param url: a login, ``user:password@`` or ``:password@``, is before the hosts. Options of redis-py's URLs
            (``client_name``, ``ssl_ca_certs``, ...) are behind a ``?``; with sentinels it is their own login,
            ``?sentinel-user=...&sentinel-password=...``. A special character is written as ``%`` and two digits.
        :raises ConfigError: for another text, without quoting it.
        """
        client = client_of_url(url, False)
        server = cls(client)
        server._own = client
        return server

    @property
    def name(self) -> str:
        """The name in messages: ``host:port``, without credentials."""
        return self._hub.name

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
        return self._hub.statistics()

    def settled(self, timeout: Optional[Number] = None) -> Sequence[Unreleased]:
        """Waits until the background releases have ended, and returns those that have failed since the last call.

        :param timeout: how long it waits, in seconds; None for no limit. At its end the failures so far are returned,
            and the other releases go on.
        """
        wait = checked_wait(timeout, "timeout")
        self._hub.settle(wait)
        return unreleased(self._hub)

    def close(self) -> None:
        """Ends all waits (they raise :class:`Closed`), releases what is held, and ends the connections of this object,
        within the client's ``socket_timeout`` (5 s without one). What is held is over then: the release of a lock
        raises :class:`NotOwned`, that of a permit is ``Released.NOT_HELD``. Idempotent."""
        self._hub.close()
        if self._own is not None:
            self._own.close()
            if hasattr(self._own, "connection_pool"):
                # redis-py before 5.0.1 leaves it open.
                self._own.connection_pool.disconnect()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


class BaseReadWriteLock(Generic[Client, AnyKind]):
    """The arguments of ``ReadWriteLock``."""

    _kind: Any

    def __init__(
        self, redis: Client, name: Key, timeout: Optional[Number] = None, **options: Unpack[ReadWriteLockOptions]
    ) -> None:
        self._arguments = (redis, name, timeout)
        self._options = options
        # Refuses wrong arguments now.
        self.read_lock()

    def read_lock(self) -> AnyKind:
        """A :class:`Lock` for reading."""
        return self._lock(Mode.READ)

    def write_lock(self) -> AnyKind:
        """A :class:`Lock` for writing."""
        return self._lock(Mode.WRITE)

    def _lock(self, mode: Mode) -> AnyKind:
        lock: AnyKind = self._kind(*self._arguments, **self._options, mode=mode)
        return lock


class ReadWriteLock(BaseReadWriteLock[Union["SyncClient", Server], Lock]):
    """A lock that any number of owners hold for reading, or one for writing.

    :param redis: a client of redis-py, or a :class:`Server`.
    :param name: the key. In a cluster it has a hash tag, or no braces at all.
    :param timeout: the lease of a hold in seconds, not renewed. None or 0: renewed until the release.
    :param options: the other options of :class:`Lock`, but for ``mode``; they hold for readers and writers.
    """

    _kind = Lock


class PermitState:
    """What a permit knows of itself."""

    _hold: Hold

    @property
    def token(self) -> int:
        """Identifies the grant. It is no fencing token: several permits are valid at a time."""
        return self._hold.token

    @property
    def owner(self) -> bytes:
        """The owner of the permit, a credential."""
        return self._hold.claim.owner

    def valid_for(self) -> float:
        """How long the permit is certainly still held, in seconds. 0 in a forked child, which does not hold it."""
        return self._hold.valid_for()


class Permit(PermitState):
    """A permit of a semaphore. Dropped without a release, it is given back in the background."""

    def __init__(self, hub: ThreadHub, hold: Hold) -> None:
        self._hub = hub
        self._hold = hold
        self._dropped = weakref.finalize(self, hub.abandon, hold)
        self._dropped.atexit = False

    @property
    def lost(self) -> Lost:
        """The loss of the permit."""
        return Lost(self._hold.notice)

    def release(self) -> Released:
        """Gives the permit back (``SEM.RELEASE``). Raises, and goes on in the background, as :meth:`Lock.release`."""
        try:
            released: Released = self._hub.run(release(self._hold))
            self._dropped.detach()
            return released
        except BaseException as error:
            # A signal handler may have raised before the release began. Otherwise this does nothing.
            self._dropped()
            if isinstance(error, Closed):
                return Released.NOT_HELD
            raise

    def __enter__(self) -> Permit:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class BaseSemaphore(Generic[Client]):
    """The arguments of ``Semaphore``."""

    #: Whether `on_lost` may be a coroutine function.
    _awaits = False

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
    ) -> None:
        check_function(on_lost, "on_lost", self._awaits)
        kind = Kind(is_permit=True, limit=None if limit is None else checked_number(limit, "limit", 1, MOST_PERMITS))
        self._terms = checked_terms((checked_key(key),), kind, lease=lease, margin=margin, owner=owner)
        self._on_lost = on_lost
        self._redis = redis
        self._hub: Any = self._hub_of(redis)

    @staticmethod
    def _hub_of(client: Any) -> Any:
        """The hub of a client or a server object."""
        raise NotImplementedError


class Semaphore(BaseSemaphore[Union["SyncClient", Server]]):
    """A semaphore (``SEM.*``). A permit is waited for, renewed and released as a lock is.

    :param redis: a client of redis-py, or a :class:`Server`.
    :param key: the key, as text or bytes. In a cluster it has a hash tag, or no braces at all.
    :param limit: the number of permits with which the first acquisition creates the semaphore. Without it a semaphore
        that does not exist has no permits: a wait without a limit lasts until another client creates it.
    :param lease: the lease of a permit in seconds (30 by default), which is renewed until the release.
    :param margin: how long before the end of the lease a loss is reported, in seconds (a sixth of the lease).
    :param owner: the owner, see :class:`Lock`: it holds at most one permit. None: a fresh one for each permit.
    :param on_lost: called with the :class:`LostReason` in a thread of its own when a permit is lost.
    """

    _hub: ThreadHub
    _hub_of = staticmethod(hub_of)

    def try_acquire(self) -> Optional[Permit]:
        """A permit, if one is free and no other request waits for it."""
        return self._acquire(0.0)

    def acquire_within(self, wait: Number) -> Optional[Permit]:
        """A permit; None when there was none within the wait.

        :param wait: how long it waits, in seconds.
        """
        return self._acquire(checked_wait(wait, "wait"))

    def acquire(self) -> Permit:
        """A permit; waits without a limit, also for a semaphore that does not exist yet."""
        while True:
            permit = self._acquire(None)
            if permit is not None:
                return permit

    def _acquire(self, wait: Optional[float]) -> Optional[Permit]:
        hub = self._hub
        hub.begin()
        acquisition = Acquisition(hub, self._terms, wait, self._on_lost)
        try:
            hold = hub.run(acquisition.steps())
            return None if hold is None else Permit(hub, hold)
        except BaseException:
            acquisition.give_up()
            raise

    def set(self, permits: int) -> None:
        """Creates the semaphore, or changes its number of permits (``SEM.SET``)."""
        key, number = self._terms.key, checked_number(permits, "permits", 0, MOST_PERMITS)
        self._hub.run(request(self._hub, ("SEM.SET", key, number), key))

    def info(self) -> Optional[SemaphoreInfo]:
        """The state of the semaphore (``SEM.INFO``); None when it does not exist and no request waits."""
        key = self._terms.key
        return SemaphoreInfo.read(self._hub.run(request(self._hub, ("SEM.INFO", key), key)), self._hub.name)


class Latch:
    """A latch (``LATCH.*``): a count, and waits until it is zero. A latch that does not exist is open.

    :param redis: a client of redis-py, or a :class:`Server`.
    """

    def __init__(self, redis: Union[SyncClient, Server], key: Key) -> None:
        self._key = checked_key(key)
        self._redis = redis
        self._hub = hub_of(redis)

    def set(self, count: int) -> None:
        """Sets the count (``LATCH.SET``). It is sent once.

        :raises Unheard: when it is unknown whether the request was served.
        """
        number = checked_number(count, "count", 0, MOST_COUNT)
        self._hub.run(at_most_once(self._hub, self._key, ("LATCH.SET", self._key, number)))

    def count_down(self, count: int = 1) -> int:
        """Counts down by ``count`` (``LATCH.DOWN``) and returns the rest. It is sent once, as :meth:`set` is."""
        number = checked_number(count, "count", 1, MOST_COUNT)
        rest = self._hub.run(at_most_once(self._hub, self._key, ("LATCH.DOWN", self._key, number)))
        return rest_of(rest, self._hub)

    def count(self) -> int:
        """The count; 0 when the latch is open (``LATCH.WAIT``, of a closed one also ``GET``).

        :raises WrongType: when the key holds something else than a count.
        """
        return int(self._hub.run(count(self._hub, self._key)))

    def wait(self, timeout: Optional[Number] = None) -> bool:
        """Waits until the latch is open (``LATCH.WAIT``); False when it is closed at the end of the wait.

        :param timeout: how long it waits, in seconds; None for no limit.
        :raises ConnectionFailed: when the server did not answer.
        """
        wait = checked_wait(timeout, "timeout")
        self._hub.begin()
        return bool(self._hub.run(LatchWait(self._hub, self._key, wait).steps()))


def rest_of(reply: Any, hub: Hub) -> int:
    """The rest of a count."""
    if not isinstance(reply, int):
        raise bad_reply(hub.name)
    return max(0, reply)
