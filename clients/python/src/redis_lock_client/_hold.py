"""A held lock or permit, or several locks that are held together: what is known of the lease, and of a loss."""

from __future__ import annotations

import contextlib
import logging
import math
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Optional

from ._info import lock_info
from ._terms import ROUNDING, Command, Terms, Tokens
from .errors import Error, Refused
from .observer import Observed
from .outcome import LostReason, Mode

if TYPE_CHECKING:
    from ._hub import Hub

logger = logging.getLogger("redis_lock_client")

#: Deadlines and timers, in seconds.
now = time.monotonic

#: Codes of a key that holds something else.
FOREIGN = frozenset({"WRONGTYPE", "LOCKTYPE"})
#: Codes of refusals that do not change before the lease ends.
_LASTING = FOREIGN | {"NOPERM", "NOAUTH", "WRONGPASS"}
#: How long the release of a session without a reply is repeated. No lease bounds it, since the server renews that.
RELEASED_FOR = 600.0
#: Of the renewals of a session of a reader, each such one reads the lease: LOCK.INFO lists all readers.
_READS = 4

OnLost = Callable[[LostReason], Any]


def warn(*words: Any) -> None:
    """Logs in a thread of its own: a handler of the program may take its time, and renewals go on meanwhile."""
    try:
        threading.Thread(target=logger.warning, args=words, name="redis-lock-log", daemon=True).start()
    except RuntimeError:
        # The interpreter ends, or the process has too many threads.
        logger.warning(*words)


def left(error: BaseException, raised: object) -> None:
    """A ``with`` statement ends, and the release has failed. What was raised in it is not replaced: it may be a
    cancellation, or the end of the program."""
    if raised is None or not isinstance(error, Error):
        raise error
    logger.warning("not released at the end of a with statement: %s", error)


class Moment:
    """A moment by both clocks. The monotonic clock stops while the machine is suspended, and the wall clock may be set
    back; the server's lease does neither. The larger of the two elapsed times is safe in both cases."""

    __slots__ = ("steady", "wall")

    def __init__(self) -> None:
        self.steady = time.monotonic()
        self.wall = time.time()

    def elapsed(self) -> float:
        """The elapsed time, by the clock that shows more."""
        return max(time.monotonic() - self.steady, time.time() - self.wall)


class Hold:
    """What is held by one acquisition. When one of several keys is lost the hold is."""

    #: Why it was lost, if it was. A loss is reported once, and not after a release.
    reason: Optional[LostReason] = None
    #: Whether it is released, here or in the background; whether a forked child has it from its parent.
    is_over = is_inherited = False
    #: Whether a request of the acquisition, or of a release, had no answer.
    is_unanswered = False
    #: The shortest lease of a request that had no answer, and may be served yet.
    unheard_lease = math.inf
    #: The changes of the lease that are under way.
    changes = 0
    #: The time at which the server's lease is over at the latest, whatever has been answered.
    ends = 0.0
    #: What the observer knows it by, after its grant was told.
    observed: Optional[Observed] = None
    _asks = 0
    _asked: Optional[float] = None
    _is_late = False

    def __init__(
        self,
        hub: Hub,
        claim: Terms,
        tokens: Tokens,
        lease: float,
        sent: Moment,
        on_lost: Optional[OnLost],
        link: Any,
        granted: Optional[float] = None,
    ) -> None:
        self.hub = hub
        self.claim = claim
        #: The fencing token of the grant of each key.
        self.tokens = tokens
        #: The connection to which a session is bound.
        self.link = link
        self.renews = claim.renews
        #: The events of the renewals under way.
        self.renewing: set[Any] = set()
        self._granted = sent.steady if granted is None else granted
        #: The thread that has acquired it.
        self.thread = threading.get_ident()
        self._on_lost = on_lost
        #: Called when it is lost or released, each once or twice.
        self._callbacks: list[Callable[[], Any]] = []
        longest = claim.max_hold
        self._until = math.inf if longest is None else self._granted + longest
        self.set_lease(lease, sent)

    def held(self) -> float:
        """The time since the grant, in seconds."""
        return now() - self._granted

    # The lease

    def set_lease(self, lease: float, sent: Moment) -> None:
        """The lease is confirmed, from a moment before its request was sent."""
        lease = min(lease, self.unheard_lease)
        #: Read by other threads, so set as one.
        self.term = (lease, sent)
        self._is_late = False
        #: When the loss is reported, by the monotonic clock.
        self.lost_at = min(sent.steady + self.claim.certain(lease), self._until)
        self.renewed_at = sent.steady + lease / 3
        self.may_last(lease)

    def may_last(self, lease: float) -> None:
        """A request that is about to be sent may set this lease."""
        self.ends = max(self.ends, now() + (lease if self.link is None else RELEASED_FOR))

    @property
    def token(self) -> int:
        """The fencing token of the first key."""
        return self.tokens[0]

    @property
    def lease(self) -> float:
        """The lease in seconds."""
        return self.term[0]

    def valid_for(self) -> float:
        """How long the lock is certainly still held, in seconds."""
        while True:
            term = self.term
            rest = term[0] - ROUNDING - term[1].elapsed()
            if self.term is term:
                break
        if self.is_over or (self.reason is not None and self.reason is not LostReason.UNCONFIRMED):
            return 0.0
        return max(0.0, rest)

    @property
    def due(self) -> float:
        """When the timer has something to do with this hold."""
        if self._asked is not None or not self.renews or self.changes:
            return self.lost_at
        return min(self.lost_at, self.renewed_at)

    # Renewals

    def renewal(self, moment: float) -> Optional[tuple[list[Command], float]]:
        """The commands of a renewal that is due by this moment, and its lease. Another one follows after a third of the
        lease."""
        if self.link is not None or not self.renews or self.changes or self.renewed_at > moment:
            return None
        lease = min(self.lease, self._until - now())
        if lease <= self.valid_for():
            # The longest time of the hold ends with this lease.
            self.renews = False
            return None
        late = now() - self.term[1].steady - self.lease * 2 / 3
        if late >= 0 and not self._is_late:
            self._is_late = True
            self.hub.observe_later("late", self.observed, late + self.lease / 3)
        self.renewed_at = now() + self.lease / 3
        self.may_last(lease)
        return self.claim.renew(lease, self.tokens), lease

    def renewed(self, replies: list[Any], lease: float, sent: Moment, present: float) -> None:
        """The replies to a renewal, numbers or errors, of a lease in the place of the present one."""
        counts = self.hub.counts
        if self.is_over or self.reason is not None:
            return
        failed = next((reply for reply in replies if isinstance(reply, Error)), None)
        if failed is None and all(reply == 1 for reply in replies):
            counts.renewals += 1
            if not self.changes and present == self.lease:
                self.set_lease(lease, sent)
            return
        counts.renewals_failed += 1
        self.lose_if_proved(replies, _LASTING)
        if self.reason is None:
            self.renewed_at = now() + max(self.lease / 20, 0.001)

    def lose_if_proved(self, replies: list[Any], codes: frozenset[str] = FOREIGN) -> None:
        """Reports a loss that replies about the hold prove: not held, or a refusal with one of these codes."""
        refusal = next((one for one in replies if isinstance(one, Refused) and one.code in codes), None)
        if refusal is not None:
            self.lose(LostReason.refused(refusal.code, refusal.text))
        elif any(reply == 0 or reply is None for reply in replies):
            self.lose(LostReason.TAKEN)

    def ask_bound(self, moment: float, is_late: bool) -> None:
        """Asks on the connection of a session whether it lasts, when that is due. The server renews it, so after a
        pause of this process (`is_late`) the answer counts, and not the time that has passed."""
        is_due = min(self.renewed_at, self.lost_at) <= moment < self._until
        if self.link is None or not is_due or (self._asked is not None and not is_late):
            return
        self._asked = now()
        self.lost_at = max(self.lost_at, self._asked + self.lease / 6)
        self._asks += 1
        sent = Moment()

        def confirmed(reply: Any) -> None:
            if reply == 1 and (self.claim.mode is not Mode.READ or self._asks % _READS == 0):
                info = ("LOCK.INFO", self.claim.key)
                self.link.post_in_background(info, lambda found: self._confirmed(self._lease_in(found), sent))
            else:
                self._confirmed(self.lease if reply == 1 else reply, sent)

        self.link.post_in_background(self.claim.renew(None, self.tokens)[0], confirmed)

    def _lease_in(self, info: Any) -> Any:
        return info if isinstance(info, Error) else lock_info(info).remaining_of(self.claim.owner)

    def _confirmed(self, lease: Any, sent: Moment) -> None:
        self._asked = None
        if isinstance(lease, float):
            if self.reason is None and not self.is_over:
                self.hub.counts.renewals += 1
                self.set_lease(lease, sent)
                self.hub.plan(self)
        elif isinstance(lease, Refused) and lease.code in ("MOVED", "ASK"):
            # The hold, if it lasts, is bound to nothing at the other node.
            self.lose(LostReason.DISCONNECTED)
        elif not isinstance(lease, Refused) or lease.code in _LASTING:
            self.renewed([lease], self.lease, sent, self.lease)
        else:
            self.renewed_at = now() + self.lease / 20

    def check(self, moment: float) -> None:
        """Reports the loss when its time has come."""
        if self.lost_at <= moment and not (self.changes and self.valid_for() > 0):
            self.lose(LostReason.UNCONFIRMED)

    # The end

    @property
    def is_gone(self) -> bool:
        """Whether it is over, here or with its event loop.

        :raises RuntimeError: in another event loop, which must not use its sockets.
        """
        return self.is_over or self.hub.is_gone

    @property
    def has_ended(self) -> bool:
        """Whether it is lost or released."""
        return self.is_over or self.reason is not None

    def when_ended(self, callback: Callable[[], Any]) -> None:
        """Calls this function when the hold is lost or released; at once if it is."""
        self._callbacks.append(callback)
        if self.has_ended:
            callback()

    def forget(self, callback: Callable[[], Any]) -> None:
        """Removes a function that is no longer to be called."""
        with contextlib.suppress(ValueError):
            self._callbacks.remove(callback)

    def _tell(self) -> None:
        for callback in list(self._callbacks):
            callback()

    def finish(self) -> None:
        """The hold is released: no loss is reported any more."""
        self.is_over = True
        if self._callbacks:
            self._tell()

    def disinherit(self) -> None:
        """In a forked child: this process does not hold it. (What waits for its end is the parent's.)"""
        self.is_over = self.is_inherited = True
        self._callbacks = []

    def lose(self, reason: LostReason) -> None:
        """Reports a loss."""
        with self.hub.guard:
            if self.has_ended:
                return
            self.reason = reason
            is_heard = bool(self._callbacks)
            self._tell()
            self.hub.lost_one(self, reason)
        names = self.claim.names
        self.hub.observe_later("lost", self.observed, reason)
        if self._on_lost is not None:
            try:
                self.hub.tell(self._on_lost, reason)
            except Exception as error:
                warn("the function for the loss of %s cannot be called: %s", names, error)
        elif not is_heard:
            warn("%s: %s", names, reason)

    def releases(self) -> list[Command]:
        """The commands of a release; they make late requests final if there may be some."""
        return self.claim.give_up(self.tokens) if self.is_unanswered else self.claim.release(self.tokens)


class LostState:
    """The loss of a lock, if there was one."""

    def __init__(self, hold: Optional[Hold]) -> None:
        self._hold = hold

    @property
    def reason(self) -> Optional[LostReason]:
        """The reason of the loss, if the lock was lost."""
        return None if self._hold is None else self._hold.reason

    def is_set(self) -> bool:
        """Whether the lock was lost. True in a forked child for a hold of its parent, without a reason."""
        return self.reason is not None or (self._hold is not None and self._hold.is_inherited)
