"""``Lock`` with the interface of redis-py's ``Lock``, and locks of several keys, for threads."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Literal, Optional, TypeVar, Union

import redis
import redis.lock
from redis import exceptions as redis_errors

from ._hold import LostState
from ._locks import AnyLock, BaseLock, BaseMultiLock
from ._terms import Number, Text
from ._threads import hub_of, run

if TYPE_CHECKING:
    from typing_extensions import TypeAlias

    from .server import Server

    #: What the constructors take.
    Client: TypeAlias = Union[redis.Redis, redis.RedisCluster, Server]

L = TypeVar("L", bound="ThreadLock")


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


class ThreadLock(AnyLock):
    """The methods of a lock of one key or several, for threads."""

    _hub_of = staticmethod(hub_of)

    @property
    def lost(self) -> Lost:
        """The loss of the present hold: ``is_set()``, ``wait(timeout)``, ``reason``."""
        return Lost(self._hold())

    def acquire(self, *args: Any, **kwargs: Any) -> bool:
        """Acquires the lock; each class has its own parameters."""
        raise NotImplementedError

    def __enter__(self: L) -> L:
        if self.acquire():
            return self
        raise self._not_acquired()

    def __exit__(self, *_: object) -> None:
        try:
            self.release()
        except redis_errors.LockError as error:
            self._left(error)

    def locked(self) -> bool:
        """Whether any owner holds the lock, or one of several (``LOCK.INFO``, for which the user needs permission)."""
        return bool(run(self._locked()))

    def owned(self) -> bool:
        """Whether this object holds the lock, of several all of them, by the server (``LOCK.INFO``; a user without
        permission renews it for its remaining time instead)."""
        return bool(run(self._owned()))

    def release(self) -> None:
        """Releases the lock (``LOCK.RELEASE``). It is free then, or the next waiter's.

        If the client gets no answer, this raises, and the release goes on in the background until the lease is over,
        with ``session`` for ten minutes at most: :meth:`Server.settled` waits for that and reports a failure.

        :raises NotOwned: when it was lost before, or one of several. The others are released.
        :raises NotAcquired: when this object does not hold it.
        :raises ConnectionFailed: when the client got no answer (its ``socket_timeout`` and retries say how soon).
        """
        run(self._release())

    def do_release(self, expected_token: Text) -> None:
        """Releases the hold of this owner, which another object may have acquired."""
        run(self._do_release(expected_token))

    def extend(self, additional_time: Number, replace_ttl: bool = False) -> Literal[True]:
        """Adds time to the lease, or replaces it by this time (``LOCK.RENEW``).

        :param additional_time: in seconds.
        :param replace_ttl: whether it is the new lease, and is not added to the rest of the present one.
        :raises NotOwned: when the lock was lost.
        :raises NotAcquired: when this object does not hold it, or it has no timeout.
        """
        run(self._set(additional_time, replace_ttl))
        return True

    def reacquire(self) -> Literal[True]:
        """Sets the lease to the timeout again. Raises as :meth:`extend` does."""
        run(self._set(None, False))
        return True


class Lock(ThreadLock, BaseLock["Client"], redis.lock.Lock):  # type: ignore[misc]
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
    :param raise_on_release_error: whether leaving a ``with`` statement raises when the lock was lost.
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
    :raises ConfigError: when an argument is out of its bounds. It is a ``ValueError``.
    """

    def acquire(
        self,
        sleep: Optional[Number] = None,
        blocking: Optional[bool] = None,
        blocking_timeout: Optional[Number] = None,
        token: Optional[Text] = None,
    ) -> bool:
        """Acquires the lock (``LOCK.ACQUIRE``); False when another owner holds it until the end of the wait.

        The waits of all processes are in one queue, in order. Once the server has answered, a wait goes on when
        connections break and servers are replaced. How long a request may take is the client's ``socket_timeout``.

        :param sleep: not used.
        :param blocking: whether it waits; None: as the constructor says.
        :param blocking_timeout: how long it waits, in seconds; None: as the constructor says.
        :param token: the owner of this acquisition.
        :raises ConnectionFailed: when the first request failed, or the server could not be reached at the limit.
        :raises Refused: when the server refuses (:class:`WrongType`, :class:`NoPermission`, :class:`Deadlock`, ...).
        """
        return bool(run(self._acquire(blocking, blocking_timeout, token)))


class MultiLock(ThreadLock, BaseMultiLock["Client"]):
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

    def acquire(
        self,
        blocking: Optional[bool] = None,
        blocking_timeout: Optional[Number] = None,
        token: Optional[Text] = None,
    ) -> bool:
        """Acquires all keys; False when another owner holds one of them until the end of the wait. Waits, fails and
        raises as :meth:`Lock.acquire` does, with the same parameters."""
        return bool(run(self._acquire(blocking, blocking_timeout, token)))


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
