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


class _Holds(TypedDict, total=False):
    lease: Optional[Number]
    margin: Optional[Number]
    owner: Optional[Text]
    renew: Optional[bool]
    on_lost: Optional[Callable[[LostReason], Any]]
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
