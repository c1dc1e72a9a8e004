"""The classes of :mod:`redis_lock_client` for asyncio. The errors and ``Statistics`` are those of that module.

Example::

    import redis.asyncio
    from redis_lock_client.asyncio import Lock

    async with redis.asyncio.Redis() as client:
        async with client.lock("invoices:42", timeout=10, blocking_timeout=60, lock_class=Lock) as lock:
            print("working under token", lock.token)
"""

from __future__ import annotations

# Each name `as` itself: so type checkers know that it is public.
from .._election import Leader as Leader
from .._info import Holder as Holder
from .._info import LockInfo as LockInfo
from .._info import SemaphoreInfo as SemaphoreInfo
from ..observer import Observed as Observed
from ..observer import Observer as Observer
from ..outcome import LostReason as LostReason
from ..outcome import Mode as Mode
from ..outcome import Released as Released
from ..server import Unreleased as Unreleased
from .lock import Election as Election
from .lock import Lock as Lock
from .lock import Lost as Lost
from .lock import MultiLock as MultiLock
from .lock import Redis as Redis
from .lock import observe as observe
from .server import Latch as Latch
from .server import Permit as Permit
from .server import ReadWriteLock as ReadWriteLock
from .server import Semaphore as Semaphore
from .server import Server as Server
