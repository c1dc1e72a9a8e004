"""The ways to a lock in Python: redis_lock_client and redis-py, each with threads and with asyncio.

A way makes a client object; the client object makes a lock for each contender. `acquire` of a lock returns the fencing
token, or NO_TOKEN where the library has none.
"""

import redis
import redis.asyncio
import redis_lock_client
import redis_lock_client.asyncio
from guarded import LOCK

NO_TOKEN = 0
HOST = "127.0.0.1"
LEASE_S = 30


class Unlocked:
    """No lock at all: the updates that its contenders lose show that the check of the cells works."""

    def lock(self, name):
        return self

    def acquire(self):
        return NO_TOKEN

    def release(self):
        pass

    connect = close = release


class Module:
    """The package: a server object, whose locks share two connections. The lease is fixed, as redis-py's is."""

    def __init__(self, port):
        self.server = redis_lock_client.Server.open(f"redis://{HOST}:{port}")

    def lock(self, name):
        return ModuleLock(redis_lock_client.Lock(self.server, name, timeout=LEASE_S))

    def connect(self):
        lock = self.lock(f"{LOCK}:connect")
        lock.acquire()
        lock.release()

    def close(self):
        self.server.close()


class ModuleLock:
    def __init__(self, lock):
        self.lock = lock
        self.release = lock.release

    def acquire(self):
        self.lock.acquire()
        return self.lock.token


class ModuleAsync:
    def __init__(self, port):
        self.server = redis_lock_client.asyncio.Server.open(f"redis://{HOST}:{port}")

    def lock(self, name):
        return ModuleAsyncLock(redis_lock_client.asyncio.Lock(self.server, name, timeout=LEASE_S))

    async def connect(self):
        lock = self.lock(f"{LOCK}:connect")
        await lock.acquire()
        await lock.release()

    async def close(self):
        await self.server.aclose()


class ModuleAsyncLock:
    def __init__(self, lock):
        self.lock = lock
        self.release = lock.release

    async def acquire(self):
        await self.lock.acquire()
        return self.lock.token


class RedisPy:
    """redis-py's Lock: SET NX, and a sleep between the tries. The pool has a connection for each contender."""

    def __init__(self, port, contenders, sleep):
        self.client = redis.Redis(host=HOST, port=port, max_connections=contenders + 1)
        self.sleep = sleep

    def lock(self, name):
        return RedisPyLock(self.client.lock(name, timeout=LEASE_S, sleep=self.sleep))

    def connect(self):
        self.client.ping()

    def close(self):
        self.client.close()


class RedisPyLock:
    def __init__(self, lock):
        self.lock = lock
        self.release = lock.release

    def acquire(self):
        self.lock.acquire()
        return NO_TOKEN


class RedisPyAsync:
    def __init__(self, port, contenders, sleep):
        self.client = redis.asyncio.Redis(host=HOST, port=port, max_connections=contenders + 1)
        self.sleep = sleep

    def lock(self, name):
        return RedisPyAsyncLock(self.client.lock(name, timeout=LEASE_S, sleep=self.sleep))

    async def connect(self):
        await self.client.ping()

    async def close(self):
        await self.client.aclose()


class RedisPyAsyncLock:
    def __init__(self, lock):
        self.lock = lock
        self.release = lock.release

    async def acquire(self):
        await self.lock.acquire()
        return NO_TOKEN


class Way:
    """One row of the tables: a name, the sort of contenders, and how a client object is made."""

    def __init__(self, asynchronous, connect):
        self.asynchronous = asynchronous
        self.connect = connect


WAYS = {
    "unlocked": Way(False, lambda port, contenders: Unlocked()),
    "lock": Way(False, lambda port, contenders: Module(port)),
    "lock-asyncio": Way(True, lambda port, contenders: ModuleAsync(port)),
    "redis-py": Way(False, lambda port, contenders: RedisPy(port, contenders, 0.1)),
    "redis-py-1ms": Way(False, lambda port, contenders: RedisPy(port, contenders, 0.001)),
    "redis-py-asyncio": Way(True, lambda port, contenders: RedisPyAsync(port, contenders, 0.1)),
    "redis-py-asyncio-1ms": Way(True, lambda port, contenders: RedisPyAsync(port, contenders, 0.001)),
}
