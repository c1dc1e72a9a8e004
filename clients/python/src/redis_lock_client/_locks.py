"""The common part of the classes of locks, for threads and for asyncio: the arguments, the hold of each thread, and the
methods that ask the server, as coroutines."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Callable, Generic, Literal, Optional, TypedDict, TypeVar

from redis import exceptions as redis_errors
from redis.crc import key_slot

from ._acquire import Acquisition
from ._hold import Hold, left, logger
from ._hub import hub_of
from ._info import LockInfo
from ._requests import at_most_once, holds_lock, info, leave, owns, release, release_owner, renews, resume, set_lease
from ._terms import (
    DEFAULT_WITHIN,
    MOST_COUNT,
    Key,
    Number,
    Terms,
    Text,
    check_function,
    checked_flag,
    checked_key,
    checked_lease,
    checked_names,
    checked_note,
    checked_number,
    checked_rest,
    checked_span,
    checked_terms,
    checked_wait,
    name_of,
    owned_by,
)
from .errors import Closed, ConfigError, ConnectionFailed, Error, NotAcquired, NotOwned, Refused, WrongType
from .outcome import LostReason, Mode, Released

if TYPE_CHECKING:
    # For type checkers only; the package does not need it.
    from typing_extensions import Unpack

B = TypeVar("B", bound="BaseLock[Any]")
#: What the constructor of a lock takes: the clients of redis-py, or a server object; and a name, or several.
Client = TypeVar("Client")
Name = TypeVar("Name")


class _Waits(TypedDict, total=False):
    blocking: bool
    blocking_timeout: Optional[Number]
    thread_local: bool
    raise_on_release_error: bool


class _Holds(TypedDict, total=False):
    lease: Optional[Number]
    margin: Optional[Number]
    owner: Optional[Text]
    renew: Optional[bool]
    on_lost: Optional[Callable[[LostReason], Any]]
    max_hold: Optional[Number]
    replicas: Optional[int]
    replicas_within: Number
    queue: Optional[int]


class ClassOptions(_Holds, total=False):
    """The options of ``Lock`` that redis-py's ``Lock`` does not have."""

    mode: Mode
    session: bool
    note: Optional[Text]


class MultiLockOptions(_Waits, _Holds, total=False):
    """The options of ``MultiLock``."""

    mode: Mode


class ReadWriteLockOptions(_Waits, _Holds, total=False):
    """The options of ``ReadWriteLock``."""

    sleep: Number
    session: bool


class ThreadLocal(threading.local):
    """What the present thread holds: the owner, which is redis-py's token, and the hold."""

    token: Optional[bytes] = None
    hold: Optional[Hold] = None
    #: Whether the last hold was left, so that the end of a ``with`` statement releases nothing.
    is_left = False


class AnyLock(Generic[Client, Name]):
    """A lock of one key or several: the arguments, checked, what of it is held, and the methods, as coroutines. (Those
    before the star are the arguments of redis-py's ``Lock``.)"""

    local: Any
    #: The class of the hub of a client: for threads, or for asyncio.
    _hubs: Any

    def __init__(
        self,
        redis: Client,
        name: Name,
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
        note: Optional[Text] = None,
        replicas: Optional[int] = None,
        replicas_within: Number = DEFAULT_WITHIN,
        queue: Optional[int] = None,
    ) -> None:
        if timeout is not None and lease is not None:
            raise ConfigError("timeout is a lease that is not renewed, lease one that is renewed: give one of them")
        if not isinstance(mode, Mode):
            raise ConfigError("mode is a Mode")
        check_function(on_lost, "on_lost", self._hubs.is_asyncio)
        checked_wait(blocking_timeout, "blocking_timeout")
        self.redis = redis
        #: The name or names for errors, and the keys.
        self.name_text, self._keys = self._named(name)
        #: The lease of a lock that is not renewed, in seconds.
        self.timeout: Optional[Number] = timeout
        self.sleep = sleep
        self.blocking = blocking
        self.blocking_timeout: Optional[Number] = blocking_timeout
        self.thread_local = bool(thread_local)
        self.raise_on_release_error = raise_on_release_error
        self._renew = None if renew is None else checked_flag(renew, "renew")
        self._session = checked_flag(session, "session")
        self._on_lost = on_lost
        self._given: dict[str, Any] = {
            "lease": lease,
            "margin": margin,
            "owner": owner,
            "max_hold": max_hold,
            "mode": mode,
        }
        self._given.update(note=note, replicas=replicas, replicas_within=replicas_within, queue=queue)
        self.local = ThreadLocal() if self.thread_local else SimpleNamespace(token=None, hold=None, is_left=False)
        self._terms_of: Any = timeout
        self._terms = self._checked()
        #: The hub of the client, of asyncio the hubs of its event loops.
        self._hub = hub_of(redis, self._hubs)

    def _named(self, name: Name) -> tuple[Any, tuple[bytes, ...]]:
        """Keeps the name, or the names: as errors have them, and the keys, checked."""
        raise NotImplementedError

    def _checked(self) -> Terms:
        # redis-py takes a timeout of 0 for none.
        timeout = self.timeout or None
        renews = timeout is None if self._renew is None else self._renew
        given = self._given if timeout is None else {**self._given, "lease": timeout}
        if self._session and (given["lease"] is not None or not renews):
            raise ConfigError("the server sets and renews the lease of a session: no timeout, no lease, no renew=False")
        lease_name = "lease" if timeout is None else "timeout"
        return checked_terms(self._keys, **given, renews=renews, is_session=self._session, lease_name=lease_name)

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
            # The hold stays there for `lost`.
            local.token = None
            return None
        # A token that the program has set itself names another hold.
        return hold if local.token == hold.claim.owner else None

    def _hold_to_lose(self) -> Optional[Hold]:
        """The hold of this thread, or of the parent if this is a forked child, where that is lost."""
        hold: Optional[Hold] = self.local.hold
        return hold if hold is not None and hold.is_inherited else self._hold()

    def _forget(self, hold: Optional[Hold], token: Any = None) -> None:
        """Forgets this hold, or this owner that the program has set itself, unless another one has taken its place."""
        local = self.local
        if local.token is token if hold is None else local.hold is hold:
            local.token = local.hold = None

    @property
    def owner(self) -> Optional[bytes]:
        """The owner of the hold, a credential; None: not held by this object."""
        hold = self._hold()
        return None if hold is None else hold.claim.owner

    def valid_for(self) -> float:
        """How long the lock is certainly still held, in seconds, of several keys all of them: the lease less a
        millisecond, less the time since the last confirmed request was sent, by the monotonic or the wall clock,
        whichever shows more. 0: not held."""
        hold = self._hold()
        return 0.0 if hold is None else hold.valid_for()

    # The methods

    async def _acquire(
        self,
        blocking: Optional[bool] = None,
        blocking_timeout: Optional[Number] = None,
        token: Optional[Text] = None,
    ) -> bool:
        """Acquires the lock (``LOCK.ACQUIRE``) or all keys (``LOCK.MACQUIRE``); False when another owner holds it until
        the end of the wait.

        The waits of all processes are in one queue, in order. Once the server has answered, a wait goes on when
        connections break and servers are replaced. How long a request may take is the client's ``socket_timeout``. A
        wait that is cancelled, or ended by a signal handler that raises, is given up.

        :param blocking: whether it waits; None: as the constructor says.
        :param blocking_timeout: how long it waits, in seconds; None: as the constructor says.
        :param token: the owner of this acquisition.
        :raises ConnectionFailed: when the first request failed, or the server could not be reached at the limit.
        :raises Refused: when the server refuses (:class:`WrongType`, :class:`NoPermission`, :class:`Deadlock`, ...).
        """
        limit = checked_wait(
            self.blocking_timeout if blocking_timeout is None else blocking_timeout, "blocking_timeout"
        )
        if not (self.blocking if blocking is None else blocking):
            limit = 0.0
        hub, terms = self._hub.here(), self._terms_for(token)
        hub.begin()
        return bool(await Acquisition(hub, terms, limit, self._on_lost).run(self._keep))

    def _keep(self, hold: Hold) -> Literal[True]:
        local, before = self.local, self._hold()
        local.is_left = False
        # The token is last: a hold without its token is not there.
        local.hold = hold
        local.token = hold.claim.owner
        if before is not None and before.claim.owner == hold.claim.owner:
            # It is the same hold for the server.
            before.hub.post(before.hub.drop, before)
        elif before is not None:
            # This object can no longer release it.
            before.hub.give_back(before)
        return True

    async def _locked(self) -> bool:
        """Whether any owner holds the lock, or one of several (``LOCK.INFO``, for which the user needs permission)."""
        hub = self._hub.here()
        for key in self._terms.keys:
            if (await info(hub, key)).holders:
                return True
        return False

    async def _owned(self) -> bool:
        """Whether this object holds the lock, of several all of them, by the server (``LOCK.INFO``; a user without
        permission renews it for its remaining time instead)."""
        hold, token = self._hold(), self.local.token
        if hold is not None:
            return not hold.is_gone and bool(await holds_lock(hold))
        hub = self._hub.here()
        return token is not None and bool(await owns(hub, owned_by(self._terms, token)))

    async def _release(self) -> None:
        """Releases the lock (``LOCK.RELEASE``). It is free then, or the next waiter's.

        If the client gets no answer, this raises, and the release goes on in the background until the lease is over,
        with ``session`` for ten minutes at most: :meth:`Server.settled` waits for that and reports a failure.

        :raises NotOwned: when it was lost before, or one of several. The others are released.
        :raises NotAcquired: when this object does not hold it.
        :raises ConnectionFailed: when the client got no answer (its ``socket_timeout`` and retries say how soon).
        """
        hold, token = self._hold(), self.local.token
        if hold is None:
            if token is None:
                raise self._not_held("release")
            self._forget(None, token)
            await self._do_release(token)
            return
        is_gone = hold.is_gone
        try:
            released = Released.NOT_HELD if is_gone else await release(hold)
        except BaseException as error:
            self._forget(hold)
            if self._hubs.is_asyncio and isinstance(error, ConnectionFailed) and self.local.token is None:
                # As with redis-py's asyncio lock, the release can be tried again.
                self.local.token = token
            raise
        self._forget(hold)
        if released is Released.NOT_HELD:
            raise self._no_longer("release")

    async def _leave(self, rest: Number) -> None:
        """Leaves the lock held, instead of releasing it: it is not renewed any more, and ends this many seconds from
        now. Nothing is held by this object then. A ``with`` statement in which it was left does not release it.

        If the client gets no answer, this raises, and the lock ends after this time or with its present lease.

        :raises NotOwned: when it was lost before, or one of several.
        :raises NotAcquired: when this object does not hold it.
        :raises ConnectionFailed: when the client got no answer.
        """
        span, hold = checked_rest(rest), self._hold()
        if hold is None:
            raise self._not_held("leave")
        try:
            released = Released.NOT_HELD if hold.is_gone else await leave(hold, span)
        finally:
            self._forget(hold)
            self.local.is_left = True
        if released is Released.NOT_HELD:
            raise self._no_longer("leave")

    async def _do_release(self, expected_token: Text) -> None:
        """Releases the hold of this owner, which another object may have acquired."""
        if await release_owner(self._hub.here(), owned_by(self._terms, expected_token)) is Released.NOT_HELD:
            raise self._no_longer("release")

    async def _extend(self, additional_time: Number, replace_ttl: bool = False) -> Literal[True]:
        """Adds time to the lease, or replaces it by this time (``LOCK.RENEW``).

        :param additional_time: in seconds.
        :param replace_ttl: whether it is the new lease, and is not added to the rest of the present one.
        :raises NotOwned: when the lock was lost.
        :raises NotAcquired: when this object does not hold it, or it has no timeout.
        """
        await self._set(additional_time, replace_ttl)
        return True

    async def _reacquire(self) -> Literal[True]:
        """Sets the lease to the timeout again. Raises as :meth:`extend` does."""
        await self._set(None, False)
        return True

    async def _execute(self, *command: Any) -> Any:
        """Runs a command of the server if the lock is still held, as ``lock.execute("SET", "total", 100)``, in one step
        (``LOCK.IF``), and returns its reply as the server sends it: a late holder changes nothing. A command with a
        key, in a cluster in the slot of the lock, or ``PUBLISH``.

        :raises NotOwned: when the lock is no longer held; nothing has run.
        :raises NotAcquired: when this object does not hold it, or it is of several keys.
        :raises Unheard: when it is unknown whether it has run.
        """
        hold = self._hold()
        if hold is None or len(hold.tokens) > 1:
            raise self._not_held("execute under")
        try:
            return await at_most_once(hold.hub, "LOCK.IF", hold.claim.keys[0], hold.tokens[0], *command)
        except Refused as error:
            # A command that is conditional itself may have been refused for its own lock.
            if error.code == "FENCED" and str(command[0]).upper() != "LOCK.IF":
                hold.lose(LostReason.TAKEN)
                raise self._no_longer("execute under") from error
            if isinstance(error, WrongType):
                # The lock's key holds something else, or that of the command does.
                with contextlib.suppress(Error):
                    await holds_lock(hold)
                if hold.has_ended:
                    raise self._no_longer("execute under") from error
            raise

    async def _set_note(self, note: Text) -> None:
        """Replaces the text beside the hold (``note``, at most 256 bytes), and renews the lease. Only of an exclusive
        lock of one key.

        :raises NotOwned: when the lock is no longer held.
        :raises NotAcquired: when this object does not hold it.
        """
        hold, text = self._hold(), checked_note(note)
        if hold is None:
            raise self._not_held("set the note of")
        # A session names no lease, or it would not be bound any more; a lease that is not renewed keeps its end.
        lease = None if hold.link is not None else hold.lease if hold.claim.renews else hold.valid_for()
        renewals = [(*renewal, b"NOTE", text) for renewal in hold.claim.renew(lease, hold.tokens)]
        replies = await hold.hub.batch(renewals)
        hold.lose_if_proved(replies)
        if isinstance(replies[0], Error) and not isinstance(replies[0], WrongType):
            raise replies[0]
        if replies != [1]:
            raise self._no_longer("set the note of")

    async def _set(self, additional: Optional[Number], replaces: bool) -> None:
        doing = "reacquire" if additional is None else "extend"
        hold, token = self._hold(), self.local.token
        if token is None:
            raise self._not_held(doing)
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
            if not await renews(hub, owned_by(self._terms, token), lease):
                raise self._no_longer(doing)
            return
        if hold.is_gone:
            raise self._no_longer(doing)
        try:
            await set_lease(hold, lease)
        except (NotOwned, Closed) as error:
            raise self._no_longer(doing) from error

    def _not_held(self, doing: str) -> NotAcquired:
        where = "" if self._hubs.is_asyncio or not self.thread_local else " by this thread (see thread_local=False)"
        return NotAcquired(f"Cannot {doing} a lock that's not owned or is already unlocked{where}", self.name_text)

    def _no_longer(self, doing: str) -> NotOwned:
        return NotOwned(f"Cannot {doing} a lock that's no longer owned", self.name_text)

    def _not_acquired(self) -> NotAcquired:
        return NotAcquired("Unable to acquire lock within the time specified", self.name_text)

    def _left(self, error: BaseException, raised: object) -> None:
        if self.raise_on_release_error or not isinstance(error, redis_errors.LockError):
            left(error, raised)
        else:
            logger.warning("Lock was unlocked or no longer owned when exiting context manager.")


class BaseLock(AnyLock[Client, Key]):
    """What a lock of one key has."""

    @classmethod
    def with_options(cls: type[B], **options: Unpack[ClassOptions]) -> type[B]:
        """The class with other defaults, for ``client.lock(name, lock_class=Lock.with_options(lease=5))``: redis-py's
        ``lock()`` passes only its own arguments on, and passes all of them.

        :raises ConfigError: for an argument that the constructor does not have, or that ``client.lock()`` has.
        """
        for option in options:
            if option not in ClassOptions.__annotations__:
                raise ConfigError(f"with_options() has no option {option}; timeout, ... are arguments of client.lock()")

        def begin(self: Any, *args: Any, **kwargs: Any) -> None:
            cls.__init__(self, *args, **{**options, **kwargs})

        return type(cls.__name__, (cls,), {"__init__": begin, "__module__": cls.__module__, "__doc__": cls.__doc__})

    def _named(self, name: Key) -> tuple[Any, tuple[bytes, ...]]:
        self.name = name
        return name_of(name), (checked_key(name),)

    @property
    def token(self) -> Optional[int]:
        """The fencing token of the hold: higher than that of every earlier grant of this name. Pass it to the resource
        that the lock protects, which has to refuse lower ones. None: not held by this object."""
        hold = self._hold()
        return None if hold is None else hold.token

    async def _info(self) -> LockInfo:
        """The holders and waiters of the lock (``LOCK.INFO``, for which the user needs permission)."""
        return await info(self._hub.here(), self._terms.key)

    async def _resume(self, owner: Text, token: int) -> Literal[True]:
        """Takes over a hold of another process, or of an earlier life of this one, which has passed on its
        :attr:`owner` and :attr:`token`: it is held by this object then, with the lease of this object from now. The
        other one has to stop using it (:meth:`leave`).

        :raises NotOwned: when that owner does not hold the lock under that token.
        :raises ConnectionFailed: when the client got no answer. Nothing is released.
        """
        if self._session:
            raise ConfigError("a lock that ends with its connection is not resumed")
        claim, fence = owned_by(self._terms_for(None), owner), checked_number(token, "token", 0, MOST_COUNT)
        try:
            return await resume(self._hub.here(), claim, fence, self._on_lost, self._keep)
        except (NotOwned, Closed) as error:
            raise self._no_longer("resume") from error


class BaseMultiLock(AnyLock[Client, Iterable[Key]]):
    """What a lock of several keys has."""

    def __init__(
        self,
        redis: Client,
        names: Iterable[Key],
        timeout: Optional[Number] = None,
        **options: Unpack[MultiLockOptions],
    ) -> None:
        for option in options:
            if option not in MultiLockOptions.__annotations__:
                raise TypeError(f"a MultiLock has no option {option}")
        super().__init__(redis, names, timeout, **options)
        if self._hub.is_cluster and len(set(map(key_slot, self._terms.keys))) > 1:
            raise ConfigError("in a cluster the keys of a MultiLock are in one slot: give them one hash tag, {...}")

    def _named(self, name: Iterable[Key]) -> tuple[Any, tuple[bytes, ...]]:
        #: The keys, in the caller's order.
        self.names: tuple[Any, ...] = checked_names(name)
        return self.names, tuple(map(checked_key, self.names))

    @property
    def tokens(self) -> dict[Any, int]:
        """The fencing token of each key, by its name. A token fences the resource that its own key protects; tokens of
        two keys cannot be compared. Empty: not held by this object."""
        hold = self._hold()
        return {} if hold is None else dict(zip(self.names, hold.tokens))
