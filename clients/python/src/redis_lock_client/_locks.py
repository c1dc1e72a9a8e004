"""The common part of the classes of locks, for threads and for asyncio: the arguments, the hold of each thread, and the
methods that ask the server, as coroutines."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Callable, Generic, Optional, TypeVar

from redis import exceptions as redis_errors
from redis.crc import key_slot

from ._acquire import Acquisition
from ._hold import Hold, logger
from ._requests import holds_lock, owners, owns, release, release_owner, renews, set_lease
from ._terms import (
    Claim,
    Key,
    Number,
    Terms,
    Text,
    check_function,
    checked_flag,
    checked_key,
    checked_lease,
    checked_names,
    checked_span,
    checked_terms,
    checked_wait,
    name_of,
    owned_by,
)
from .errors import Closed, ConfigError, ConnectionFailed, NotAcquired, NotOwned
from .outcome import LostReason, Mode, Released

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ._options import LockOptions

B = TypeVar("B", bound="BaseLock[Any]")
#: What the constructor of a lock takes: the clients of redis-py, or a server object.
Client = TypeVar("Client")


class ThreadLocal(threading.local):
    """What the present thread holds: the owner, which is redis-py's token, and the hold."""

    token: Optional[bytes] = None
    hold: Optional[Hold] = None


class AnyLock:
    """A lock of one key or several: the arguments, checked, and what of it is held."""

    local: Any
    #: Whether it is for asyncio.
    _is_asyncio = False
    _hub_of: Callable[[Any], Any]

    def _configure(self, redis: Any, given: dict[str, Any]) -> None:
        """Checks and keeps the arguments of the constructor, by their names."""
        timeout = given["timeout"]
        if timeout is not None and given["lease"] is not None:
            raise ConfigError("timeout is a lease that is not renewed, lease one that is renewed: give one of them")
        if not isinstance(given["mode"], Mode):
            raise ConfigError("mode is a Mode")
        check_function(given["on_lost"], "on_lost", self._is_asyncio)
        checked_wait(given["blocking_timeout"], "blocking_timeout")
        self.redis = redis
        #: The lease of a lock that is not renewed, in seconds.
        self.timeout: Optional[Number] = timeout
        self.blocking: bool = given["blocking"]
        self.blocking_timeout: Optional[Number] = given["blocking_timeout"]
        self.thread_local = bool(given["thread_local"])
        self.raise_on_release_error: bool = given["raise_on_release_error"]
        self._renew = None if given["renew"] is None else checked_flag(given["renew"], "renew")
        self._session = checked_flag(given.get("session", False), "session")
        self._on_lost: Optional[Callable[[LostReason], Any]] = given["on_lost"]
        self._given = {name: given[name] for name in ("lease", "margin", "owner", "max_hold", "mode")}
        self.local = ThreadLocal() if self.thread_local else SimpleNamespace(token=None, hold=None)
        self._terms_of: Any = timeout
        self._terms = self._checked()
        #: The hub of the client, of asyncio the hubs of its event loops.
        self._hub = self._hub_of(redis)

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
        given = self._given if timeout is None else {**self._given, "lease": timeout}
        if self._session and (given["lease"] is not None or not renews):
            raise ConfigError("the server sets and renews the lease of a session: no timeout, no lease, no renew=False")
        lease_name = "lease" if timeout is None else "timeout"
        return checked_terms(self._keys(), **given, renews=renews, is_session=self._session, lease_name=lease_name)

    def _terms_for(self, token: Optional[Text]) -> Terms:
        """The terms of an acquisition by this owner."""
        if self.timeout != self._terms_of:
            self._terms_of, self._terms = self.timeout, self._checked()
        return self._terms if token is None else owned_by(self._terms, token)

    # What is held

    def _hold(self) -> Optional[Hold]:
        """The hold of this thread. A forked child has none of its parent's holds."""
        local = self.local
        hold: Optional[Hold] = local.hold
        if hold is None:
            return None
        if hold.is_inherited:
            local.token = local.hold = None
            return None
        # A token that the program has set itself names another hold.
        return hold if local.token == hold.claim.owner else None

    def _forget(self, hold: Optional[Hold], token: Any = None) -> None:
        """Forgets this hold, or this owner that the program has set itself, unless another one has taken its place."""
        local = self.local
        if local.token is token if hold is None else local.hold is hold:
            local.token = local.hold = None

    def _claim(self, token: Text) -> Claim:
        return Claim(owned_by(self._terms, token))

    def valid_for(self) -> float:
        """How long the lock is certainly still held, in seconds, of several keys all of them: the lease less a
        millisecond, less the time since the last confirmed request was sent, by the monotonic or the wall clock,
        whichever shows more. 0: not held."""
        hold = self._hold()
        return 0.0 if hold is None else hold.valid_for()

    # The methods

    async def _acquire(self, blocking: Optional[bool], timeout: Optional[Number], token: Optional[Text]) -> bool:
        limit = checked_wait(self.blocking_timeout if timeout is None else timeout, "blocking_timeout")
        if not (self.blocking if blocking is None else blocking):
            limit = 0.0
        hub, terms = self._hub.here(), self._terms_for(token)
        hub.begin()
        acquisition = Acquisition(hub, terms, limit, self._on_lost)
        try:
            hold = await acquisition.run()
            if hold is None:
                return False
            local, before = self.local, self._hold()
            # The token is last: a hold without its token is not there.
            local.hold = hold
            local.token = hold.claim.owner
        except BaseException:
            # Also if a signal handler has raised, at any moment.
            acquisition.give_up()
            if acquisition.hold is not None:
                self._forget(acquisition.hold)
            raise
        if before is not None:
            # This object can no longer release it.
            before.hub.give_back(before)
        return True

    async def _locked(self) -> bool:
        hub = self._hub.here()
        for key in self._terms.keys:
            if await owners(hub, key):
                return True
        return False

    async def _owned(self) -> bool:
        hold, token = self._hold(), self.local.token
        if hold is not None:
            return not hold.is_gone and bool(await holds_lock(hold))
        hub = self._hub.here()
        return token is not None and bool(await owns(hub, self._claim(token)))

    async def _release(self) -> None:
        hold, token = self._hold(), self.local.token
        if hold is None:
            if token is None:
                raise NotAcquired("Cannot release a lock that's not owned or is already unlocked.", self.name_text)
            self._forget(None, token)
            await self._do_release(token)
            return
        is_gone = hold.is_gone
        try:
            released = Released.NOT_HELD if is_gone else await release(hold)
        except BaseException as error:
            # A signal handler may have raised before the release began. Otherwise this does nothing.
            hold.hub.abandon(hold)
            self._forget(hold)
            if self._is_asyncio and isinstance(error, ConnectionFailed) and self.local.token is None:
                # As with redis-py's asyncio lock, the release can be tried again.
                self.local.token = token
            raise
        self._forget(hold)
        if released is Released.NOT_HELD:
            raise self._no_longer("release")

    async def _do_release(self, token: Text) -> None:
        if await release_owner(self._hub.here(), self._claim(token)) is Released.NOT_HELD:
            raise self._no_longer("release")

    async def _set(self, additional: Optional[Number], replaces: bool) -> None:
        """An extension; without a time, sets the lease to the timeout again."""
        doing = "reacquire" if additional is None else "extend"
        hold, token = self._hold(), self.local.token
        if token is None:
            raise NotAcquired(f"Cannot {doing} an unlocked lock", self.name_text)
        if self.timeout is None:
            raise NotAcquired(f"Cannot {doing} a lock with no timeout", self.name_text)
        lease = self._terms_for(None).lease
        if additional is not None:
            span = checked_span(additional, "additional_time")
            if hold is not None and not replaces and "lua_extend" not in self.__dict__:
                # The rest of the present lease is that of this machine's clocks. (celery-redbeat puts a script of its
                # own in the place of redis-py's `lua_extend`, by which the time is the new lease.)
                span += hold.valid_for()
            lease = checked_lease(span, "additional_time")
        if hold is None:
            hub = self._hub.here()
            if not await renews(hub, self._claim(token), lease):
                raise self._no_longer(doing)
            return
        if hold.is_gone:
            raise self._no_longer(doing)
        try:
            await set_lease(hold, lease)
        except (NotOwned, Closed) as error:
            raise self._no_longer(doing) from error

    def _no_longer(self, doing: str) -> NotOwned:
        return NotOwned(f"Cannot {doing} a lock that's no longer owned", self.name_text)

    def _not_acquired(self) -> NotAcquired:
        return NotAcquired("Unable to acquire lock within the time specified", self.name_text)

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
        if self._hub.is_cluster and len(set(map(key_slot, self._terms.keys))) > 1:
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
