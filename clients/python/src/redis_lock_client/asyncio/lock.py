"""``Lock`` with the interface of redis-py's asyncio ``Lock``."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Literal, Optional, TypeVar, Union

from redis import exceptions as redis_errors

from .._base import AnyLock, BaseLock
from .._engine.commands import Claim
from .._engine.hold import Hold
from .._engine.loss import Notice
from .._engine.terms import Text, checked_lease, checked_span
from .._options import Number
from ..errors import Error, NotAcquired, NotOwned
from ..outcome import LostReason, Released
from ._loops import Home, has_ended, home_of, post

if TYPE_CHECKING:
    from .._options import AsyncioClient
    from .server import Server

L = TypeVar("L", bound="TaskLock")


class Lost:
    """The loss of a lock, if there was one."""

    def __init__(self, notice: Notice) -> None:
        self._notice = notice

    @property
    def reason(self) -> Optional[LostReason]:
        """The reason of the loss, if the lock was lost."""
        return self._notice.reason

    def is_set(self) -> bool:
        """Whether the lock was lost."""
        return self._notice.reason is not None

    async def wait(self, timeout: Optional[float] = None) -> bool:
        """Waits until the lock is lost, at most ``timeout`` seconds. False when it was not, is released, or is
        not held."""
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()

        def end() -> None:
            # The hold may belong to another loop, and this one may be closed by then.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(ended.set)

        self._notice.when_ended(end)
        waiting = loop.create_task(ended.wait())
        try:
            await asyncio.wait({waiting}, timeout=timeout)
        finally:
            waiting.cancel()
            self._notice.forget(end)
        return self.is_set()


class TaskLock(AnyLock):
    """The methods of a lock of one key or several, for asyncio."""

    _home: Home
    _home_of = staticmethod(home_of)
    _awaits = True

    @property
    def lost(self) -> Lost:
        """The loss of the present hold: ``is_set()``, ``wait(timeout)``, ``reason``."""
        return Lost(self._notice)

    async def acquire(self, *args: Any, **kwargs: Any) -> bool:
        """Acquires the lock; each class has its own parameters."""
        raise NotImplementedError

    async def __aenter__(self: L) -> L:
        if await self.acquire():
            return self
        raise NotAcquired("Unable to acquire lock within the time specified", self.name_text)

    async def __aexit__(
        self,
        exc_type: Optional[type[BaseException]],
        exc_value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        try:
            await self.release()
        except redis_errors.LockError as error:
            self._left(error)

    async def _acquire(
        self, blocking: Optional[bool], blocking_timeout: Optional[Number], token: Optional[Text]
    ) -> bool:
        wait = self._wait_of(blocking, blocking_timeout)
        terms = self._terms_for(token)
        on_lost = None if self._on_lost is None else self._tell
        hold = await self._home.engine().acquire(terms, wait, on_lost)
        if hold is None:
            return False
        before = self._take(hold)
        if before is not None:
            post(before.engine, before.give_back)
        return True

    def _tell(self, reason: LostReason) -> None:
        tell(self._on_lost, reason)

    async def locked(self) -> bool:
        """Whether any owner holds the lock, or one of several (``LOCK.INFO``, for which the user needs permission)."""
        return await self._home.engine().is_any_held(self._terms.keys)

    async def owned(self) -> bool:
        """Whether this object holds the lock, of several all of them, by the server (``LOCK.INFO``; a user without
        permission renews it for its remaining time instead)."""
        hold = self._hold()
        if hold is not None:
            return await self._home.engine().holds_lock(hold)
        token = self.local.token
        if token is None:
            return False
        return await self._home.engine().owns(self._claim(token))

    async def release(self) -> None:
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
        if hold is not None:
            # Raises while the lock is held in another event loop.
            has_ended(hold)
        self._forget(hold, token)
        await self._release(hold, None if token is None else self._claim(token))

    async def do_release(self, expected_token: Text) -> None:
        """Releases the hold of this owner, which another object may have acquired."""
        await self._release(None, self._claim(expected_token))

    async def _release(self, hold: Optional[Hold], claim: Optional[Claim]) -> None:
        try:
            if hold is not None:
                # A closed engine has released it.
                released = Released.NOT_HELD if has_ended(hold) else await hold.release()
            else:
                assert claim is not None
                released = await self._home.engine().release_owner(claim)
        except Error as error:
            if error.is_passing and hold is not None and self.local.token is None:
                # As with redis-py's asyncio lock, the release can be tried again.
                self.local.token = hold.claim.owner
            if self._is_over(hold, error, self._home.is_closed):
                raise self._no_longer("release") from error
            raise
        if released is Released.NOT_HELD:
            raise self._no_longer("release")

    async def extend(self, additional_time: Number, replace_ttl: bool = False) -> Literal[True]:
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
        return await self._set_lease(held, checked_lease(lease, "additional_time"), "extend")

    async def reacquire(self) -> Literal[True]:
        """Sets the lease to the timeout again. Raises as :meth:`extend` does."""
        held = self._held("reacquire")
        return await self._set_lease(held, self._check_timeout("reacquire"), "reacquire")

    async def _set_lease(self, held: Union[Hold, Claim], lease: float, doing: str) -> Literal[True]:
        try:
            if not isinstance(held, Hold):
                await self._home.engine().renew_owner(held, lease)
            elif has_ended(held):
                raise NotOwned("the server object is closed")
            else:
                await held.set_lease(lease)
        except NotOwned as error:
            raise self._no_longer(doing) from error
        return True


class Lock(TaskLock, BaseLock[Union["AsyncioClient", "Server"]]):
    """A lock of the redis-lock module, in the place of ``redis.asyncio.lock.Lock``.

    The parameters before the star are those of redis-py. ``timeout`` is the lease of a lock that is not renewed. A lock
    without a timeout is renewed until it is released, as redis-py's lock without a timeout never ends. ``sleep`` is
    accepted and not used, since a wait polls nothing.

    :param redis: a client of ``redis.asyncio``; all locks of a client share connections.
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
    :param owner: the owner, a name that no other task or process uses at the same time. It is a credential: every
        client that knows it can release the lock. None: a fresh one for each acquisition.
    :param mode: ``Mode.READ`` or ``Mode.WRITE`` for a read-write lock.
    :param renew: whether the lease is renewed; None: if there is no timeout.
    :param session: whether a hold is bound to a connection of its own (``SESSION``). The server renews the lease
        (``lock.session-lease``, 10 s) while the connection lives, and releases the lock at once when it ends, so also
        when this process ends for any reason. A broken connection is a loss (``LostReason.DISCONNECTED``), which a
        lease would outlive. The user needs ``+lock.info``. Not together with ``timeout``, ``lease`` or ``renew=False``.
    :param on_lost: called with the :class:`LostReason` when the lock is lost; a function, or a coroutine function.
    :raises ConfigError: when an argument is out of its bounds. It is a ``ValueError``.
    """

    async def acquire(
        self,
        blocking: Optional[bool] = None,
        blocking_timeout: Optional[Number] = None,
        token: Optional[Text] = None,
    ) -> bool:
        """Acquires the lock (``LOCK.ACQUIRE``); False when another owner holds it until the end of the wait.

        The waits of all processes are in one queue, in order. A wait with a limit returns at most 0.3 s after it, also
        when the server hangs; a wait without a limit goes on when connections break and servers are replaced.

        :param blocking: whether it waits; None: as the constructor says.
        :param blocking_timeout: how long it waits, in seconds; None: as the constructor says.
        :param token: the owner of this acquisition.
        :raises ConnectionFailed: when the server could not be reached within the limit, or the owner's name only waits
            for the answer to an earlier request.
        :raises Refused: when the server refuses (:class:`WrongType`, :class:`NoPermission`, :class:`Deadlock`, ...).
        """
        return await self._acquire(blocking, blocking_timeout, token)


def tell(on_lost: Optional[Callable[[LostReason], Any]], reason: LostReason) -> None:
    """Calls the function in a callback of its own, not in the engine's."""
    if on_lost is not None:
        asyncio.get_running_loop().call_soon(_tell, on_lost, reason)


def _tell(on_lost: Callable[[LostReason], Any], reason: LostReason) -> None:
    told = on_lost(reason)
    # Also that of a lambda, a partial or an object, which are no coroutine functions themselves.
    if inspect.isawaitable(told):
        task = asyncio.ensure_future(told)
        _telling.add(task)
        task.add_done_callback(_telling.discard)


#: A loop keeps no tasks by itself.
_telling: set[asyncio.Future[Any]] = set()
