"""Releases, changes of a lease, and requests that hold nothing."""

from __future__ import annotations

from typing import Any, Callable, Optional, TypeVar

from redis import exceptions as redis_errors

from ._hold import FOREIGN, Hold, Moment, OnLost, now
from ._hub import Hub
from ._info import LockInfo, lock_info
from ._terms import Command, Terms, Tokens, Verb
from .errors import ConfigError, ConnectionFailed, Error, NoPermission, NotLoaded, NotOwned, Refused, Unheard, bad_reply
from .outcome import LostReason, Mode, Released

T = TypeVar("T")

#: How long the release of a lock that was lost is waited for: it goes on in the background.
_LOST_FOR = 0.5


def _is_foreign(error: Optional[Error]) -> bool:
    return isinstance(error, Refused) and error.code in FOREIGN


async def release(hold: Hold) -> Released:
    """Releases a hold; it goes on in the background if the server does not answer."""
    hub = hold.hub
    if hold.is_over:
        return Released.NOT_HELD
    if hold.reason is not None:
        ending = hub.abandon(hold)
        if ending is not None:
            await hub.wait(ending.event, _LOST_FOR)
        # One that was taken may have been granted again, to a request that was served late.
        is_released = hold.reason is not LostReason.TAKEN and getattr(ending, "result", 0) is Released.YES
        return Released.YES if is_released else Released.NOT_HELD
    try:
        hub.users.add(hold)
        # No renewal and no loss from here on.
        hub.holds.discard(hold)
        released = await _release(hub, hold.releases())
    except BaseException:
        # It is repeated in the background: as final, since it had no answer.
        hold.is_unanswered = True
        hub.abandon(hold)
        raise
    finally:
        hub.gone(hold)
    if hold.link is not None:
        hold.link.close()
    hub.remove(hold)
    if hold.observed is not None:
        hub.observe("released", hold.observed, hold.held())
    return released


async def release_owner(hub: Hub, claim: Terms) -> Released:
    """Releases the hold of an owner, under any token."""
    hub.check_open()
    return await _release(hub, claim.release(None))


async def leave(hold: Hold, rest: float) -> Released:
    """Ends a hold here; the server ends it when this lease is over, or with its present lease if there is no answer."""
    hub = hold.hub
    is_lost = hold.has_ended
    try:
        hub.users.add(hold)
        with hub.guard:
            # No renewal and no loss from here on.
            hub.holds.discard(hold)
            under_way, end = list(hold.renewing), now() + hub.patience
        for answered in under_way:
            # Served later, it would set the lease that this object renews again.
            await hub.wait(answered, max(0.0, end - now()))
        left = False if is_lost else verdict(await hub.batch(hold.claim.renew(rest, hold.tokens)))
    finally:
        hub.remove(hold)
        if not is_lost:
            hub.observe("released", hold.observed, hold.held())
            if hold.link is not None:
                hold.link.close()
        hub.gone(hold)
    if isinstance(left, Error):
        raise left
    hub.counts.releases += not is_lost
    return Released.YES if left else Released.NOT_HELD


async def resume(hub: Hub, claim: Terms, token: int, on_lost: Optional[OnLost], keep: Callable[[Hold], T]) -> T:
    """Takes over what the owner of this claim holds under a token, and returns what this function makes of the hold.

    :raises NotOwned: when it holds nothing.
    """
    hub.begin()
    sent, observed = Moment(), claim.observed
    hub.observe("asked", observed)
    try:
        if not await renews(hub, claim, claim.lease, (token,)):
            raise NotOwned("the hold is over")
        hub.check_open()
    except BaseException as error:
        hub.counts.acquisitions_failed += isinstance(error, Error)
        hub.observe("answered", observed, False, sent.elapsed(), error)
        raise
    hold = Hold(hub, claim, (token,), claim.lease, sent, on_lost, None)
    try:
        hub.add(hold)
        hub.counts.acquisitions += 1
        kept = keep(hold)
        hold.observed = observed
        hub.observe("answered", observed, True, sent.elapsed(), None)
        return kept
    except BaseException as error:
        # A signal handler has raised. It is not released: another process may hold it, too.
        hub.remove(hold)
        if hold.observed is None:
            hub.observe("answered", observed, False, sent.elapsed(), error)
        raise


async def _release(hub: Hub, commands: list[Command]) -> Released:
    replies = await hub.batch(commands)
    for reply in replies:
        if isinstance(reply, Error) and not _is_foreign(reply):
            raise reply
    hub.counts.releases += 1
    if set(map(type, replies)) == {int}:
        return Released.YES
    if not all(reply is None or isinstance(reply, (int, Error)) for reply in replies):
        raise bad_reply(hub.name)
    # redis-py may have sent it twice: then nothing held may mean that the first one was served.
    was_served = not any(replies) and all(words[0].sends > 1 for words in commands)
    return Released.YES if was_served else Released.NOT_HELD


def verdict(replies: list[Any]) -> Any:
    """Whether a renewal found all keys held, or the error for which that is not known."""
    error = next((reply for reply in replies if isinstance(reply, Error)), None)
    if error is None or _is_foreign(error) or any(not isinstance(reply, Error) and reply != 1 for reply in replies):
        return all(reply == 1 for reply in replies)
    return error


async def set_lease(hold: Hold, lease: float) -> None:
    """Sets the lease of a hold."""
    hub = hold.hub
    if hold.is_over:
        raise NotOwned("the hold is over")
    sent = Moment()
    hold.changes += 1
    hold.may_last(lease)
    try:
        held = verdict(await hub.batch(hold.claim.renew(lease, hold.tokens)))
    finally:
        hold.changes -= 1
    with hub.guard:
        if held is True:
            if sent.steady >= hold.term[1].steady or lease < hold.lease:
                hold.set_lease(lease, sent)
                hub.plan(hold)
            return
        if held is False:
            hold.lose(LostReason.TAKEN)
            raise NotOwned("the hold is over")
        if not isinstance(held, Refused):
            # It may have been served, or may be yet.
            hold.unheard_lease = min(hold.unheard_lease, lease)
        if lease < hold.lease:
            hold.set_lease(lease, hold.term[1])
            hub.plan(hold)
    raise held


async def renews(hub: Hub, claim: Terms, lease: Optional[float], tokens: Optional[Tokens] = None) -> bool:
    """Renews what an owner holds, without tokens under any; whether it holds all keys."""
    hub.check_open()
    held = verdict(await hub.batch(claim.renew(lease, tokens)))
    if isinstance(held, Error):
        raise held
    return bool(held)


async def request(hub: Hub, *words: Any) -> Any:
    """Sends one command, whose first argument is the key, that may be served twice."""
    hub.check_open()
    return await hub.call(words, words[1])


async def info(hub: Hub, key: bytes) -> LockInfo:
    """The holders and waiters of a lock."""
    return lock_info(await request(hub, "LOCK.INFO", key))


async def owns(hub: Hub, claim: Terms) -> bool:
    """Whether this owner holds all keys of the claim."""
    for key in claim.keys:
        if claim.owner not in [holder.owner for holder in (await info(hub, key)).holders]:
            return False
    return True


async def holds_lock(hold: Hold) -> bool:
    """Whether the server says that this hold lasts. A user that may not ask renews it for its remaining time."""
    if hold.has_ended:
        return False
    is_known = hold.claim.mode is not Mode.READ
    try:
        held = await owns(hold.hub, hold.claim)
        # Not all of many readers are listed.
        is_known = is_known or held
    except NoPermission:
        is_known = False
    except Refused as error:
        if not _is_foreign(error):
            raise
        held, is_known = False, True
    if not is_known:
        span = hold.valid_for()
        if span <= 0:
            return False
        # A session names no lease, or it would not be bound any more.
        held = await renews(hold.hub, hold.claim, None if hold.link is not None else span, hold.tokens)
    if not held:
        hold.lose(LostReason.TAKEN)
    return held


def _encoded(client: Any, word: Any) -> bytes:
    """What the program's client makes of an argument. Refused before anything is sent: an error while it is sent would
    be that of a command that may have run."""
    try:
        return bytes(client.get_encoder().encode(word))
    except (redis_errors.DataError, ValueError):
        kind = type(word).__name__
    raise ConfigError(f"redis-py does not send an argument of type {kind} like this one")


async def at_most_once(hub: Hub, *words: Any) -> Any:
    """Sends a command that must be served at most once. The request before it finds a broken connection and the node of
    the key, so that the outcome can stay unknown only if the connection breaks between the two.

    :raises Unheard: when it is unknown whether the request was served.
    """
    words = (words[0], *(_encoded(hub.client, word) for word in words[1:]))
    try:
        await request(hub, "LATCH.WAIT", words[1])
    except NotLoaded:
        raise
    except Refused:
        # A refusal is a reply as well: the ACL may forbid this request and allow the command.
        pass
    verb = Verb(words[0])
    verb.until = 0.0
    try:
        command = (verb, *words[1:])
        return await (hub.execute_at_node(command) if hub.is_cluster else hub.call(command, words[1]))
    except ConnectionFailed as error:
        if verb.sends:
            raise Unheard(hub.name, error.what) from error
        raise
