"""``Lock`` with the interface of redis-py's ``Lock``, and locks of several keys, for threads."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar, Union, cast

import redis
import redis.lock
from redis import exceptions as redis_errors

from ._election import AnyElection, Leader
from ._hold import Hold, LostState
from ._hub import hub_of
from ._locks import AnyLock, BaseLock, BaseMultiLock, Name
from ._terms import Key, Number, Text
from ._threads import ThreadHub, blocking, run
from .observer import Observer

if TYPE_CHECKING:
    from typing_extensions import TypeAlias

    from .server import Server

    #: What the constructors take.
    Client: TypeAlias = Union[redis.Redis, redis.RedisCluster, Server]

L = TypeVar("L", bound="ThreadLock[Any]")
F = TypeVar("F", bound=Callable[..., Any])


def _undoing(acquires: F) -> F:
    """The method, which gives back what it has acquired when anything is raised in it."""

    @functools.wraps(acquires)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        before = self.local.hold
        try:
            return acquires(self, *args, **kwargs)
        except BaseException:
            self._undo(before)
            raise

    return cast("F", method)


class Lost(LostState):
    """The loss of a lock, if there was one. Any thread may read it."""

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until the lock is lost, at most ``timeout`` seconds. False when it was not, is released, or is
        not held."""
        hold = self._hold
        if hold is not None:
            ended = threading.Event()
            hold.when_ended(ended.set)
            try:
                ended.wait(timeout)
            finally:
                hold.forget(ended.set)
        return self.is_set()


class ThreadLock(AnyLock["Client", Name]):
    """The methods of a lock of one key or several, for threads."""

    _hubs = ThreadHub

    @property
    def lost(self) -> Lost:
        """The loss of the present hold: ``is_set()``, ``wait(timeout)``, ``reason``."""
        return Lost(self._hold_to_lose())

    # A signal handler may raise at any line, also between a method and what it calls. So each method that acquires or
    # releases undoes what is left: nothing is held without a caller that knows of it.

    @_undoing
    def __enter__(self: L) -> L:
        if self.acquire():
            return self
        raise self._not_acquired()

    def __exit__(self, _: object, raised: object, __: object) -> None:
        hold: Any = self
        try:
            hold = self._hold()
            if not self.local.is_left:
                self.release()
        except BaseException as error:
            if not isinstance(error, redis_errors.LockError):
                self._let_go(hold)
            self._left(error, raised)

    acquire = _undoing(blocking(AnyLock._acquire))

    def release(self) -> None:
        hold: Any = self
        try:
            hold = self._hold()
            run(self._release())
        except BaseException:
            self._let_go(hold)
            raise

    release.__doc__ = AnyLock._release.__doc__

    def _undo(self, before: Optional[Hold]) -> None:
        """Gives back what this thread has acquired since this hold, and this one if it was replaced."""
        hold = self.local.hold
        if hold is not before and (hold is None or hold.thread == threading.get_ident()):
            for one in (hold, before):
                if one is not None:
                    one.hub.give_back(one)
            self._forget(hold)

    def _let_go(self, hold: Any) -> None:
        """Gives back a hold; this object: the release was interrupted before it knew its hold."""
        hold = self._hold() if hold is self else hold
        if hold is not None:
            hold.hub.give_back(hold)
            self._forget(hold)

    leave = blocking(AnyLock._leave)
    locked = blocking(AnyLock._locked)
    owned = blocking(AnyLock._owned)
    do_release = blocking(AnyLock._do_release)
    extend = blocking(AnyLock._extend)
    reacquire = blocking(AnyLock._reacquire)
    execute = blocking(AnyLock._execute)
    set_note = blocking(AnyLock._set_note)


class Lock(ThreadLock[Key], BaseLock["Client"], redis.lock.Lock):  # type: ignore[misc]
    """A lock of the redis-lock module, in the place of ``redis.lock.Lock``.

    The parameters before the star are those of redis-py; :meth:`with_options` is for ``client.lock()``. ``timeout`` is
    the lease of a lock that is not renewed. A lock without a timeout is renewed until it is released, as redis-py's
    lock without a timeout never ends. ``sleep`` is accepted and not used, since a wait polls nothing.

    :param redis: a client of redis-py, or a :class:`Server`; all locks of a client share connections.
    :param name: the key, as text or bytes. It is a hash, not a string as with redis-py.
    :param timeout: the lease in seconds, not renewed. None or 0: renewed until the release.
    :param blocking: whether :meth:`acquire` waits.
    :param blocking_timeout: how long it waits, in seconds; None for no limit.
    :param thread_local: whether each thread sees only its own hold.
    :param raise_on_release_error: whether leaving a ``with`` statement raises when the lock was lost. An exception that
        was raised in the statement is never replaced by one of the release, which is a warning in the log then.
    :param lease: the lease in seconds of a lock that is renewed (30 by default; 2 ms to a hundred years). Not together
        with ``timeout``.
    :param margin: how long before the end of the lease a loss is reported, in seconds: 0 to half of the lease, a sixth
        of it by default.
    :param owner: the owner, a name that no other thread or process uses at the same time. It is a credential: every
        client that knows it can release the lock. None: a fresh one for each acquisition.
    :param mode: ``Mode.READ`` or ``Mode.WRITE`` for a read-write lock.
    :param renew: whether the lease is renewed; None: if there is no timeout.
    :param session: whether a hold is bound to a connection of its own (``SESSION``). The server renews the lease
        (``lock.session-lease``, 10 s) while the connection lives, and releases the lock at once when it ends, so also
        when this process ends for any reason. A broken connection is a loss (``LostReason.DISCONNECTED``), which a
        lease would outlive. The user needs ``+lock.info``. Not together with ``timeout``, ``lease`` or ``renew=False``.
    :param on_lost: called with the :class:`LostReason` in a thread of its own when the lock is lost. A loss that
        nothing listens to is a warning in the log ``redis_lock_client``.
    :param max_hold: the longest time of a hold in seconds, in spite of renewals: for a program that hangs.
    :param replicas: how many replicas have to have the grant (1 to 100), so that a fail-over to one of them keeps it.
        With fewer the acquisition fails (:class:`NotReplicated`), and holds nothing.
    :param replicas_within: how long they may take, in seconds.
    :param queue: wait only behind fewer requests of others than this (0 to 1,000,000); otherwise the acquisition fails
        at once (:class:`QueueFull`). A lock that is free is acquired in any case.
    :param note: a text beside the hold and its wait, for people who look (``LOCK.INFO``): at most 256 bytes.
    :raises ConfigError: when an argument is out of its bounds. It is a ``ValueError``.
    """

    @_undoing
    def acquire(  # type: ignore[override]
        self,
        sleep: Optional[Number] = None,
        blocking: Optional[bool] = None,
        blocking_timeout: Optional[Number] = None,
        token: Optional[Text] = None,
    ) -> bool:
        """Acquires the lock (``LOCK.ACQUIRE``); False when another owner holds it until the end of the wait.

        :param sleep: not used. The others, and the errors, are those of :meth:`MultiLock.acquire`.
        """
        return bool(run(self._acquire(blocking, blocking_timeout, token)))

    info = blocking(BaseLock._info)
    resume = blocking(BaseLock._resume)


class MultiLock(ThreadLock[Iterable[Key]], BaseMultiLock["Client"]):
    """Several keys that are locked together or not at all: all are granted in one event of the server
    (``LOCK.MACQUIRE``), and a wait for them holds none. They are renewed and released together. When one of them is
    lost the hold is lost: it is not renewed any more, and the others stay held until the release or the end of the
    lease.

    The parameters are those of :class:`Lock`, without ``sleep`` and ``session``.

    :param names: the keys, each of them once, at most 1,024. In a cluster they have one hash tag (``{orders}:1``,
        ``{orders}:2``), because no event of a cluster has keys of two slots.
    :param owner: the owner of all keys. It holds none of them in another mode at the same time.
    :param mode: the mode of all keys.
    :raises ConfigError: also when no key or one key twice is named, or the keys are in several slots of a cluster.
        Nothing is sent.
    """


class Election(AnyElection["Client"]):
    """An election on a key: one of the candidates is the leader, until it resigns, ends, or loses its lease; then the
    candidate that has waited longest is. The leader is the holder of a lock, and the note beside the hold says where it
    is::

        with Election(client, "scheduler").campaign("10.0.0.7:8080") as leadership:
            while not leadership.lost.is_set():
                work(leadership.token)

    The parameters are those of :class:`Lock`.
    """

    _lock_class = Lock

    def campaign(self, note: Text, **options: Any) -> Lock:
        """The candidacy, a :class:`Lock`: ``with`` or :meth:`Lock.acquire` waits until it is the leader,
        :meth:`Lock.set_note` proclaims another text, :meth:`Lock.release` resigns, and by :meth:`Lock.execute` a former
        leader changes nothing more.

        :param note: shown to those who ask for the leader: at most 256 bytes.
        """
        return cast("Lock", self._candidacy(note, options))

    leader = blocking(AnyElection._leader)

    def observe(self) -> Iterator[Optional[Leader]]:
        """Yields the present leader, and then each other one, None while there is none, also when the same leader says
        something else. The server is asked every third of the lease, so a leadership that is shorter may be left
        out. While it cannot be reached nothing is yielded; what does not pass (:class:`NoPermission`, ...) is
        raised."""
        last: Any = self
        while True:
            leader = run(self._look(last))
            if leader != last:
                yield leader
            else:
                time.sleep(self._interval)
            last = leader


def observe(client: Client, observer: Optional[Observer]) -> None:
    """Tells an observer of all locks, semaphores and latches of a client of redis-py, or of a :class:`Server`, from now
    on; None: no one."""
    hub_of(client, ThreadHub).observer = observer


class Redis(redis.Redis):
    """``redis.Redis``, with :class:`Lock` as the default class of :meth:`lock`, for libraries that call it without a
    class.

    django-redis: ``OPTIONS = {"REDIS_CLIENT_CLASS": "redis_lock_client.Redis"}``. celery-redbeat:
    ``app.redbeat_redis = redis_lock_client.Redis.from_url(url, decode_responses=True)``.
    """

    def lock(self, *args: Any, **kwargs: Any) -> Any:
        """``redis.Redis.lock``."""
        # The class is the seventh parameter.
        if len(args) < 6 and kwargs.get("lock_class") is None:
            kwargs["lock_class"] = Lock
        return super().lock(*args, **kwargs)
