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

# Each name `as` itself: so type checkers know that it is public.
from ._election import Leader as Leader
from ._info import Holder as Holder
from ._info import LockInfo as LockInfo
from ._info import SemaphoreInfo as SemaphoreInfo
from .errors import Closed as Closed
from .errors import ConfigError as ConfigError
from .errors import ConnectionFailed as ConnectionFailed
from .errors import Deadlock as Deadlock
from .errors import Error as Error
from .errors import LockBroken as LockBroken
from .errors import LockBusy as LockBusy
from .errors import LockDelay as LockDelay
from .errors import NoAnswer as NoAnswer
from .errors import NoPermission as NoPermission
from .errors import NoSemaphore as NoSemaphore
from .errors import NotAcquired as NotAcquired
from .errors import NotAuthenticated as NotAuthenticated
from .errors import NotLoaded as NotLoaded
from .errors import NotOwned as NotOwned
from .errors import NotReplicated as NotReplicated
from .errors import QueueFull as QueueFull
from .errors import Refused as Refused
from .errors import Unheard as Unheard
from .errors import Untrusted as Untrusted
from .errors import WrongType as WrongType
from .lock import Election as Election
from .lock import Lock as Lock
from .lock import Lost as Lost
from .lock import MultiLock as MultiLock
from .lock import Redis as Redis
from .lock import observe as observe
from .observer import Observed as Observed
from .observer import Observer as Observer
from .outcome import LostReason as LostReason
from .outcome import Mode as Mode
from .outcome import Released as Released
from .server import Latch as Latch
from .server import Permit as Permit
from .server import ReadWriteLock as ReadWriteLock
from .server import Semaphore as Semaphore
from .server import Server as Server
from .server import Unreleased as Unreleased
from .statistics import Statistics as Statistics

__version__ = "0.1.0"
