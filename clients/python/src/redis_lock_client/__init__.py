"""Distributed locks on a Redis or Valkey server that has the redis-lock module loaded.

``Lock`` has the interface of redis-py's ``Lock``::

    import redis
    from redis_lock_client import Lock

    client = redis.Redis()
    with client.lock("invoices:42", timeout=10, blocking_timeout=60, lock_class=Lock) as lock:
        print("working under token", lock.token)

Waiters are queued in the server and granted the lock in order, every grant has a fencing token, and a holder learns of
a loss (``lock.lost``) before another owner can have the lock. ``redis_lock_client.asyncio`` has the same classes for
asyncio; the errors and ``Statistics`` are those of this module.
"""

from __future__ import annotations

from ._election import Leader
from .errors import (
    Closed,
    ConfigError,
    ConnectionFailed,
    Deadlock,
    Error,
    LockBroken,
    LockBusy,
    LockDelay,
    NoAnswer,
    NoPermission,
    NoSemaphore,
    NotAcquired,
    NotAuthenticated,
    NotLoaded,
    NotOwned,
    Refused,
    Unheard,
    Untrusted,
    WrongType,
)
from .lock import Election, Lock, Lost, MultiLock, Redis
from .outcome import LostReason, Mode, Released
from .server import Latch, Permit, ReadWriteLock, Semaphore, SemaphoreInfo, Server, Unreleased
from .statistics import Statistics

__version__ = "0.1.0"

__all__ = [
    "Closed",
    "ConfigError",
    "ConnectionFailed",
    "Deadlock",
    "Election",
    "Error",
    "Latch",
    "Leader",
    "Lock",
    "LockBroken",
    "LockBusy",
    "LockDelay",
    "Lost",
    "LostReason",
    "Mode",
    "MultiLock",
    "NoAnswer",
    "NoPermission",
    "NoSemaphore",
    "NotAcquired",
    "NotAuthenticated",
    "NotLoaded",
    "NotOwned",
    "Permit",
    "ReadWriteLock",
    "Redis",
    "Refused",
    "Released",
    "Semaphore",
    "SemaphoreInfo",
    "Server",
    "Statistics",
    "Unheard",
    "Unreleased",
    "Untrusted",
    "WrongType",
]
