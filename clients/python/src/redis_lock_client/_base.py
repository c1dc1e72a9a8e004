"""The common part of the classes of locks, for threads and for asyncio: the arguments, and the hold of each thread."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Callable, Generic, Optional, TypeVar, Union

from redis import exceptions as redis_errors

from ._acquire import Acquisition, Steps
from ._hold import Hold, logger
from ._hub import Hub
from ._notice import Notice
from ._options import Number
from ._steps import holds_lock, owns, release, release_owner, renew_owner, set_lease
from ._terms import (
    Claim,
    Key,
    Kind,
    Terms,
    Text,
    check_function,
    checked_flag,
    checked_key,
    checked_lease,
    checked_names,
    checked_owner,
    checked_span,
    checked_terms,
    checked_wait,
    name_of,
)
from .errors import Closed, ConfigError, NotAcquired, NotOwned, Refused
from .outcome import LostReason, Mode, Released

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._options import LockOptions

B = TypeVar("B", bound="BaseLock[Any]")
#: What the constructor of a lock takes: the clients of redis-py, or a server object.
Client = TypeVar("Client")

#: The notice of a lock that is not held: no loss is to come.
NOT_HELD = Notice()
NOT_HELD.finish()


class ThreadLocal(threading.local):
    """The hold of the present thread."""

    token: Optional[bytes] = None
    hold: Optional[Hold] = None


class OneForAll:
    """The hold of all threads."""

    def __init__(self) -> None:
        self.token: Optional[bytes] = None
        self.hold: Optional[Hold] = None


class AnyLock:
    """The arguments of a lock of one key or several, checked, and what of it is held."""

    local: Union[ThreadLocal, OneForAll]
    #: The hub of the client, of asyncio the hubs of its event loops.
    _hub: Any
    #: Whether `on_lost` may be a coroutine function.
    _awaits = False

    def _configure(self, redis: Any, given: dict[str, Any]) -> None:
        """Checks and keeps the arguments of the constructor, by their names."""
        timeout, mode = given["timeout"], given["mode"]
        if timeout is not None and given["lease"] is not None:
            raise ConfigError("timeout is a lease that is not renewed, lease one that is renewed: give one of them")
        if not isinstance(mode, Mode):
            raise ConfigError("mode is a Mode")
        check_function(given["on_lost"], "on_lost", self._awaits)
        checked_wait(given["blocking_timeout"], "blocking_timeout")
        self.redis = redis
        #: The lease of a lock that is not renewed, in seconds.
        self.timeout: Optional[Number] = timeout
        self.blocking: bool = given["blocking"]
        self.blocking_timeout: Optional[Number] = given["blocking_timeout"]
        self.thread_local = bool(given["thread_local"])
        self.raise_on_release_error: bool = given["raise_on_release_error"]
        self._kind = Kind(mode)
        self._renew = None if given["renew"] is None else checked_flag(given["renew"], "renew")
        self._session = checked_flag(given.get("session", False), "session")
        self._on_lost: Optional[Callable[[LostReason], Any]] = given["on_lost"]
        self._terms_given = {name: given[name] for name in ("lease", "margin", "owner", "max_hold")}
        self.local = ThreadLocal() if self.thread_local else OneForAll()
        self._terms_of: Any = timeout
        self._terms = self._checked()
        self._hub = self._hub_of(redis)

    @staticmethod
    def _hub_of(client: Any) -> Any:
        """The hub of a client or a server object.

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
        lease = timeout if timeout is not None else self._terms_given["lease"]
        if self._session and (lease is not None or not renews):
            raise ConfigError("the server sets and renews the lease of a session: no timeout, no lease, no renew=False")
        return checked_terms(
            self._keys(),
            self._kind,
            **{**self._terms_given, "lease": lease},
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

    def _begin(
        self, hub: Hub, blocking: Optional[bool], blocking_timeout: Optional[Number], token: Optional[Text]
    ) -> Acquisition:
        """An acquisition with these arguments."""
        wait, terms = self._wait_of(blocking, blocking_timeout), self._terms_for(token)
        hub.begin()
        return Acquisition(hub, terms, wait, self._on_lost)

    def _take(self, acquisition: Acquisition) -> bool:
        """Keeps what was acquired, if it was."""
        hold = acquisition.hold
        if hold is None:
            return False
        before = self._hold()
        # The token is last: a hold without its token is not there.
        self.local.hold = hold
        self.local.token = hold.claim.owner
        if before is not None:
            # This object can no longer release it.
            before.hub.give_back(before)
        return True

    def _undo(self, acquisition: Acquisition) -> None:
        """The acquisition has failed; also if a signal handler has raised, at any moment."""
        acquisition.give_up()
        if acquisition.hold is not None:
            self._forget(acquisition.hold)

    def _hold(self) -> Optional[Hold]:
        """The hold of this thread. A forked child has none of its parent's holds."""
        local = self.local
        hold = local.hold
        if hold is None:
            return None
        if hold.is_inherited:
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

    def _releasing(self, hub: Hub, hold: Optional[Hold], token: Optional[Text]) -> Steps:
        """The steps of the release of a hold, or of an owner."""
        try:
            released = yield from (release_owner(hub, self._claim(token or b"")) if hold is None else release(hold))
        except Closed as error:
            if hold is not None:
                raise self._no_longer("release") from error
            raise
        except Refused as error:
            # The key holds something else.
            if error.code in ("WRONGTYPE", "LOCKTYPE"):
                raise self._no_longer("release") from error
            raise
        if released is Released.NOT_HELD:
            raise self._no_longer("release")

    def _setting(self, hub: Hub, additional: Optional[Number], replaces: bool) -> Steps:
        """The steps of an extension; without a time, of a lease that is set to the timeout again."""
        doing = "reacquire" if additional is None else "extend"
        held = self._held(doing)
        lease = self._check_timeout(doing)
        if additional is not None:
            span = checked_span(additional, "additional_time")
            if isinstance(held, Hold) and not replaces and "lua_extend" not in self.__dict__:
                # The rest of the present lease is that of this machine's clocks. (celery-redbeat puts a script of its
                # own in the place of redis-py's `lua_extend`, by which the time is the new lease.)
                span += held.valid_for()
            lease = checked_lease(span, "additional_time")
        try:
            yield from (set_lease(held, lease) if isinstance(held, Hold) else renew_owner(hub, held, lease))
        except NotOwned as error:
            raise self._no_longer(doing) from error
        except Closed as error:
            if isinstance(held, Hold):
                raise self._no_longer(doing) from error
            raise
        return True

    def _owning(self, hub: Hub) -> Steps:
        """Whether this object holds the lock, by the server."""
        hold = self._hold()
        if hold is not None:
            return (yield from holds_lock(hold))
        token = self.local.token
        return token is not None and (yield from owns(hub, self._claim(token)))

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
        name: Key,
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
        max_hold: Optional[Number] = None,
    ) -> None:
        self.name = name
        self.sleep = sleep
        self._configure(redis, locals())

    @classmethod
    def with_options(cls: type[B], **options: Unpack[LockOptions]) -> type[B]:
        """The class with other defaults, for ``client.lock(name, lock_class=Lock.with_options(lease=5))``: redis-py's
        ``lock()`` passes only its own arguments on.

        :raises ConfigError: for an argument that the constructor does not have.
        """
        known = set(inspect.signature(BaseLock.__init__).parameters) - {"self", "redis", "name"}
        for option in options:
            if option not in known:
                raise ConfigError(f"a lock has no option {option}")

        def begin(self: Any, *args: Any, **kwargs: Any) -> None:
            cls.__init__(self, *args, **{**options, **kwargs})

        return type(cls.__name__, (cls,), {"__init__": begin, "__module__": cls.__module__, "__doc__": cls.__doc__})

    def _keys(self) -> tuple[bytes, ...]:
        return (checked_key(self.name),)

    @property
    def name_text(self) -> Any:
        """The name, for errors."""
        return name_of(self.name)

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
        names: Iterable[Key],
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
        max_hold: Optional[Number] = None,
    ) -> None:
        #: The keys, in the caller's order.
        self.names: tuple[Any, ...] = checked_names(names)
        self._configure(redis, locals())
        if not self._hub.check_slots(self._terms.keys):
            raise ConfigError("in a cluster the keys of a MultiLock are in one slot: give them one hash tag, {...}")

    def _keys(self) -> tuple[bytes, ...]:
        return tuple(checked_key(name) for name in self.names)

    @property
    def name_text(self) -> tuple[Any, ...]:
        """The names, for errors."""
        return self.names

    @property
    def tokens(self) -> dict[Any, int]:
        """The fencing token of each key, by its name. A token fences the resource that its own key protects; tokens of
        two keys cannot be compared. Empty: not held by this object."""
        hold = self._hold()
        return {} if hold is None else dict(zip(self.names, hold.tokens))
