"""The options of the constructors, for the methods that pass them on.

``typing_extensions`` is named for type checkers only; the package does not need it.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, TypedDict

from ._terms import Number, Text
from .outcome import LostReason, Mode


class HoldOptions(TypedDict, total=False):
    """What locks of one key and of several have in common."""

    blocking: bool
    blocking_timeout: Optional[Number]
    thread_local: bool
    raise_on_release_error: bool
    lease: Optional[Number]
    margin: Optional[Number]
    owner: Optional[Text]
    renew: Optional[bool]
    on_lost: Optional[Callable[[LostReason], Any]]
    max_hold: Optional[Number]


class MultiLockOptions(HoldOptions, total=False):
    """The options of ``MultiLock``."""

    mode: Mode


class ReadWriteLockOptions(HoldOptions, total=False):
    """The options of ``ReadWriteLock``."""

    sleep: Number
    session: bool


class LockOptions(ReadWriteLockOptions, total=False):
    """The options of ``Lock``."""

    mode: Mode


class SemaphoreOptions(TypedDict, total=False):
    """The options of ``Semaphore``."""

    limit: Optional[int]
    lease: Optional[Number]
    margin: Optional[Number]
    owner: Optional[Text]
    on_lost: Optional[Callable[[LostReason], Any]]
