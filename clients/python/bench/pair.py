"""The time of an uncontended pair (acquire and release), beside redis-py's Lock, in turns.

python bench/pair.py [port]
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from typing import Any

import redis
import redis.asyncio
import redis.lock

import redis_lock_client
import redis_lock_client.asyncio

ROUNDS, PAIRS = 15, 400


def sync_round(client: Any, lock_class: Any, key: str) -> float:
    lock = lock_class(client, key, timeout=30)
    begin = time.perf_counter()
    for _ in range(PAIRS):
        lock.acquire()
        lock.release()
    return (time.perf_counter() - begin) / PAIRS * 1e6


async def asyncio_round(client: Any, lock_class: Any, key: str) -> float:
    lock = lock_class(client, key, timeout=30)
    begin = time.perf_counter()
    for _ in range(PAIRS):
        await lock.acquire()
        await lock.release()
    return (time.perf_counter() - begin) / PAIRS * 1e6


def told(name: str, ours: list[float], theirs: list[float]) -> None:
    one, other = statistics.median(ours), statistics.median(theirs)
    print(f"{name}: {one:.0f} us, redis-py's Lock {other:.0f} us, ratio {one / other:.2f}")


def main() -> None:
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 6379
    client = redis.Redis(port=port)
    pairs = [
        (
            sync_round(client, redis_lock_client.Lock, "ours"),
            sync_round(client, redis.lock.Lock, "theirs"),
        )
        for _ in range(ROUNDS)
    ]
    told("threads", [one for one, _ in pairs], [other for _, other in pairs])

    async def run() -> None:
        async with redis.asyncio.Redis(port=port) as client:
            pairs = [
                (
                    await asyncio_round(client, redis_lock_client.asyncio.Lock, "ours"),
                    await asyncio_round(client, redis.asyncio.lock.Lock, "theirs"),
                )
                for _ in range(ROUNDS)
            ]
            told("asyncio", [one for one, _ in pairs], [other for _, other in pairs])

    asyncio.run(run())


if __name__ == "__main__":
    main()
