"""The terms of an acquisition, checked before anything is sent, and the commands of each claim.

An acquisition without an owner of the program has a fresh one and the number 1 (``SEQ 1``). It is given up, whatever
became of its requests, with ``FINAL 1``: no request of it that is served later grants anything.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import numbers
import time
from collections.abc import Iterable
from typing import Any, NamedTuple, Optional, Union

from .errors import ConfigError, Late, bad_reply
from .observer import Observed
from .outcome import Mode

#: The default lease, which is also the server's.
DEFAULT_LEASE = 30.0
#: How long replicas may take.
DEFAULT_WITHIN = 0.1
#: The most replicas that can be asked for.
_MOST_REPLICAS = 100
_LONGEST_QUEUE = 1_000_000
#: The longest lease, which clocks can still represent.
_LONGEST_LEASE = 100 * 365 * 86_400.0
#: The longest name of an owner.
_LONGEST_OWNER = 256
#: The longest text beside a hold.
_LONGEST_NOTE = 256
#: The largest number of permits of a semaphore, and the largest count of a latch.
MOST_PERMITS = 2**31 - 1
MOST_COUNT = 2**63 - 1
#: The most permits of one acquisition.
MOST_AT_ONCE = 64
#: What of a lease is not certain: the server counts in whole milliseconds, so its time of the grant may be almost one
#: millisecond early.
ROUNDING = 0.001
#: The most keys that ``LOCK.MACQUIRE`` takes.
_MOST_KEYS = 1_024

Number = Union[int, float]
Text = Union[str, bytes, bytearray, memoryview]
#: A name of a key, as redis-py takes it.
Key = Union[Text, int, float]
#: A command, whose first word is text.
Command = tuple[Any, ...]
#: The tokens of a grant, one for each key.
Tokens = tuple[int, ...]


class Verb(str):
    """The first word of a command, which counts how often the command was made ready to be sent.

    redis-py may send a command again by itself. A request that was sent twice, and answered once, may still be served
    a second time, so the package has to know.
    """

    sends = 0
    #: When it is not sent again any more; 0: it is sent once.
    until = math.inf

    def encode(self, *args: Any, **kwargs: Any) -> bytes:
        if self.sends and time.monotonic() >= self.until:
            raise Late
        self.sends += 1
        return str.encode(self, *args, **kwargs)


class Terms(NamedTuple):
    """The terms of each acquisition of a lock, of several, or of a permit; and, with an owner, the claim of one
    acquisition, which has the commands. In a cluster the keys are in one slot."""

    keys: tuple[bytes, ...]
    #: Empty: a fresh one for each acquisition.
    owner: bytes = b""
    #: Whether the owner is that of one acquisition alone, whose requests have the number 1.
    is_fresh: bool = False
    mode: Mode = Mode.EXCLUSIVE
    #: In whole milliseconds.
    lease: float = DEFAULT_LEASE
    margin: Optional[float] = None
    #: Whether the lease is renewed until the release.
    renews: bool = True
    #: Whether a hold is bound to a connection of its own. The lease is the server's then.
    is_session: bool = False
    #: The longest time of a hold in seconds, in spite of renewals.
    max_hold: Optional[float] = None
    #: A text beside an exclusive hold of one key.
    note: Optional[bytes] = None
    is_permit: bool = False
    #: The number of permits with which an acquisition creates a missing semaphore.
    limit: Optional[int] = None
    #: How many replicas have to have a grant, and within how many seconds.
    replicas: Optional[int] = None
    within: float = DEFAULT_WITHIN
    #: The most requests of others behind which it waits.
    queue: Optional[int] = None
    #: How many permits it takes, if not one.
    permits: Optional[int] = None
    #: What each request of an acquisition says behind its owner.
    words: Command = ()

    @property
    def key(self) -> bytes:
        """The first key, whose slot is that of all."""
        return self.keys[0]

    @property
    def names(self) -> str:
        """The keys as text."""
        return ", ".join(key.decode("utf-8", "replace") for key in self.keys)

    @property
    def observed(self) -> Observed:
        """What an observer is told of it."""
        return Observed(self.names, "semaphore" if self.is_permit else self.mode.value)

    def claim(self, fresh: bytes) -> Terms:
        """The terms of one acquisition: with this owner, unless the program has named one."""
        # Not `_replace`, which takes four times as long.
        return self if self.owner else Terms(self.keys, fresh, True, *self[3:])

    def certain(self, lease: float) -> float:
        """How long after its request a hold with this lease is not reported as lost, in seconds."""
        return lease - ROUNDING - (lease / 6 if self.margin is None else min(self.margin, lease / 2))

    @property
    def mode_words(self) -> Command:
        """The mode in a command."""
        return () if self.mode is Mode.EXCLUSIVE else (self.mode.name.encode(),)

    def __repr__(self) -> str:
        # The owner is a credential.
        return f"Terms({', '.join(map(repr, self.keys))})"

    def with_words(self) -> Terms:
        """The terms with the words of their requests, which are made once."""
        span: Command = (b"SESSION",) if self.is_session else (b"PX", b"%d" % millis(self.lease))
        limit: Command = () if self.limit is None else (b"LIMIT", self.limit)
        count: Command = () if self.permits is None else (b"COUNT", self.permits)
        once: Command = () if self.is_permit else (b"ONCE",)
        note: Command = () if self.note is None else (b"NOTE", self.note)
        return Terms(*self[:-1], (*self.mode_words, *span, *count, *limit, *once, *note))

    def waits(self, millis: int, channel: bytes, ticket: int) -> Command:
        """What is added to a request that waits."""
        queue: Command = () if self.queue is None else ("QUEUE", self.queue)
        return ("BLOCK", millis, "NOTIFY", channel, ticket, *queue)

    def acquire(self) -> Command:
        """The request: the tokens, or nil. Sent twice, it is granted once."""
        number: Command = (b"SEQ", b"1") if self.is_fresh else ()
        words = (self.owner, *self.words, *number)
        if len(self.keys) > 1:
            return (Verb("LOCK.MACQUIRE"), len(self.keys), *self.keys, *words)
        return (Verb("SEM.ACQUIRE" if self.is_permit else "LOCK.ACQUIRE"), self.keys[0], *words)

    def renew(self, lease: Optional[float], tokens: Optional[Tokens]) -> list[Command]:
        """A renewal of each key: 1 if it is held under its token. Without a lease: one that is bound to its connection
        stays bound. Without tokens: by the owner alone, for a hold that another object took."""
        span: Command = () if lease is None else (b"PX", max(1, millis(lease)))
        return self._each("LOCK.RENEW", (*self.mode_words, *span), tokens)

    def release(self, tokens: Optional[Tokens]) -> list[Command]:
        """The release of each key: None if it is not held."""
        words = () if self.is_permit else (*self.mode_words, b"ALL")
        return self._each("LOCK.RELEASE", words, tokens)

    def give_up(self, tokens: Optional[Tokens] = None) -> list[Command]:
        """Ends a hold, withdraws the wait, and of a fresh owner makes its requests final."""
        if not self.is_fresh:
            return self.release(tokens)
        return self._each("LOCK.RELEASE", (b"FINAL", b"1"), None)

    def _each(self, verb: str, words: Command, tokens: Optional[Tokens]) -> list[Command]:
        owner = self.owner
        if self.is_permit:
            return [(Verb(verb.replace("LOCK", "SEM")), self.key, owner, *words)]
        if tokens is None:
            return [(Verb(verb), key, owner, *words) for key in self.keys]
        return [(Verb(verb), key, owner, *words, b"TOKEN", token) for key, token in zip(self.keys, tokens)]

    def granted(self, reply: Any, server: str) -> Optional[Tokens]:
        """The tokens of a reply to an acquire; None for nil."""
        if reply is None:
            return None
        tokens = tuple(reply) if isinstance(reply, list) else (reply,)
        if len(tokens) != len(self.keys) or set(map(type, tokens)) != {int}:
            raise bad_reply(server)
        return tokens


def millis(span: float) -> int:
    """Whole milliseconds, cut: the client must not count on a longer lease than the server's. A thousandth is
    added before, because 0.29 * 1000 is below 290."""
    return int(span * 1000 + 0.001)


def checked_terms(
    keys: tuple[bytes, ...],
    *,
    lease: Any = None,
    margin: Any = None,
    owner: Any = None,
    max_hold: Any = None,
    note: Any = None,
    replicas: Any = None,
    replicas_within: Any = DEFAULT_WITHIN,
    queue: Any = None,
    lease_name: str = "lease",
    **others: Any,
) -> Terms:
    """The terms of these arguments; the others are fields of them.

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
    note = None if note is None else checked_note(note)
    if replicas is not None:
        replicas = checked_number(replicas, "replicas", 1, _MOST_REPLICAS)
        if others.get("is_session"):
            raise ConfigError("a lock that ends with its connection has no replicas")
    if replicas_within is not DEFAULT_WITHIN and not checked_span(replicas_within, "replicas_within") >= 0.001:
        raise ConfigError("replicas_within is at least a millisecond")
    others.update(replicas=replicas, within=replicas_within, queue=checked_queue(queue))
    terms = Terms(keys, lease=span, margin=margin, max_hold=max_hold, note=note, **others).with_words()
    if note is not None and terms.mode is not Mode.EXCLUSIVE:
        raise ConfigError("a note is of exclusive locks")
    return terms if owner is None else owned_by(terms, owner)


def owned_by(terms: Terms, owner: Any) -> Terms:
    """The terms with an owner that the program names. The messages do not quote it: it is a credential."""
    name = _bytes_of(owner, "the owner")
    if not 1 <= len(name) <= _LONGEST_OWNER:
        raise ConfigError("an owner has 1 to 256 bytes")
    if name.startswith(b"#"):
        raise ConfigError("owners that begin with '#' are reserved")
    if terms.mode is not Mode.EXCLUSIVE and (name == b"mode" or name.endswith(b":write")):
        raise ConfigError("the owner 'mode', or one that ends in ':write', cannot hold READ or WRITE")
    return terms._replace(owner=name, is_fresh=False)


def checked_note(note: Any) -> bytes:
    """The bytes of a text beside a hold."""
    text = _bytes_of(note, "the note")
    if len(text) > _LONGEST_NOTE:
        raise ConfigError("a note has at most 256 bytes")
    return text


def checked_key(key: Any) -> bytes:
    """The bytes of a key; text is UTF-8, and a number what redis-py makes of it."""
    if isinstance(key, (int, float)) and not isinstance(key, bool):
        return repr(key).encode()
    return _bytes_of(key, "the key")


def checked_names(names: Any) -> tuple[Any, ...]:
    """The names of several keys, each of them once."""
    if isinstance(names, (str, bytes, bytearray, memoryview)) or not isinstance(names, Iterable):
        raise ConfigError("the keys of a MultiLock are several texts or bytes, not one")
    found = tuple(map(name_of, names))
    keys = [checked_key(name) for name in found]
    if not 1 <= len(keys) <= _MOST_KEYS:
        raise ConfigError(f"a MultiLock has 1 to {_MOST_KEYS} keys")
    if len(set(keys)) < len(keys):
        twice = next(key for place, key in enumerate(keys) if key in keys[:place])
        raise ConfigError(f"{twice.decode('utf-8', 'replace')} is named twice")
    return found


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


def checked_rest(rest: Any) -> float:
    """The lease of a lock that is left."""
    span = checked_span(rest, "rest")
    if span == 0:
        raise ConfigError("rest is more than 0: a lock that is to be free now is released")
    return checked_lease(max(span, 0.002), "rest")


def checked_wait(wait: Any, name: str) -> Optional[float]:
    """The limit of a wait in seconds; None for no limit."""
    return None if wait is None or wait == math.inf else checked_span(wait, name)


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


def checked_queue(queue: Any) -> Optional[int]:
    """The most requests of others behind which a request waits; None for no limit."""
    return None if queue is None else checked_number(queue, "queue", 0, _LONGEST_QUEUE)


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
