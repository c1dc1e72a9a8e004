"""The terms of an acquisition (keys, owner, kind, lease, margin), checked before anything is sent, and its commands.

An acquisition without an owner of the program has a fresh one and the number 1 (``SEQ 1``). It is given up, whatever
became of its requests, with ``FINAL 1``: no request of it that is served later grants anything.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import numbers
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional, Union

from .errors import ConfigError, bad_reply
from .outcome import Mode

#: The default lease, which is also the server's.
DEFAULT_LEASE = 30.0
#: The longest lease, which clocks can still represent.
_LONGEST_LEASE = 100 * 365 * 86_400.0
#: The longest name of an owner.
_LONGEST_OWNER = 256
#: The largest number of permits of a semaphore, and the largest count of a latch.
MOST_PERMITS = 2**31 - 1
MOST_COUNT = 2**63 - 1
#: The most keys that ``LOCK.MACQUIRE`` takes.
_MOST_KEYS = 1_024

Text = Union[str, bytes, bytearray, memoryview]
#: A name of a key, as redis-py takes it.
Key = Union[Text, int, float]
#: A command, whose first word is text.
Command = tuple[Any, ...]
#: The tokens of a grant, one for each key.
Tokens = tuple[int, ...]


@dataclass(frozen=True)
class Kind:
    """The kind of a hold: a lock in a mode, or a permit of a semaphore."""

    mode: Mode = Mode.EXCLUSIVE
    is_permit: bool = False
    #: The number of permits with which an acquisition creates a missing semaphore.
    limit: Optional[int] = None


@dataclass(frozen=True)
class Claim:
    """The keys, owner and kind of a hold, which every command names. In a cluster the keys are in one slot."""

    keys: tuple[bytes, ...]
    owner: bytes
    kind: Kind
    #: Whether no other acquisition has this owner.
    is_fresh: bool = False

    def __repr__(self) -> str:
        # The owner is a credential.
        return f"Claim({', '.join(map(repr, self.keys))})"

    @property
    def key(self) -> bytes:
        """The first key, whose slot is that of all."""
        return self.keys[0]

    @property
    def is_multi(self) -> bool:
        """Whether the claim is for several keys."""
        return len(self.keys) > 1

    def _start(self, verb: str, has_mode: bool = True, key: Optional[bytes] = None) -> Command:
        if self.kind.is_permit:
            return (f"SEM.{verb}", self.key, self.owner)
        mode = () if self.kind.mode is Mode.EXCLUSIVE or not has_mode else (self.kind.mode.name,)
        if self.is_multi and key is None:
            return (f"LOCK.M{verb}", len(self.keys), *self.keys, self.owner, *mode)
        return (f"LOCK.{verb}", key or self.key, self.owner, *mode)

    def acquire(self, lease: float, is_session: bool) -> Command:
        """The request: the tokens, or nil. Sent twice, it is granted once."""
        words: Command = ("SESSION",) if is_session else ("PX", millis(lease))
        if not self.kind.is_permit:
            words = (*words, "ONCE")
        elif self.kind.limit is not None:
            words = (*words, "LIMIT", self.kind.limit)
        return (*self._start("ACQUIRE"), *words, *(("SEQ", 1) if self.is_fresh else ()))

    def renew(self, lease: Optional[float], tokens: Optional[Tokens]) -> list[Command]:
        """A renewal of each key: 1 if it is held under its token. Without a lease: one that is bound to its connection
        stays bound. Without tokens: by the owner alone, for a hold that another object took."""
        span: Command = () if lease is None else ("PX", max(1, millis(lease)))
        if self.kind.is_permit:
            return [(*self._start("RENEW"), *span)]
        return [(*self._start("RENEW", key=key), *span, *self._token(tokens, at)) for at, key in enumerate(self.keys)]

    def release(self, tokens: Optional[Tokens]) -> list[Command]:
        """The release: one command for a fresh owner, and else one for each key, which names its token."""
        if self.is_multi and self.is_fresh:
            return [(*self._start("RELEASE", has_mode=False), "ALL")]
        return self.release_each(tokens)

    def release_each(self, tokens: Optional[Tokens], is_final: bool = False) -> list[Command]:
        """The release of each key by itself."""
        if self.kind.is_permit:
            return [self._start("RELEASE")]
        if is_final and self.is_fresh:
            return [(*self._start("RELEASE", has_mode=False, key=key), "FINAL", 1) for key in self.keys]
        return [(*self._start("RELEASE", key=key), "ALL", *self._token(tokens, at)) for at, key in enumerate(self.keys)]

    def give_up(self, tokens: Optional[Tokens] = None) -> list[Command]:
        """Ends a hold, withdraws the wait, and of a fresh owner makes its requests final."""
        if self.is_fresh:
            return [(*self._start("RELEASE", has_mode=False), "FINAL", 1)]
        return self.release_each(tokens)

    def was_held(self, command: Command, reply: Any) -> bool:
        """Whether a reply to a release says that what it names was held."""
        return reply == len(self.keys) if command[0] == "LOCK.MRELEASE" else reply is not None

    def _token(self, tokens: Optional[Tokens], at: int) -> Command:
        return () if tokens is None else ("TOKEN", tokens[at])

    def granted(self, reply: Any, server: str) -> Optional[Tokens]:
        """The tokens of a reply to an acquire; None for nil."""
        if reply is None:
            return None
        tokens = tuple(reply) if isinstance(reply, list) and self.is_multi else (reply,)
        if len(tokens) == len(self.keys) and all(isinstance(token, int) for token in tokens):
            return tokens
        raise bad_reply(server)


def millis(span: float) -> int:
    """Whole milliseconds, cut: the client must not count on a longer lease than the server's. A thousandth is
    added before, because 0.29 * 1000 is below 290."""
    return int(span * 1000 + 0.001)


class Terms(NamedTuple):
    """The terms of each acquisition of a lock."""

    keys: tuple[bytes, ...]
    #: None: a fresh owner for each acquisition.
    owner: Optional[bytes]
    kind: Kind
    #: In whole milliseconds.
    lease: float
    margin: Optional[float]
    #: Whether the lease is renewed until the release.
    renews: bool
    #: Whether a hold is bound to a connection of its own. The lease is the server's then.
    is_session: bool = False
    #: The longest time of a hold in seconds, in spite of renewals.
    max_hold: Optional[float] = None

    def __repr__(self) -> str:
        # The owner is a credential.
        return f"Terms({', '.join(map(repr, self.keys))})"

    @property
    def key(self) -> bytes:
        """The first key."""
        return self.keys[0]

    def claim(self, fresh: bytes) -> Claim:
        """The claim of the next acquisition, for which this owner is fresh."""
        is_fresh = self.owner is None
        return Claim(self.keys, fresh if self.owner is None else self.owner, self.kind, is_fresh)


def certain(lease: float) -> float:
    """The certain part of a lease. The server counts in whole milliseconds, so its time of the grant may be almost one
    millisecond early."""
    return max(0.0, lease - 0.001)


def reported_after(lease: float, margin: Optional[float]) -> float:
    """How long after a confirmed request the loss is reported."""
    return max(0.0, certain(lease) - (lease / 6 if margin is None else margin))


def checked_terms(
    keys: tuple[bytes, ...],
    kind: Kind = Kind(),
    *,
    lease: Any = None,
    margin: Any = None,
    owner: Any = None,
    renews: bool = True,
    is_session: bool = False,
    max_hold: Any = None,
    lease_name: str = "lease",
) -> Terms:
    """The terms of these arguments.

    :param lease_name: the argument that has the lease.
    :raises ConfigError: when one is out of its bounds.
    """
    span = checked_lease(DEFAULT_LEASE if lease is None else lease, lease_name)
    if max_hold is not None:
        max_hold = checked_lease(max_hold, "max_hold")
        span = min(span, max_hold)
    if margin is not None:
        margin = checked_span(margin, "margin")
        if margin > span / 2:
            raise ConfigError(f"margin is at most half of {lease_name}: before it the lock is renewed")
    if owner is not None:
        owner = checked_owner(owner, kind)
    return Terms(keys, owner, kind, span, margin, renews, is_session, max_hold)


def checked_keys(names: list[Any]) -> tuple[bytes, ...]:
    """The bytes of several keys, each of them once."""
    keys = tuple(checked_key(name) for name in names)
    if not 1 <= len(keys) <= _MOST_KEYS:
        raise ConfigError(f"a MultiLock has 1 to {_MOST_KEYS} keys")
    if len(set(keys)) < len(keys):
        twice = next(key for place, key in enumerate(keys) if key in keys[:place])
        raise ConfigError(f"{twice.decode('utf-8', 'replace')} is named twice")
    return keys


def checked_key(key: Any) -> bytes:
    """The bytes of a key; text is UTF-8, and a number what redis-py makes of it."""
    if isinstance(key, (int, float)) and not isinstance(key, bool):
        return repr(key).encode()
    return _bytes_of(key, "the key")


def checked_names(names: Any) -> tuple[Any, ...]:
    """The names of several keys, each of them once."""
    if isinstance(names, (str, bytes, bytearray, memoryview)) or not isinstance(names, Iterable):
        raise ConfigError("the keys of a MultiLock are several texts or bytes, not one")
    found = list(names)
    checked_keys(found)
    return tuple(name_of(name) for name in found)


def name_of(name: Any) -> Any:
    """A name as it is kept: the buffer of a bytearray may change."""
    return bytes(name) if isinstance(name, (bytearray, memoryview)) else name


def checked_lease(lease: Any, name: str) -> float:
    """A lease, cut to whole milliseconds."""
    span = checked_span(lease, name)
    if span > _LONGEST_LEASE:
        raise ConfigError(f"{name}: a lease lasts at most a hundred years")
    span = millis(span) / 1000
    # One millisecond is lost to rounding.
    if span < 0.002:
        raise ConfigError(f"{name}: a lease lasts at least two milliseconds")
    return span


def checked_owner(owner: Any, kind: Kind) -> bytes:
    """The bytes of an owner. The messages do not quote it: it is a credential."""
    name = _bytes_of(owner, "the owner")
    if not 1 <= len(name) <= _LONGEST_OWNER:
        raise ConfigError("an owner has 1 to 256 bytes")
    if name == b"#token":
        raise ConfigError("this owner is a reserved word")
    if not kind.is_permit and kind.mode is not Mode.EXCLUSIVE and (name == b"mode" or name.endswith(b":write")):
        raise ConfigError("the owner 'mode', or one that ends in ':write', cannot hold READ or WRITE")
    return name


def checked_wait(wait: Any, name: str) -> Optional[float]:
    """The limit of a wait in seconds; None for no limit."""
    if wait is None:
        return None
    if isinstance(wait, numbers.Real) and not isinstance(wait, bool) and wait == math.inf:
        return None
    return checked_span(wait, name)


def checked_span(span: Any, name: str) -> float:
    """A number of seconds that is not negative; the argument has this name."""
    if isinstance(span, bool) or not isinstance(span, numbers.Real):
        raise ConfigError(f"{name} is a number of seconds")
    try:
        number = float(span)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < 0:
        raise ConfigError(f"{name} is a finite number of seconds, and not negative")
    return number


def checked_number(number: Any, name: str, least: int, most: int) -> int:
    """A number of permits, or the count of a latch."""
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
        raise ConfigError(f"{name} is a whole number from {least} to {most}")
    return number


def checked_flag(flag: Any, name: str) -> bool:
    """True or False, and not another object."""
    if not isinstance(flag, bool):
        raise ConfigError(f"{name} is True or False")
    return flag


def check_function(function: Any, name: str, is_awaited: bool) -> None:
    """Refuses an argument that is no function, or a coroutine function that nothing would await."""
    if function is not None and not callable(function):
        raise ConfigError(f"{name} is a function")
    if not is_awaited and inspect.iscoroutinefunction(function):
        raise ConfigError(f"{name} is called in a thread: it is no coroutine function")


def _bytes_of(text: Any, what: str) -> bytes:
    if isinstance(text, str):
        with contextlib.suppress(UnicodeEncodeError):
            return text.encode("utf-8", "surrogateescape")
        # Raised outside, because that error has the text, which may be an owner.
        raise ConfigError(f"{what} has characters that UTF-8 does not have")
    if isinstance(text, (bytes, bytearray, memoryview)):
        return bytes(text)
    raise ConfigError(f"{what} is text or bytes")
