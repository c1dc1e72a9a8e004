"""Uses of the package that a type checker has to refuse, and some that it has to accept. It is not run.

mypy reads this file with the options of pyproject.toml: an error without its mark fails, and so does a mark without its
error.
"""

from __future__ import annotations

from typing import Optional

import redis
import redis.asyncio
import redis.lock

import redis_lock_client.asyncio as of_tasks
from redis_lock_client import (
    Latch,
    Lock,
    LostReason,
    Mode,
    MultiLock,
    Observer,
    ReadWriteLock,
    Semaphore,
    Server,
    Unreleased,
    observe,
)

client = redis.Redis()
cluster = redis.RedisCluster()
tasks = redis.asyncio.Redis()


def report(reason: LostReason) -> None:
    print(reason)


async def report_later(reason: LostReason) -> None:
    print(reason)


# Accepted

server = Server(client)
Server(cluster)
Lock(client, "k", 10, blocking_timeout=None, mode=Mode.READ, session=False)
Lock(cluster, b"k", lease=10, on_lost=report)
Lock(server, "k")
Lock(client, 7, max_hold=60)
redis_lock: redis.lock.Lock = Lock(client, "k")
client.lock("k", lock_class=Lock.with_options(lease=5, on_lost=report))
tasks.lock("k", lock_class=of_tasks.Lock)
MultiLock(client, ["a", b"b"], 10, replicas=1, replicas_within=0.5, queue=5)
server.lock("k", 10, sleep=0.2, owner="me", margin=1)
server.multi_lock(("a", "b"), mode=Mode.WRITE)
server.semaphore("s", limit=3, count=2, on_lost=report)
resumed: bool = Lock(client, "k").resume("owner", 7)
holders: list[bytes] = [holder.owner for holder in Lock(client, "k").info().holders]
observe(server, Observer())
of_tasks.observe(tasks, None)
unreleased: list[Unreleased] = list(server.settled(timeout=1))
token: Optional[int] = server.read_write_lock("rw", session=True).read_lock().token
of_tasks.Lock(tasks, "k", on_lost=report_later)
of_tasks.Server(tasks).semaphore("s", on_lost=report_later)

# Refused

Lock("nonsense", "k")  # type: ignore[arg-type]
Lock(tasks, "k")  # type: ignore[arg-type]
Lock(client, ["k"])  # type: ignore[arg-type]
Lock(client, "k", "10")  # type: ignore[arg-type]
Lock(client, "k", tiemout=3)  # type: ignore[call-arg]
Lock(client, "k", mode="READ")  # type: ignore[arg-type]
MultiLock(None, ["a"])  # type: ignore[arg-type]
MultiLock(client, ["a"], session=True)  # type: ignore[call-arg]
MultiLock(client, ["a"]).resume("owner", 7)  # type: ignore[attr-defined]
Lock(client, "k", queue="5")  # type: ignore[arg-type]
Lock(client, "k").leave("5")  # type: ignore[arg-type]
observe(tasks, Observer())  # type: ignore[arg-type]
Server(42)  # type: ignore[arg-type]
Lock.with_options(tiemout=3)  # type: ignore[call-arg]
Server.open(client)  # type: ignore[arg-type]
Semaphore("redis://host", "s")  # type: ignore[arg-type]
Semaphore(client, "s", limit="3")  # type: ignore[arg-type]
Semaphore(client, "s", on_lost=5)  # type: ignore[arg-type]
Latch(7, "l")  # type: ignore[arg-type]
ReadWriteLock(client, "rw", mode=Mode.READ)  # type: ignore[call-arg]
ReadWriteLock(7, "rw")  # type: ignore[arg-type]
server.lock("k", tiemout=3)  # type: ignore[call-arg]
server.lock("k", renew="no")  # type: ignore[arg-type]
server.multi_lock(["a"], sleep=1)  # type: ignore[call-arg]
server.multi_lock(7)  # type: ignore[arg-type]
server.read_write_lock("rw", foo=1)  # type: ignore[call-arg]
server.semaphore("s", limt=3)  # type: ignore[call-arg]
server.semaphore("s", lease="10")  # type: ignore[arg-type]
server.latch("l").count_down("1")  # type: ignore[arg-type]
server.settled("1")  # type: ignore[arg-type]
of_tasks.Lock(client, "k")  # type: ignore[arg-type]
of_tasks.MultiLock(client, ["a"])  # type: ignore[arg-type]
of_tasks.Server(client)  # type: ignore[arg-type]
of_tasks.Server(tasks).lock("k", tiemout=3)  # type: ignore[call-arg]
of_tasks.Server(tasks).semaphore("s", limt=3)  # type: ignore[call-arg]
of_tasks.Latch(server, "l")  # type: ignore[arg-type]
