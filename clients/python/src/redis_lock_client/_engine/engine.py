"""The engine of one server in one event loop: its connections, tickets, holds and background releases.

It starts with the first use and closes its connections when it has had nothing to do for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, Callable, Optional

from ..errors import Closed, Error, NoAnswer, NoPermission, NotLoaded, Refused, Unheard, refused
from ..outcome import Released
from ..statistics import Statistics
from .attempt import acquire
from .caller import Caller
from .commands import Claim, Command
from .dial import Dialer
from .hold import Hold, OnLost, renew_once
from .moment import Moment, Pause, now
from .release import Background, release_until
from .reservation import Names
from .resp import field
from .router import MAX_IDLE, Router
from .session import ReadersLease
from .source import Source
from .terms import OVERTIME, Terms
from .tickets.desk import Desk
from .wait import Request, Wait

#: The interval at which idle connections are closed.
_SWEEP = 5.0
#: How long the end of an engine waits for its cancelled tasks.
_LAST_TURNS = 0.1
#: How long the end of an event loop waits for releases.
_LAST_RELEASES = 1.0


class Engine:
    """The state of the locks of one server in one event loop."""

    def __init__(
        self,
        source: Source,
        patience: float,
        parks: bool,
        counts: Statistics,
        on_idle: Optional[Callable[[], None]] = None,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.patience = patience
        self.counts = counts
        self.name = source.name
        self.dialer = Dialer(patience, counts)
        self.router = Router(source, self.dialer, self.spawn)
        self.background = Background()
        self.names = Names(source)
        #: By the name of the node.
        self.readers_leases: dict[str, ReadersLease] = {}
        self.holds: set[Hold] = set()
        #: The lost holds that the program still refers to. Weak, so that one that is not released takes no memory.
        self.lost_holds: weakref.WeakSet[Hold] = weakref.WeakSet()
        #: Whether no operation may begin any more; whether all connections are closed, too.
        self.is_closing = False
        self.is_closed = False
        #: The operations that wait, and how each is withdrawn.
        self.waits: dict[asyncio.Task[Any], Callable[[], None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._desk = Desk(self)
        self._parks = parks
        self._uses = 0
        self._used = now()
        self._on_idle = on_idle
        self._is_retired = False
        self._sweeper: Optional[asyncio.TimerHandle] = self.loop.call_later(_SWEEP, _sweep, weakref.ref(self))
        # The end of the event loop (`asyncio.run`) finalizes its asynchronous generators, and so ends the engine.
        self._farewell = _farewell(weakref.ref(self))
        _advance(self._farewell.__anext__())

    @property
    def tickets(self) -> Optional[Desk]:
        """The desk, unless all waits are to be parked."""
        return None if self._parks else self._desk

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Starts a task that ends with the engine."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Error):
            # Errors of requests are handled where the task is awaited; this one is a defect.
            self.loop.call_exception_handler({"message": "redis-lock: a task has failed", "exception": error})

    def spawn_wait(self, work: Coroutine[Any, Any, Any], withdraw: Callable[[], None]) -> asyncio.Task[Any]:
        """Starts a task that :meth:`close` withdraws and cancels."""
        task = self.spawn(work)
        self.waits[task] = withdraw
        task.add_done_callback(self._waited)
        return task

    def _waited(self, task: asyncio.Task[Any]) -> None:
        self.waits.pop(task, None)

    def begin_use(self) -> None:
        """An operation begins.

        :raises Closed: when the engine is closed.
        """
        self.check_open()
        self.resume_use()

    def resume_use(self) -> None:
        """The same for an operation that ends something, which :meth:`close` waits for."""
        self._uses += 1

    def check_open(self) -> None:
        """Raises :class:`Closed` when the engine is closed, or is being closed."""
        if self.is_closing or self.is_closed:
            raise Closed("the server object is closed")

    def end_use(self) -> None:
        """An operation has ended."""
        self._uses -= 1
        self._used = now()

    # Locks and permits

    async def acquire(self, terms: Terms, wait: Optional[float], on_lost: Optional[OnLost] = None) -> Optional[Hold]:
        """Acquires a lock or a permit; ``on_lost`` is called in this loop."""
        return await acquire(self, terms, wait, on_lost)

    async def release_owner(self, claim: Claim) -> Released:
        """Releases the hold of an owner, under any token."""
        self.begin_use()
        try:
            over = now() + self.patience
            result = await release_until(self, claim, None, over, over)
        finally:
            self.end_use()
        if result.error is not None:
            self.counts.releases_failed += 1
            raise result.error
        self.counts.releases += 1
        return result.released

    async def renew_owner(self, claim: Claim, lease: float) -> Moment:
        """Renews the hold of an owner, under any token."""
        return await renew_once(self, claim, lease, None)

    async def holders(self, key: bytes) -> list[bytes]:
        """The owners that hold a lock (``LOCK.INFO``)."""
        reply = await self.repeatable(key, (b"LOCK.INFO", key))
        holders = field(reply, b"holders")
        return [field(holder, b"owner") for holder in holders] if isinstance(holders, list) else []

    async def is_any_held(self, keys: tuple[bytes, ...]) -> bool:
        """Whether any owner holds one of these locks."""
        for key in keys:
            if await self.holders(key):
                return True
        return False

    async def owns(self, claim: Claim) -> bool:
        """Whether this owner holds all keys of the claim."""
        for key in claim.keys:
            if claim.owner not in await self.holders(key):
                return False
        return True

    async def holds_lock(self, hold: Hold) -> bool:
        """Whether the server says that this hold lasts. A user that may not ask renews it for its remaining time."""
        if hold.notice.is_over or hold.notice.reason is not None:
            return False
        claim = hold.claim
        try:
            return await self.owns(claim)
        except NoPermission:
            span = hold.valid_for()
            if span <= 0:
                return False
            try:
                reply = await self.repeatable(claim.key, hold.renewal(span))
            except Refused as error:
                if error.code in ("WRONGTYPE", "LOCKTYPE"):
                    return False
                raise
            return bool(reply == len(claim.keys))
        except Refused as error:
            if error.code in ("WRONGTYPE", "LOCKTYPE"):
                return False
            raise

    # Requests that hold nothing

    async def repeatable(self, key: bytes, command: Command) -> Any:
        """Sends a request that may be served twice: repeated for half of the response timeout; the last attempt has the
        other half."""
        self.begin_use()
        try:
            return await self._repeat(Caller(self, key), command, now() + self.patience / 2, now() + self.patience)
        finally:
            self.end_use()

    async def _repeat(self, caller: Caller, command: Command, end: float, over: float) -> Any:
        pause = Pause()
        while True:
            try:
                return await caller.call(command, max(0.001, over - now()), over)
            except Error as error:
                if not error.is_passing or now() + pause.next >= end:
                    raise
                await pause.sleep()

    async def at_most_once(self, key: bytes, probe: Command, command: Command) -> Any:
        """Sends a request that must be served at most once. ``probe`` is a read-only request about the same key: it
        finds a broken connection and the node of the key, so that the outcome can stay unknown only if the connection
        breaks between the two.

        :raises Unheard: when it is unknown whether the request was served.
        """
        self.begin_use()
        try:
            caller = Caller(self, key)
            end, over = now() + self.patience / 2, now() + self.patience
            pause = Pause()
            while True:
                try:
                    await self._repeat(caller, probe, end, over)
                except Error as error:
                    if error.is_passing or isinstance(error, NotLoaded):
                        raise
                    # A refusal is a reply as well: the ACL may forbid the probe and allow the command.
                try:
                    return await caller.call(command, max(0.001, over - now()), over)
                except Error as error:
                    if caller.was_unanswered():
                        what = getattr(error, "what", "the connection failed")
                        raise Unheard(self.name, what) from error
                    if not error.is_passing or now() + pause.next >= end:
                        raise
                    await pause.sleep()
        finally:
            self.end_use()

    async def wait_open(self, key: bytes, wait: Optional[float]) -> bool:
        """Waits until a latch is open; False when it is not at the end of the wait.

        :raises NoAnswer: when the server has not answered by then.
        """
        self.begin_use()
        end = None if wait is None else now() + wait
        request = Request(key, (b"LATCH.WAIT", key), self.patience / 2, float("inf"), has_owner=False)
        waiting = Wait(self, request)

        async def run() -> bool:
            return await waiting.run(await waiting.try_once(), end) is not None

        task = self.spawn_wait(run(), lambda: None)
        try:
            done, _ = await asyncio.wait({task}, timeout=None if end is None else max(0.0, end + OVERTIME - now()))
            if not done:
                raise NoAnswer(self.name) from waiting.failure
            if task.cancelled():
                raise Closed("the server object was closed during the wait")
            return bool(task.result())
        finally:
            task.cancel()
            parked = waiting.close()
            if parked is not None:
                parked.close()
            self.end_use()

    async def count(self, key: bytes) -> int:
        """The count of a latch. No command of the module has it, so ``GET`` reads it from a latch that is closed."""
        # Refused if the key holds something else, or the server has no module.
        if await self.repeatable(key, (b"LATCH.WAIT", key)) == 1:
            return 0
        digits = await self.repeatable(key, (b"GET", key))
        try:
            return max(0, int(digits)) if digits is not None else 0
        except (TypeError, ValueError):
            # Changed in between.
            raise refused(self.name, "WRONGTYPE", "the key holds no count") from None

    # The end

    @property
    def is_busy(self) -> bool:
        """Whether something is held, waited for or under way."""
        if self.holds or self._uses or self._desk.table.has_tickets or self.background.running or self.background.late:
            return True
        # A loss is reported before the lease ends, and until then the program may release the lock.
        return any(hold.may_last for hold in self.lost_holds)

    @property
    def connections(self) -> int:
        """The number of open connections, without those of parked requests."""
        return self.router.connections + self._desk.subscriptions.connections

    def sweep(self) -> None:
        """Closes idle connections; all of them after a while without any use."""
        self.router.sweep()
        self._sweeper = self.loop.call_later(_SWEEP, _sweep, weakref.ref(self))
        # An undone request is undone again when it cannot be served any more, for which the task still waits.
        idle = now() - self._used
        if not self.is_busy and (self._is_retired or idle >= max(MAX_IDLE, self.patience + 1)):
            self.close_now()

    def retire(self) -> None:
        """The client object is gone: the engine closes when nothing is held or waited for."""
        self._is_retired = True
        if not self.is_busy:
            self.close_now()

    def close_now(self) -> None:
        """Closes everything at once. What is held stays held until its lease ends."""
        if self.is_closed:
            return
        self.is_closing = self.is_closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        for hold in [*self.holds, *self.lost_holds]:
            hold.abandon()
        current = asyncio.current_task(self.loop)
        for task in list(self._tasks):
            if task is not current:
                task.cancel()
        self.names.free_all()
        self._desk.subscriptions.close()
        self.router.close()
        self.dialer.close()
        if not getattr(self._farewell, "ag_running", False):
            _advance(self._farewell.aclose())
        if self._on_idle is not None:
            self._on_idle()

    async def close(self) -> None:
        """Ends all waits, releases what is held, and closes everything, within the response timeout. Idempotent."""
        if self.is_closed:
            return
        self.is_closing = True
        self.names.close()
        for task, withdraw in list(self.waits.items()):
            withdraw()
            task.cancel()
        for hold in [*self.holds, *self.lost_holds]:
            hold.give_back()
        await self._wait_for_releases(self.patience)
        tasks = self._tasks.copy()
        self.close_now()
        if tasks:
            # They are cancelled.
            await asyncio.wait(tasks, timeout=_LAST_TURNS)
        # The opening of a connection, which one of them waited for, ends a turn later.
        await asyncio.sleep(0)

    async def end_of_loop(self) -> None:
        """The event loop ends, and has cancelled the tasks: sends their unanswered releases once more, and releases the
        holds that were renewed."""
        if self.is_closed:
            return
        self.is_closing = True
        lost = self.background.running
        for hold in [hold for hold in self.holds if hold.renews]:
            hold.give_back()
        for undo in lost:
            undo.start()
        await self._wait_for_releases(_LAST_RELEASES)
        self.close_now()

    async def _wait_for_releases(self, span: float) -> None:
        """Waits for the releases, and for the requests under way, whose grants are given back."""
        end = now() + span
        while (self.background.running or self._uses) and now() < end:
            await asyncio.sleep(0.002)


def _sweep(engine: weakref.ref[Engine]) -> None:
    # Weak, so that a timer of a long-lived loop does not keep an engine that is no longer used.
    found = engine()
    if found is not None and not found.is_closed:
        found.sweep()


async def _farewell(engine: weakref.ref[Engine]) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        found = engine()
        if found is not None:
            await found.end_of_loop()


def _advance(step: Any) -> None:
    """Runs a step of a generator that does not wait."""
    with contextlib.suppress(StopIteration, StopAsyncIteration, RuntimeError):
        step.send(None)
