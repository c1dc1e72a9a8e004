"""The terms of an acquisition: key, owner, kind, lease and margin. They are checked before anything is sent."""

from __future__ import annotations

import contextlib
import inspect
import math
import numbers
import uuid
from typing import Any, NamedTuple, Optional, Union

from ..errors import ConfigError
from ..outcome import Mode
from .commands import Claim, Kind, millis
from .slot import slot_of

#: The default lease, which is also the server's.
DEFAULT_LEASE = 30.0
#: The response timeout of a server that does not name its own, in seconds.
RESPONSE_TIMEOUT = 5.0
#: The longest lease, which clocks can still represent.
_LONGEST_LEASE = 100 * 365 * 86_400.0
#: How much longer than its limit a wait may last, for a pending reply.
OVERTIME = 0.25
#: The longest name of an owner.
_LONGEST_OWNER = 256
#: The largest number of permits of a semaphore, and the largest count of a latch.
MOST_PERMITS = 2**31 - 1
MOST_COUNT = 2**63 - 1
#: The most keys that ``LOCK.MACQUIRE`` takes.
_MOST_KEYS = 1_024

Text = Union[str, bytes, bytearray, memoryview]


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

    def __repr__(self) -> str:
        # The owner is a credential.
        return f"Terms({', '.join(map(repr, self.keys))})"

    @property
    def key(self) -> bytes:
        """The first key."""
        return self.keys[0]

    def claim(self) -> Claim:
        """The claim of the next acquisition."""
        return Claim(self.keys, self.owner if self.owner is not None else str(uuid.uuid4()).encode(), self.kind)

    @property
    def reported_after(self) -> float:
        """How long after its request a grant is usable; then its loss is reported."""
        return reported_after(self.lease, self.margin)

    def longest_slice(self, patience: float) -> float:
        """The longest time for which one request of a wait is parked: it ends before the response timeout, and leaves
        most of the lease to a grant at its end."""
        return min(patience / 2, self.lease / 3)


def certain(lease: float) -> float:
    """The certain part of a lease. The server counts in whole milliseconds, so its time of the grant may be almost one
    millisecond early."""
    return max(0.0, lease - 0.001)


def reported_after(lease: float, margin: Optional[float]) -> float:
    """How long after a confirmed request the loss is reported."""
    return max(0.0, certain(lease) - (lease / 6 if margin is None else margin))


def checked_terms(
    keys: tuple[bytes, ...],
    kind: Kind = Kind(),  # noqa: B008 - immutable
    *,
    lease: Any = None,
    margin: Any = None,
    owner: Any = None,
    renews: bool = True,
    is_session: bool = False,
    lease_name: str = "lease",
) -> Terms:
    """The terms of these arguments.

    :param lease_name: the argument that has the lease.
    :raises ConfigError: when one is out of its bounds.
    """
    span = checked_lease(DEFAULT_LEASE if lease is None else lease, lease_name)
    if margin is not None:
        margin = checked_span(margin, "margin")
        if margin > span / 2:
            raise ConfigError(f"margin is at most half of {lease_name}: before it the lock is renewed")
    if owner is not None:
        owner = checked_owner(owner, kind)
    return Terms(keys, owner, kind, span, margin, renews, is_session)


def checked_keys(names: list[Any]) -> tuple[bytes, ...]:
    """The bytes of several keys, each of them once."""
    keys = tuple(checked_key(name) for name in names)
    if not 1 <= len(keys) <= _MOST_KEYS:
        raise ConfigError(f"a MultiLock has 1 to {_MOST_KEYS} keys")
    if len(set(keys)) < len(keys):
        twice = next(key for place, key in enumerate(keys) if key in keys[:place])
        raise ConfigError(f"{twice.decode('utf-8', 'replace')} is named twice")
    return keys


def check_slot(keys: tuple[bytes, ...], is_cluster: bool) -> None:
    """Refuses keys of several slots, which no node of a cluster can grant together."""
    if is_cluster and len({slot_of(key) for key in keys}) > 1:
        raise ConfigError("in a cluster the keys of a MultiLock are in one slot: give them one hash tag, {...}")


def checked_key(key: Any) -> bytes:
    """The bytes of a key; text is UTF-8."""
    return _bytes_of(key, "the key")


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
