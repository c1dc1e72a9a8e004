"""The common part of the classes of locks, for threads and for asyncio: the arguments, and the hold of each thread."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable
from typing import Any, Callable, Generic, Optional, TypeVar, Union

from redis import exceptions as redis_errors

from ._engine.commands import Claim, Kind
from ._engine.hold import Hold
from ._engine.loss import Notice
from ._engine.terms import (
    Terms,
    Text,
    check_function,
    check_slot,
    checked_flag,
    checked_key,
    checked_keys,
    checked_owner,
    checked_span,
    checked_terms,
    checked_wait,
)
from ._options import Number
from .errors import Closed, ConfigError, Error, NotAcquired, NotOwned, Refused
from .outcome import LostReason, Mode

logger = logging.getLogger("redis_lock_client")

#: What the constructor of a lock takes: the clients of redis-py, or a server object.
Client = TypeVar("Client")

#: The notice of a lock that is not held: no loss is to come.
NOT_HELD = Notice()
NOT_HELD.finish()


class ThreadLocal(threading.local):
    """The hold of the present thread."""

    token: Optional[bytes] = None
    hold: Optional[Hold] = None
    pid: int = 0


class OneForAll:
    """The hold of all threads."""

    def __init__(self) -> None:
        self.token: Optional[bytes] = None
        self.hold: Optional[Hold] = None
        self.pid = 0


class AnyLock:
    """The arguments of a lock of one key or several, checked, and what of it is held."""

    local: Union[ThreadLocal, OneForAll]
    #: What runs the engine, for threads or for asyncio.
    _home: Any
    #: Whether `on_lost` may be a coroutine function.
    _awaits = False

    def __init__(
        self,
        redis: Any,
        timeout: Optional[Number],
        blocking: bool,
        blocking_timeout: Optional[Number],
        thread_local: bool,
        raise_on_release_error: bool,
        *,
        lease: Optional[Number],
        margin: Optional[Number],
        owner: Optional[Text],
        mode: Mode,
        renew: Optional[bool],
        session: bool,
        on_lost: Optional[Callable[[LostReason], Any]],
    ) -> None:
        if timeout is not None and lease is not None:
            raise ConfigError("timeout is a lease that is not renewed, lease one that is renewed: give one of them")
        if not isinstance(mode, Mode):
            raise ConfigError("mode is a Mode")
        check_function(on_lost, "on_lost", self._awaits)
        checked_wait(blocking_timeout, "blocking_timeout")
        self.redis = redis
        #: The lease of a lock that is not renewed, in seconds.
        self.timeout = timeout
        self.blocking = blocking
        self.blocking_timeout = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self._lease = lease
        self._margin = margin
        self._owner = owner
        self._kind = Kind(mode)
        self._renew = None if renew is None else checked_flag(renew, "renew")
        self._session = checked_flag(session, "session")
        self._on_lost = on_lost
        self.local = ThreadLocal() if self.thread_local else OneForAll()
        self._terms_of: Any = timeout
        self._terms = self._checked()
        self._home = self._home_of(redis)

    @staticmethod
    def _home_of(client: Any) -> Any:
        """The home of a client or a server object.

        :raises ConfigError: for another object.
        """
        raise NotImplementedError

    def _keys(self) -> tuple[bytes, ...]:
        """The keys, checked."""
        raise NotImplementedError

    @property
    def name_text(self) -> Any:
        """The name, for errors."""
        raise NotImplementedError

    def _checked(self) -> Terms:
        # redis-py takes a timeout of 0 for none.
        timeout = self.timeout or None
        renews = timeout is None if self._renew is None else self._renew
        lease = timeout if timeout is not None else self._lease
        if self._session and (lease is not None or not renews):
            raise ConfigError("the server sets and renews the lease of a session: no timeout, no lease, no renew=False")
        return checked_terms(
            self._keys(),
            self._kind,
            lease=lease,
            margin=self._margin,
            owner=self._owner,
            renews=renews,
            is_session=self._session,
            lease_name="lease" if timeout is None else "timeout",
        )

    def _terms_for(self, token: Optional[Text]) -> Terms:
        """The terms of an acquisition by this owner."""
        if self.timeout != self._terms_of:
            self._terms_of, self._terms = self.timeout, self._checked()
        return self._terms if token is None else self._terms._replace(owner=checked_owner(token, self._kind))

    def _wait_of(self, blocking: Optional[bool], blocking_timeout: Optional[Number]) -> Optional[float]:
        """The limit of a wait; None for no limit."""
        limit = checked_wait(
            self.blocking_timeout if blocking_timeout is None else blocking_timeout, "blocking_timeout"
        )
        return limit if (self.blocking if blocking is None else blocking) else 0.0

    def _take(self, hold: Hold) -> Optional[Hold]:
        """Keeps a new hold; the one before, which this object can no longer release."""
        before = self._hold()
        local = self.local
        # The token is last: a hold without its token is not there.
        local.pid, local.hold = os.getpid(), hold
        local.token = hold.claim.owner
        return before

    def _hold(self) -> Optional[Hold]:
        """The hold of this thread. A forked child has none of its parent's holds."""
        local = self.local
        hold = local.hold
        if hold is None:
            return None
        if local.pid != os.getpid():
            local.token = local.hold = None
            return None
        # A token that the program has set itself names another hold.
        return hold if local.token == hold.claim.owner else None

    def _to_release(self) -> tuple[Optional[Hold], Optional[Text]]:
        """The hold; or the owner that the program has set itself."""
        hold, token = self._hold(), self.local.token
        if hold is None and token is None:
            raise NotAcquired("Cannot release a lock that's not owned or is already unlocked.", self.name_text)
        return hold, token if hold is None else None

    def _forget(self, hold: Optional[Hold], token: Any = None) -> None:
        """Forgets this hold, or this owner that the program has set itself, unless another one has taken its place."""
        local = self.local
        if local.token is token if hold is None else local.hold is hold:
            local.token = local.hold = None

    def _claim(self, token: Text) -> Claim:
        return Claim(self._terms.keys, checked_owner(token, self._kind), self._kind)

    def _held(self, doing: str) -> Union[Hold, Claim]:
        """What is held, for a method that needs it."""
        hold = self._hold()
        if hold is not None:
            return hold
        if self.local.token is None:
            raise NotAcquired(f"Cannot {doing} an unlocked lock", self.name_text)
        return self._claim(self.local.token)

    def _check_timeout(self, doing: str) -> float:
        if self.timeout is None:
            raise NotAcquired(f"Cannot {doing} a lock with no timeout", self.name_text)
        return self._terms_for(None).lease

    @property
    def _notice(self) -> Notice:
        hold = self._hold()
        return NOT_HELD if hold is None else hold.notice

    def valid_for(self) -> float:
        """How long the lock is certainly still held, in seconds, of several keys all of them: the lease less a
        millisecond, less the time since the last confirmed request was sent, by the monotonic or the wall clock,
        whichever shows more. 0: not held."""
        hold = self._hold()
        return 0.0 if hold is None else hold.valid_for()

    @staticmethod
    def _added(hold: Hold, additional: Number, replaces: bool) -> float:
        """The lease after an extension. The rest of the present one is that of this machine's clocks."""
        span = checked_span(additional, "additional_time")
        return span if replaces else span + hold.valid_for()

    @property
    def _replaces_ttl(self) -> bool:
        """celery-redbeat puts a script of its own in the place of redis-py's `lua_extend`, by which the time is the new
        lease and is not added."""
        return "lua_extend" in self.__dict__

    @staticmethod
    def _is_over(hold: Optional[Hold], error: Error, is_closed: bool) -> bool:
        """Whether an error of a release says that the lock is not held any more: the key holds something else, or the
        server object was closed."""
        if isinstance(error, Closed):
            return hold is not None and is_closed
        return isinstance(error, Refused) and error.code in ("WRONGTYPE", "LOCKTYPE")

    def _no_longer(self, doing: str) -> NotOwned:
        return NotOwned(f"Cannot {doing} a lock that's no longer owned", self.name_text)

    def _left(self, error: redis_errors.LockError) -> None:
        """The `with` statement has ended, and the release has failed."""
        if self.raise_on_release_error:
            raise error
        logger.warning("Lock was unlocked or no longer owned when exiting context manager.")


class BaseLock(AnyLock, Generic[Client]):
    """The arguments of redis-py's ``Lock``."""

    def __init__(
        self,
        redis: Client,
        name: Text,
        timeout: Optional[Number] = None,
        sleep: Number = 0.1,
        blocking: bool = True,
        blocking_timeout: Optional[Number] = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
        *,
        lease: Optional[Number] = None,
        margin: Optional[Number] = None,
        owner: Optional[Text] = None,
        mode: Mode = Mode.EXCLUSIVE,
        renew: Optional[bool] = None,
        session: bool = False,
        on_lost: Optional[Callable[[LostReason], Any]] = None,
    ) -> None:
        self.name = name
        self.sleep = sleep
        super().__init__(
            redis,
            timeout,
            blocking,
            blocking_timeout,
            thread_local,
            raise_on_release_error,
            lease=lease,
            margin=margin,
            owner=owner,
            mode=mode,
            renew=renew,
            session=session,
            on_lost=on_lost,
        )

    def _keys(self) -> tuple[bytes, ...]:
        return (checked_key(self.name),)

    @property
    def name_text(self) -> Union[str, bytes]:
        """The name, for errors."""
        return _name_of(self.name)

    @property
    def token(self) -> Optional[int]:
        """The fencing token of the hold: higher than that of every earlier grant of this name. Pass it to the resource
        that the lock protects, which has to refuse lower ones. None: not held by this object."""
        hold = self._hold()
        return None if hold is None else hold.token


class BaseMultiLock(AnyLock, Generic[Client]):
    """The arguments of ``MultiLock``."""

    def __init__(
        self,
        redis: Client,
        names: Iterable[Text],
        timeout: Optional[Number] = None,
        *,
        blocking: bool = True,
        blocking_timeout: Optional[Number] = None,
        thread_local: bool = True,
        raise_on_release_error: bool = True,
        lease: Optional[Number] = None,
        margin: Optional[Number] = None,
        owner: Optional[Text] = None,
        mode: Mode = Mode.EXCLUSIVE,
        renew: Optional[bool] = None,
        on_lost: Optional[Callable[[LostReason], Any]] = None,
    ) -> None:
        #: The keys, in the caller's order.
        self.names: tuple[Union[str, bytes], ...] = checked_names(names)
        super().__init__(
            redis,
            timeout,
            blocking,
            blocking_timeout,
            thread_local,
            raise_on_release_error,
            lease=lease,
            margin=margin,
            owner=owner,
            mode=mode,
            renew=renew,
            session=False,
            on_lost=on_lost,
        )
        check_slot(self._terms.keys, self._home.source.is_cluster)

    def _keys(self) -> tuple[bytes, ...]:
        return tuple(checked_key(name) for name in self.names)

    @property
    def name_text(self) -> tuple[Union[str, bytes], ...]:
        """The names, for errors."""
        return self.names

    @property
    def tokens(self) -> dict[Union[str, bytes], int]:
        """The fencing token of each key, by its name. A token fences the resource that its own key protects; tokens of
        two keys cannot be compared. Empty: not held by this object."""
        hold = self._hold()
        return {} if hold is None else dict(zip(self.names, hold.tokens))


def _name_of(name: Text) -> Union[str, bytes]:
    return name if isinstance(name, (str, bytes)) else bytes(name)


def checked_names(names: Any) -> tuple[Union[str, bytes], ...]:
    """The names of several keys, each of them once."""
    if isinstance(names, (str, bytes, bytearray, memoryview)) or not isinstance(names, Iterable):
        raise ConfigError("the keys of a MultiLock are several texts or bytes, not one")
    found = list(names)
    checked_keys(found)
    return tuple(map(_name_of, found))
