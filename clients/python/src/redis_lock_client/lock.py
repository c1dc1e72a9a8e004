"""``Lock`` with the interface of redis-py's ``Lock``, for threads."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Optional, TypeVar, Union

from redis import exceptions as redis_errors

from ._base import AnyLock, BaseLock
from ._engine.commands import Claim
from ._engine.engine import Engine
from ._engine.hold import Hold
from ._engine.loss import Notice
from ._engine.terms import Text, checked_lease, checked_span
from ._options import Number
from ._threads import Delivery, Home, home_of
from .errors import Closed, Error, NotAcquired, NotOwned
from .outcome import LostReason, Released

if TYPE_CHECKING:
    from ._options import SyncClient
    from .server import Server

L = TypeVar("L", bound="ThreadLock")


class Lost:
    """The loss of a lock, if there was one. Any thread may read it."""

    def __init__(self, notice: Notice) -> None:
        self._notice = notice

    @property
    def reason(self) -> Optional[LostReason]:
        """The reason of the loss, if the lock was lost."""
        return self._notice.reason

    def is_set(self) -> bool:
        """Whether the lock was lost."""
        return self._notice.reason is not None

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until the lock is lost, at most ``timeout`` seconds. False when it was not, is released, or is
        not held."""
        ended = threading.Event()
        self._notice.when_ended(ended.set)
        try:
            ended.wait(timeout)
        finally:
            self._notice.forget(ended.set)
        return self.is_set()


class ThreadLock(AnyLock):
    """The methods of a lock of one key or several, for threads."""

    _home: Home
    _home_of = staticmethod(home_of)

    @property
    def lost(self) -> Lost:
        """The loss of the present hold: ``is_set()``, ``wait(timeout)``, ``reason``."""
        return Lost(self._notice)

    def acquire(self, *args: Any, **kwargs: Any) -> bool:
        """Acquires the lock; each class has its own parameters."""
        raise NotImplementedError

    def __enter__(self: L) -> L:
        if self.acquire():
            return self
        raise NotAcquired("Unable to acquire lock within the time specified", self.name_text)

    def __exit__(
        self,
        exc_type: Optional[type[BaseException]],
        exc_value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        try:
            self.release()
        except redis_errors.LockError as error:
            self._left(error)

    def _acquire(self, blocking: Optional[bool], blocking_timeout: Optional[Number], token: Optional[Text]) -> bool:
        wait = self._wait_of(blocking, blocking_timeout)
        terms = self._terms_for(token)
        on_lost = None if self._on_lost is None else self._tell
        delivery = Delivery(self._home)
        hold = before = None
        try:
            hold = self._home.call(lambda engine: delivery.acquire(engine, terms, wait, on_lost))
            if hold is not None:
                before = self._hold()
                self._take(hold)
                if before is not None:
                    self._home.post(before.give_back)
            delivery.end()
            return hold is not None
        except BaseException:
            delivery.fail()
            if hold is not None and self.local.hold is hold:
                self._forget(hold)
                if before is not None:
                    self._home.post(before.give_back)
            raise

    def _tell(self, reason: LostReason) -> None:
        # Not in the engine's thread: the function may take its time.
        threading.Thread(target=self._on_lost, args=(reason,), name="redis-lock-lost", daemon=True).start()

    def locked(self) -> bool:
        """Whether any owner holds the lock, or one of several (``LOCK.INFO``, for which the user needs permission)."""
        keys = self._terms.keys
        return self._home.call(lambda engine: engine.is_any_held(keys))

    def owned(self) -> bool:
        """Whether this object holds the lock, of several all of them, by the server (``LOCK.INFO``; a user without
        permission renews it for its remaining time instead)."""
        hold = self._hold()
        if hold is not None:
            return self._home.call(lambda engine: engine.holds_lock(hold))
        token = self.local.token
        if token is None:
            return False
        claim = self._claim(token)
        return self._home.call(lambda engine: engine.owns(claim))

    def release(self) -> None:
        """Releases the lock (``LOCK.RELEASE``, of several keys ``LOCK.MRELEASE``). It is free then, or the next
        waiter's.

        If the server does not answer within the response timeout (5 s), this raises, and the release goes on in the
        background until the lease is over, with ``session`` for ten minutes at most: :meth:`Server.settled` waits for
        that and reports a failure.

        :raises NotOwned: when it was lost before, or one of several. The others are released.
        :raises NotAcquired: when this object does not hold it.
        :raises ConnectionFailed: when the server did not answer in time.
        """
        hold, token = self._to_release()
        try:
            self._release(hold, None if token is None else self._claim(token))
        except BaseException:
            # A signal handler may have raised before the release began. Otherwise this does nothing.
            if hold is not None:
                self._home.post(hold.give_back)
            raise
        finally:
            self._forget(hold, token)

    def do_release(self, expected_token: Text) -> None:
        """Releases the hold of this owner, which another object may have acquired."""
        self._release(None, self._claim(expected_token))

    def _release(self, hold: Optional[Hold], claim: Optional[Claim]) -> None:
        async def release(engine: Engine) -> Released:
            if hold is not None:
                # A closed engine has released it, or another thread that shares the object. A second request, which of
                # several keys has no token, could end the next hold of this owner.
                return Released.NOT_HELD if hold.notice.is_over else await hold.release()
            assert claim is not None
            return await engine.release_owner(claim)

        try:
            released = self._home.call(release)
        except Error as error:
            if self._is_over(hold, error, self._home.is_closed):
                raise self._no_longer("release") from error
            raise
        if released is Released.NOT_HELD:
            raise self._no_longer("release")

    def extend(self, additional_time: Number, replace_ttl: bool = False) -> Literal[True]:
        """Adds time to the lease, or replaces it by this time (``LOCK.RENEW``, ``LOCK.MRENEW``).

        :param additional_time: in seconds.
        :param replace_ttl: whether it is the new lease, and is not added to the rest of the present one.
        :raises NotOwned: when the lock was lost.
        :raises NotAcquired: when this object does not hold it, or it has no timeout.
        """
        held = self._held("extend")
        self._check_timeout("extend")
        if isinstance(held, Hold):
            lease = self._added(held, additional_time, replace_ttl or self._replaces_ttl)
        else:
            lease = checked_span(additional_time, "additional_time")
        return self._set_lease(held, checked_lease(lease, "additional_time"), "extend")

    def reacquire(self) -> Literal[True]:
        """Sets the lease to the timeout again. Raises as :meth:`extend` does."""
        held = self._held("reacquire")
        return self._set_lease(held, self._check_timeout("reacquire"), "reacquire")

    def _set_lease(self, held: Any, lease: float, doing: str) -> Literal[True]:
        async def set_lease(engine: Engine) -> None:
            if not isinstance(held, Hold):
                await engine.renew_owner(held, lease)
            elif held.notice.is_over:
                raise NotOwned("the hold is over")
            else:
                await held.set_lease(lease)

        try:
            self._home.call(set_lease)
        except Closed as error:
            if isinstance(held, Hold) and self._home.is_closed:
                raise self._no_longer(doing) from error
            raise
        except NotOwned as error:
            raise self._no_longer(doing) from error
        return True


class Lock(ThreadLock, BaseLock[Union["SyncClient", "Server"]]):
    """A lock of the redis-lock module, in the place of ``redis.lock.Lock``.

    The parameters before the star are those of redis-py. ``timeout`` is the lease of a lock that is not renewed. A lock
    without a timeout is renewed until it is released, as redis-py's lock without a timeout never ends. ``sleep`` is
    accepted and not used, since a wait polls nothing.

    :param redis: a client of redis-py; all locks of a client share connections.
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
    :param on_lost: called with the :class:`LostReason` in a thread of its own when the lock is lost.
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

        The waits of all processes are in one queue, in order. A wait with a limit returns at most 0.3 s after it, also
        when the server hangs; a wait without a limit goes on when connections break and servers are replaced.

        :param sleep: not used.
        :param blocking: whether it waits; None: as the constructor says.
        :param blocking_timeout: how long it waits, in seconds; None: as the constructor says.
        :param token: the owner of this acquisition.
        :raises ConnectionFailed: when the server could not be reached within the limit, or the owner's name only waits
            for the answer to an earlier request.
        :raises Refused: when the server refuses (:class:`WrongType`, :class:`NoPermission`, :class:`Deadlock`, ...).
        """
        return self._acquire(blocking, blocking_timeout, token)
