"""A held lock or permit, or several locks that are held together: the renewal, the notice of a loss, and the release.

The lease is renewed after every third of it. When the server replies that this grant is over, or refuses for good, the
lock is lost at once. When the server does not reply, the request is repeated until the margin before the end of the
lease, counted from the moment at which the last confirmed request was sent; then the lock is lost too, because another
owner may get it soon. The timer of that notice depends on no reply.
"""

from __future__ import annotations

import asyncio
import weakref
from typing import TYPE_CHECKING, Any, Callable, NamedTuple, Optional

from ..errors import Closed, Error, NotOwned, Refused, bad_reply
from ..outcome import LostReason, Released
from ..statistics import Statistics
from . import commands
from .caller import Caller
from .commands import Claim, Command, Tokens
from .loss import Notice
from .moment import Moment, Pause, now
from .release import First, Undo, release_until
from .reservation import Reservation
from .terms import Terms, certain, reported_after

if TYPE_CHECKING:
    from .engine import Engine

#: Codes of refusals that do not change before the lease ends.
FINAL = frozenset({"WRONGTYPE", "LOCKTYPE", "NOPERM", "NOAUTH", "WRONGPASS"})

OnLost = Callable[[LostReason], Any]


class Leftovers(NamedTuple):
    """The unfinished parts of an acquisition, which its hold takes over."""

    #: The time until which an abandoned acquire may still be served.
    acquires_until: Optional[float]
    reservation: Optional[Reservation]


class Hold:
    """A lock that is held, or several together: when one of them is lost the hold is."""

    def __init__(
        self, engine: Engine, terms: Terms, claim: Claim, tokens: Tokens, sent: Moment, leftovers: Leftovers
    ) -> None:
        self.engine = engine
        self.claim = claim
        #: The fencing token of the grant of each key.
        self.tokens = tokens
        self.lease = terms.lease
        self.notice = Notice()
        #: When the last confirmed request was sent.
        self.confirmed = sent
        #: Called with the reason of a loss.
        self.on_lost: Optional[OnLost] = None
        self.margin = terms.margin
        #: When a longer lease ends that was asked for without success, but may have been given to some of the keys.
        self._extended_until = 0.0
        self.renews = terms.renews
        self._leftovers = leftovers
        # `LOCK.MRENEW` has no tokens. If the request of the acquisition may be served once more, it could take a lost
        # key again, under another token, and the renewal would not show that the key was lost in between. So until the
        # first renewal after that, each key is renewed alone.
        self._names_tokens = claim.is_multi and leftovers.acquires_until is not None
        self._renewing: Optional[asyncio.Task[None]] = None
        self._renew_timer: Optional[asyncio.TimerHandle] = None
        #: The changes of the lease that have no reply yet.
        self._changes = 0
        self._is_counted = True
        self._forgotten: Optional[weakref.finalize[..., Hold]] = None
        engine.holds.add(self)
        engine.counts.holds += 1
        self._loss_timer = engine.loop.call_later(max(0.0, self._loss_at - now()), self._check_loss)
        self._schedule_renewal()

    @property
    def token(self) -> int:
        """The fencing token of the first key."""
        return self.tokens[0]

    @property
    def _loss_at(self) -> float:
        return self.confirmed.steady + reported_after(self.lease, self.margin)

    @property
    def ends(self) -> float:
        """When the server's lease is over at the latest, so that nothing is left to be released."""
        return max(self.confirmed.steady + self.lease, self._extended_until)

    @property
    def may_last(self) -> bool:
        """Whether the server may still have this hold, so that a release of a lost one is not in vain."""
        return self.ends > now()

    def valid_for(self) -> float:
        """How long the lock is certainly still held, in seconds. Called by any thread."""
        if self.notice.is_over or self.notice.reason not in (None, LostReason.UNCONFIRMED):
            return 0.0
        # The engine's thread may change both meanwhile, the lease first: read in this order, the span is not too long.
        elapsed = self.confirmed.elapsed()
        return max(0.0, certain(self.lease) - elapsed)

    def _schedule_renewal(self) -> None:
        # While another change has no reply, a renewal could set the lease of this one after it.
        if self.renews and not self._changes:
            due = self.confirmed.steady + self.lease / 3
            self._renew_timer = self.engine.loop.call_later(max(0.0, due - now()), self._start_renewal)

    def _start_renewal(self) -> None:
        if self.notice.reason is None and not self.notice.is_over:
            self._renewing = self.engine.spawn(self._renew())

    def _check_loss(self) -> None:
        if self.notice.is_over or self.notice.reason is not None:
            return
        span = self._loss_at - now()
        if span > 0:
            # A request was confirmed since the timer was set.
            self._loss_timer = self.engine.loop.call_later(span, self._check_loss)
        else:
            self.lose(LostReason.UNCONFIRMED)

    def lose(self, reason: LostReason) -> None:
        """Reports the loss, unless the hold is over."""
        self._stop_renewal()
        self._loss_timer.cancel()
        if self.notice.lose(reason):
            self.engine.counts.losses += 1
            self.engine.holds.discard(self)
            self.engine.lost_holds.add(self)
            self._forgotten = weakref.finalize(self, _forget, self.engine.counts)
            self._forgotten.atexit = False
            self._tell(reason)

    def tell(self, on_lost: Optional[OnLost]) -> None:
        """Calls this function when the lock is lost; at once if it is."""
        self.on_lost = on_lost
        if self.notice.reason is not None:
            self._tell(self.notice.reason)

    def _tell(self, reason: LostReason) -> None:
        if self.on_lost is not None:
            try:
                self.on_lost(reason)
            except Exception as error:
                # No thread can be started, for example. What else the loss needs is done all the same.
                context = {"message": "redis-lock: the function on_lost was not called", "exception": error}
                self.engine.loop.call_exception_handler(context)

    def _stop_renewal(self) -> None:
        if self._renew_timer is not None:
            self._renew_timer.cancel()
            self._renew_timer = None
        renewing, self._renewing = self._renewing, None
        if renewing is not None and renewing is not asyncio.current_task() and not renewing.done():
            renewing.cancel()
            self._note_unanswered(self.lease)

    def _note_unanswered(self, lease: float) -> None:
        """A request for this lease has no reply, and may still be served for a while."""
        self._extended_until = max(self._extended_until, now() + self.engine.patience + lease)

    async def _renew(self) -> None:
        """Renews until the server replies."""
        engine = self.engine
        pause = min(max(self.lease / 20, 0.001), 0.5)
        patience = min(engine.patience, self.lease / 6)
        caller = Caller(engine, self.claim.key)
        was_replica = False
        while self.notice.reason is None and not self.notice.is_over:
            sent = Moment()
            try:
                number = await self._ask(caller, patience)
            except Error as error:
                engine.counts.renewals_failed += 1
                if caller.was_unanswered():
                    self._note_unanswered(self.lease)
                if isinstance(error, Refused) and error.code in FINAL:
                    self.lose(LostReason.refused(error.code, error.text))
                    return
                if isinstance(error, Refused) and error.code == "READONLY":
                    # Repeated through a new connection, because the address may be another server's by now. Without
                    # cluster or sentinels the second such reply is final.
                    if was_replica and engine.router.source.is_single:
                        self.lose(LostReason.refused(error.code, error.text))
                        return
                    was_replica = True
            else:
                if number == len(self.claim.keys):
                    engine.counts.renewals += 1
                    self.confirmed = sent
                    self._schedule_renewal()
                    return
                engine.counts.renewals_failed += 1
                if number is not None:
                    self._extended_until = max(self._extended_until, now() + self.lease)
                    self.lose(LostReason.TAKEN)
                    return
            await asyncio.sleep(pause)

    def renewal(self, span: float) -> Command:
        """The request of a renewal for this time."""
        return commands.renew(self.claim, span, self.tokens)

    async def _ask(self, caller: Caller, patience: float) -> Optional[int]:
        """The number of keys that the server has renewed. None: a reply that is none of the module's."""
        sent = now()
        number = await renew_all(caller, self.claim, self.lease, self.tokens, self._names_tokens, patience)
        self._renewed(sent, number)
        return number

    def _renewed(self, sent: float, number: Optional[int]) -> None:
        """After a renewal of all keys that could not be served before the request of the acquisition, that one is no
        longer a danger."""
        until = self._leftovers.acquires_until
        if number == len(self.claim.keys) and (until is None or sent > until):
            self._names_tokens = False

    async def set_lease(self, lease: float) -> None:
        """Gives the lock this lease from now on.

        :raises NotOwned: when it is lost.
        :raises Error: when the server refuses, or cannot be reached within the response timeout.
        """
        self._stop_renewal()
        begun = Moment()
        self._changes += 1
        try:
            try:
                sent = await renew_once(self.engine, self.claim, lease, self.tokens, self._names_tokens)
            finally:
                self._changes -= 1
        except NotOwned:
            self._extended_until = max(self._extended_until, now() + lease)
            self.lose(LostReason.TAKEN)
            raise
        except BaseException:
            self._note_unanswered(lease)
            # It may have been served: the shorter lease counts.
            if begun.steady + lease < self.confirmed.steady + self.lease:
                self._count_from(begun, lease)
            elif self.notice.reason is None and not self.notice.is_over:
                self._schedule_renewal()
            raise
        self._renewed(sent.steady, len(self.claim.keys))
        self._count_from(sent, lease)

    def _count_from(self, sent: Moment, lease: float) -> None:
        """The lease is this one, since the moment before its request was sent."""
        self.lease = lease
        self.confirmed = sent
        if self.notice.reason is None and not self.notice.is_over:
            self._stop_renewal()
            self._schedule_renewal()
            self._loss_timer.cancel()
            self._check_loss()

    async def release(self) -> Released:
        """Releases the lock and waits for the reply of the server, at most the response timeout. Without a reply the
        release goes on in the background until the lease is over.

        :raises Error: when the server could not be reached within the response timeout, or refused.
        """
        engine = self.engine
        # The others of several keys are still held, and perhaps this one again by a late request.
        is_taken = self.notice.reason is LostReason.TAKEN
        self._finish()
        over = now() + engine.patience
        engine.resume_use()
        try:
            result = await release_until(engine, self.claim, self.tokens, over, over)
        except asyncio.CancelledError:
            # The caller has given up.
            self._undo(First.GRANT, now() + engine.patience)
            raise
        finally:
            engine.end_use()
            self._disconnect()
        error = result.error
        if error is None:
            engine.counts.releases += 1
            self._undo(First.NOTHING, result.under_way_until)
            return Released.NOT_HELD if is_taken else result.released
        if engine.is_closed:
            engine.counts.releases_failed += 1
            raise Closed("the server object was closed during the release") from error
        if error.is_passing:
            self._undo(First.GRANT, result.under_way_until)
        else:
            engine.counts.releases_failed += 1
            self._undo(First.NOTHING, result.under_way_until)
        raise error

    def give_back(self) -> None:
        """Releases the lock in the background. Nothing after a release."""
        if not self.notice.is_over:
            # Of several keys the others are still held.
            is_gone = self.notice.reason is LostReason.TAKEN and not self.claim.is_multi
            self._finish()
            self._disconnect()
            self._undo(First.NOTHING if is_gone else First.GRANT, None)

    def abandon(self) -> None:
        """Ends the renewal and the notice; the server keeps the hold until its lease ends."""
        if not self.notice.is_over:
            self._finish()
            self._disconnect()

    def _disconnect(self) -> None:
        """Ends the connection of a hold that has one of its own."""

    def _finish(self) -> None:
        self.notice.finish()
        self._stop_renewal()
        self._loss_timer.cancel()
        if self._is_counted:
            self._is_counted = False
            self.engine.counts.holds -= 1
            self.engine.holds.discard(self)
            self.engine.lost_holds.discard(self)
            if self._forgotten is not None:
                self._forgotten.detach()

    def _undo(self, first: First, releases_until: Optional[float]) -> None:
        leftovers, self._leftovers = self._leftovers, Leftovers(None, None)
        until = leftovers.acquires_until
        if until is not None and until <= now():
            until = None
        if self.engine.is_closed:
            return
        if first is not First.NOTHING or until is not None or leftovers.reservation is not None:
            undo = Undo(
                self.engine,
                self.claim,
                max(self.lease, self.ends - now()),
                first,
                tokens=self.tokens,
                ends=self.ends,
                acquires_until=until,
                releases_until=releases_until,
                reservation=leftovers.reservation,
            )
            undo.start()


def _forget(counts: Statistics) -> None:
    """A lost hold was dropped without a release."""
    counts.holds -= 1


async def renew_all(
    caller: Caller,
    claim: Claim,
    lease: float,
    tokens: Optional[Tokens],
    is_each: bool,
    patience: float,
    limit: Optional[float] = None,
) -> Optional[int]:
    """Renews once; the number of keys that the server has renewed. None: a reply that is none of the module's.

    :param is_each: whether each of several keys is renewed alone, under its token.
    """
    if not (is_each and claim.is_multi):
        try:
            reply = await caller.call(commands.renew(claim, lease, tokens), patience, limit)
            return reply if isinstance(reply, int) else None
        except Refused as error:
            # While a slot moves from node to node, no request with keys of both is served.
            if not claim.is_multi or error.code != "TRYAGAIN":
                raise
    number = 0
    for place, one in enumerate(claim.each()):
        token = None if tokens is None else (tokens[place],)
        reply = await caller.call(commands.renew(one, lease, token), patience, limit)
        if reply != 1:
            return number if isinstance(reply, int) else None
        number += 1
    return number


async def renew_once(
    engine: Engine, claim: Claim, lease: float, tokens: Optional[Tokens], is_each: bool = False
) -> Moment:
    """Renews until the server replies, at most for the response timeout; a moment before the confirmed request.

    :param is_each: whether each of several keys is renewed alone, under its token.

    :raises NotOwned: when the hold is over, or the key holds something else.
    """
    caller = Caller(engine, claim.key)
    end = now() + engine.patience
    pause = Pause()
    while True:
        sent = Moment()
        try:
            number = await renew_all(caller, claim, lease, tokens, is_each, engine.patience / 2, end)
        except Error as error:
            if isinstance(error, Refused) and error.code in ("WRONGTYPE", "LOCKTYPE"):
                raise NotOwned("the key holds something else by now") from error
            if not error.is_passing or now() + pause.next >= end:
                raise
            await pause.sleep()
            continue
        if number == len(claim.keys):
            engine.counts.renewals += 1
            return sent
        if number is not None:
            raise NotOwned("the lock is not held any more")
        raise bad_reply(engine.name)
