"""The options of the constructors, for the methods that pass them on.

``typing_extensions`` is named for type checkers only; the package does not need it.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, TypedDict

from ._terms import Number, Text
from .outcome import LostReason, Mode


class _Waits(TypedDict, total=False):
    blocking: bool
    blocking_timeout: Optional[Number]
    thread_local: bool
    raise_on_release_error: bool


class _Permits(TypedDict, total=False):
    lease: Optional[Number]
    margin: Optional[Number]
    owner: Optional[Text]
    on_lost: Optional[Callable[[LostReason], Any]]


class _Holds(_Permits, total=False):
    renew: Optional[bool]
    max_hold: Optional[Number]


class ClassOptions(_Holds, total=False):
    """The options of ``Lock`` that redis-py's ``Lock`` does not have."""

    mode: Mode
    session: bool


class MultiLockOptions(_Waits, _Holds, total=False):
    """The options of ``MultiLock``."""

    mode: Mode


class ReadWriteLockOptions(_Waits, _Holds, total=False):
    """The options of ``ReadWriteLock``."""

    sleep: Number
    session: bool


class LockOptions(_Waits, ClassOptions, total=False):
    """The options of ``Lock``."""

    sleep: Number


class SemaphoreOptions(_Permits, total=False):
    """The options of ``Semaphore``."""

    limit: Optional[int]
