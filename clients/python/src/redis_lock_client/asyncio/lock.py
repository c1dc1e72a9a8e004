"""``Lock`` with the interface of redis-py's asyncio ``Lock``."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Literal, Optional, TypeVar, Union

import redis.asyncio.lock
from redis import exceptions as redis_errors

from .._base import AnyLock, BaseLock
from .._notice import LostState
from .._options import Number
from .._steps import is_any_held
from .._terms import Text
from ..errors import ConnectionFailed, NotAcquired
from ._loops import Hubs, TaskHub, has_ended, hubs_of

if TYPE_CHECKING:
    from .._options import AsyncioClient
    from .server import Server

L = TypeVar("L", bound="TaskLock")


class Lost(LostState):
    """The loss of a lock, if there was one."""

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

    _hub: Hubs
    _hub_of = staticmethod(hubs_of)
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

    async def __aexit__(self, *_: object) -> None:
        try:
            await self.release()
        except redis_errors.LockError as error:
            self._left(error)

    async def _acquire(
        self, blocking: Optional[bool], blocking_timeout: Optional[Number], token: Optional[Text]
    ) -> bool:
        hub = self._hub.here()
        acquisition = self._begin(hub, blocking, blocking_timeout, token)
        try:
            await hub.run(acquisition.steps())
            return self._take(acquisition)
        except BaseException:
            self._undo(acquisition)
            raise

    async def locked(self) -> bool:
        """Whether any owner holds the lock, or one of several, see :meth:`redis_lock_client.Lock.locked`."""
        hub = self._hub.here()
        return bool(await hub.run(is_any_held(hub, self._terms.keys)))

    async def owned(self) -> bool:
        """Whether this object holds the lock, by the server, see :meth:`redis_lock_client.Lock.owned`."""
        hub = self._hub_of_hold()
        return hub is not None and bool(await hub.run(self._owning(hub)))

    async def release(self) -> None:
        """Releases the lock, see :meth:`redis_lock_client.Lock.release`."""
        hold, token = self._to_release()
        # Raises while the lock is held in another event loop.
        hub = self._hub_of_hold()
        self._forget(hold, token)
        if hub is None:
            raise self._no_longer("release")
        try:
            await hub.run(self._releasing(hub, hold, token))
        except BaseException as error:
            if hold is not None:
                hub.abandon(hold)
                if isinstance(error, ConnectionFailed) and self.local.token is None:
                    # As with redis-py's asyncio lock, the release can be tried again.
                    self.local.token = hold.claim.owner
            raise

    async def do_release(self, expected_token: Text) -> None:
        """Releases the hold of this owner, which another object may have acquired."""
        hub = self._hub.here()
        await hub.run(self._releasing(hub, None, expected_token))

    async def extend(self, additional_time: Number, replace_ttl: bool = False) -> Literal[True]:
        """Adds time to the lease, or replaces it, see :meth:`redis_lock_client.Lock.extend`."""
        return await self._set("extend", additional_time, replace_ttl)

    async def reacquire(self) -> Literal[True]:
        """Sets the lease to the timeout again, see :meth:`redis_lock_client.Lock.reacquire`."""
        return await self._set("reacquire", None, False)

    async def _set(self, doing: str, additional_time: Optional[Number], replaces: bool) -> Literal[True]:
        hub = self._hub_of_hold()
        if hub is None:
            raise self._no_longer(doing)
        await hub.run(self._setting(hub, additional_time, replaces))
        return True

    def _hub_of_hold(self) -> Optional[TaskHub]:
        """The hub of the hold, or of the running loop if nothing is held; None if the hold has ended with its loop."""
        hold = self._hold()
        if hold is None:
            return self._hub.here()
        hub: Any = hold.hub
        return None if has_ended(hold) else hub


class Lock(TaskLock, BaseLock[Union["AsyncioClient", "Server"]], redis.asyncio.lock.Lock):  # type: ignore[misc]
    """A lock of the redis-lock module, in the place of ``redis.asyncio.lock.Lock``: :class:`redis_lock_client.Lock`,
    with the same parameters, whose methods are coroutines.

    :param redis: a client of ``redis.asyncio``; all locks of a client share connections.
    :param on_lost: called with the :class:`LostReason` when the lock is lost; a function, or a coroutine function.
    :raises ConfigError: when an argument is out of its bounds. It is a ``ValueError``.
    """

    async def acquire(
        self,
        blocking: Optional[bool] = None,
        blocking_timeout: Optional[Number] = None,
        token: Optional[Text] = None,
    ) -> bool:
        """Acquires the lock; False when another owner holds it until the end of the wait. See
        :meth:`redis_lock_client.Lock.acquire`. Cancelled, it is given up.

        :param blocking: whether it waits; None: as the constructor says.
        :param blocking_timeout: how long it waits, in seconds; None: as the constructor says.
        :param token: the owner of this acquisition.
        """
        return await self._acquire(blocking, blocking_timeout, token)
