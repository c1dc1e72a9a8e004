"""The steps of releases, of changes of a lease, and of requests that hold nothing. See ``_effects``."""

from __future__ import annotations

from typing import Any, Optional

from ._acquire import Steps
from ._effects import Await, Batch, Call
from ._hold import Hold, Moment, field, holders_of
from ._hub import Hub
from ._terms import Claim, Command
from .errors import ConnectionFailed, Error, NoPermission, NotLoaded, NotOwned, Refused, Unheard, bad_reply, refused
from .outcome import LostReason, Released

#: Codes of a key that holds something else.
_FOREIGN = ("WRONGTYPE", "LOCKTYPE")
#: How long the release of a lock that was lost is waited for: it goes on in the background.
_LOST_FOR = 0.5


def release(hold: Hold) -> Steps:
    """Releases a hold; it goes on in the background if the server does not answer."""
    hub = hold.hub
    if hold.is_released:
        return Released.NOT_HELD
    if hold.notice.reason is not None:
        ending = hub.abandon(hold)
        if ending is not None:
            yield Await(ending.event, _LOST_FOR)
        # One that was taken may have been granted again, to a request that was served late.
        is_released = hold.notice.reason is not LostReason.TAKEN and getattr(ending, "result", 0) is Released.YES
        return Released.YES if is_released else Released.NOT_HELD
    with hub.guard:
        # No renewal and no loss from here on.
        hub.holds.discard(hold)
    try:
        is_held = yield from _release(hub, hold.claim, hold.releases(), hold)
    except Error as error:
        if isinstance(error, Refused) and error.code in _FOREIGN:
            hub.remove(hold)
        else:
            # It is repeated in the background: as final, since it had no answer.
            hold.is_unanswered = True
            hub.abandon(hold)
        raise
    hub.remove(hold)
    if hold.link is not None:
        hold.link.close()
    hub.counts.releases += 1
    return Released.YES if is_held else Released.NOT_HELD


def release_owner(hub: Hub, claim: Claim) -> Steps:
    """Releases the hold of an owner, under any token."""
    hub.check_open()
    is_held = yield from _release(hub, claim, claim.release_each(None), None)
    hub.counts.releases += 1
    return Released.YES if is_held else Released.NOT_HELD


def _release(hub: Hub, claim: Claim, commands: list[Command], hold: Optional[Hold]) -> Steps:
    calls = [Call(command, claim.key) for command in commands]
    replies = yield Batch(calls)
    if len(calls) == 1 and commands[0][0] == "LOCK.MRELEASE" and isinstance(replies[0], Refused):
        # Each key by itself: one may hold something else, or have moved, or the user may not run this command.
        tokens = None if hold is None else hold.tokens
        calls = [Call(command, claim.key) for command in claim.release_each(tokens)]
        replies = yield Batch(calls)
    failed = [reply for reply in replies if isinstance(reply, Error)]
    others = [error for error in failed if not (isinstance(error, Refused) and error.code in _FOREIGN)]
    if others:
        raise others[0]
    if failed:
        raise failed[0]
    if any(reply is not None and not isinstance(reply, int) for reply in replies):
        raise bad_reply(hub.name)
    held = [claim.was_held(call.words, reply) for call, reply in zip(calls, replies)]
    # redis-py may have sent it twice: then nothing held may mean that the first one was served.
    return all(held) or (not any(replies) and all(call.verb.sends > 1 for call in calls))


def set_lease(hold: Hold, lease: float) -> Steps:
    """Sets the lease of a hold."""
    hub = hold.hub
    if hold.is_released:
        raise NotOwned("the hold is over")
    sent = Moment()
    hold.changes += 1
    hold.may_last(lease)
    try:
        replies = yield Batch([Call(command, hold.claim.key) for command in hold.claim.renew(lease, hold.tokens)])
    finally:
        hold.changes -= 1
    error = next((reply for reply in replies if isinstance(reply, Error)), None)
    with hub.guard:
        if error is None and all(reply == 1 for reply in replies):
            if sent.steady >= hold.term[1].steady or lease < hold.lease:
                hold.set_lease(lease, sent)
                hub.plan(hold)
            return
        if any(not reply and not isinstance(reply, Error) for reply in replies) or _is_foreign(error):
            hold.lose(LostReason.TAKEN)
            raise NotOwned("the hold is over")
        if lease < hold.lease:
            # It may have been served.
            hold.set_lease(lease, hold.term[1])
            hub.plan(hold)
    assert error is not None
    raise error


def _is_foreign(error: Optional[Error]) -> bool:
    return isinstance(error, Refused) and error.code in _FOREIGN


def renew_owner(hub: Hub, claim: Claim, lease: float) -> Steps:
    """Renews the hold of an owner, under any token."""
    hub.check_open()
    replies = yield Batch([Call(command, claim.key) for command in claim.renew(lease, None)])
    for reply in replies:
        if isinstance(reply, Error) and not _is_foreign(reply):
            raise reply
    if any(reply != 1 for reply in replies):
        raise NotOwned("the hold is over")


def request(hub: Hub, words: Command, key: bytes) -> Steps:
    """Sends one command that may be served twice."""
    hub.check_open()
    return (yield Call(words, key))


def owners(hub: Hub, key: bytes) -> Steps:
    """The owners that hold a lock."""
    info = yield from request(hub, ("LOCK.INFO", key), key)
    return [field(holder, b"owner") for holder in holders_of(info)]


def is_any_held(hub: Hub, keys: tuple[bytes, ...]) -> Steps:
    """Whether any owner holds one of these locks."""
    for key in keys:
        if (yield from owners(hub, key)):
            return True
    return False


def owns(hub: Hub, claim: Claim) -> Steps:
    """Whether this owner holds all keys of the claim."""
    for key in claim.keys:
        if claim.owner not in (yield from owners(hub, key)):
            return False
    return True


def holds_lock(hold: Hold) -> Steps:
    """Whether the server says that this hold lasts. A user that may not ask renews it for its remaining time."""
    hub = hold.hub
    if hold.is_released or hold.notice.reason is not None:
        return False
    try:
        return (yield from owns(hub, hold.claim))
    except NoPermission:
        span = hold.valid_for()
        if span <= 0:
            return False
        # A session names no lease, or it would not be bound any more.
        commands = hold.claim.renew(None if hold.link is not None else span, hold.tokens)
        replies = yield Batch([Call(command, hold.claim.key) for command in commands])
        error = next((one for one in replies if isinstance(one, Error) and not _is_foreign(one)), None)
        if error is not None:
            raise error from None
        return all(reply == 1 for reply in replies)
    except Refused as error:
        if error.code in _FOREIGN:
            return False
        raise


def at_most_once(hub: Hub, key: bytes, words: Command) -> Steps:
    """Sends a command that must be served at most once. The request before it finds a broken connection and the node of
    the key, so that the outcome can stay unknown only if the connection breaks between the two.

    :raises Unheard: when it is unknown whether the request was served.
    """
    try:
        yield from request(hub, ("LATCH.WAIT", key), key)
    except NotLoaded:
        raise
    except Refused:
        # A refusal is a reply as well: the ACL may forbid this request and allow the command.
        pass
    call = Call(words, key, once=hub.name)
    try:
        return (yield call)
    except ConnectionFailed as error:
        if call.verb.sends and not isinstance(error, Unheard):
            raise Unheard(hub.name, error.what) from error
        raise


def count(hub: Hub, key: bytes) -> Steps:
    """The count of a latch. No command of the module has it, so ``GET`` reads it from a latch that is closed."""
    # Refused if the key holds something else, or the server has no module.
    if (yield from request(hub, ("LATCH.WAIT", key), key)) == 1:
        return 0
    digits: Any = yield from request(hub, ("GET", key), key)
    try:
        return max(0, int(digits)) if digits is not None else 0
    except (TypeError, ValueError):
        # Changed in between.
        raise refused(hub.name, "WRONGTYPE", "the key holds no count") from None
