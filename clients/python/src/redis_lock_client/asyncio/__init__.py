"""The classes of :mod:`redis_lock_client` for asyncio. The errors and ``Statistics`` are those of that module.

Example::

    import redis.asyncio
    from redis_lock_client.asyncio import Lock

    async with redis.asyncio.Redis() as client:
        async with client.lock("invoices:42", timeout=10, blocking_timeout=60, lock_class=Lock) as lock:
            print("working under token", lock.token)
"""

from __future__ import annotations

from .._election import Leader
from ..outcome import LostReason, Mode, Released
from ..server import SemaphoreInfo, Unreleased
from .lock import Election, Lock, Lost, MultiLock, Redis
from .server import Latch, Permit, ReadWriteLock, Semaphore, Server

__all__ = [
    "Election",
    "Latch",
    "Leader",
    "Lock",
    "Lost",
    "LostReason",
    "Mode",
    "MultiLock",
    "Permit",
    "ReadWriteLock",
    "Redis",
    "Released",
    "Semaphore",
    "SemaphoreInfo",
    "Server",
    "Unreleased",
]
