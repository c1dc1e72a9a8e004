"""Acquire and release through redis-py, one pair after the other on one connection.

usage: redis_py_lock.py PORT lock|raw SECONDS
Warms up, says "ready", waits for a line, measures, says how many pairs took how many seconds.
"""

import sys
import time

import redis


def by_lock(client):
    def pair():
        with client.lock("lock:py", timeout=30):
            pass

    return pair


def raw(client):
    owner = "8743c9c0-0795-4907-87fd-6c719a6b4586:10"

    def pair():
        token = client.execute_command("LOCK.ACQUIRE", "lock:py:raw", owner, "PX", 30000)
        freed = client.execute_command("LOCK.RELEASE", "lock:py:raw", owner)
        if not token or freed != 1:
            raise RuntimeError("the lock was not granted, or not freed")

    return pair


def repeat(pair, seconds):
    start = time.perf_counter()
    pairs = 0
    while time.perf_counter() - start < seconds:
        pair()
        pairs += 1
    return pairs, time.perf_counter() - start


def main():
    port, way, seconds = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    client = redis.Redis(host="127.0.0.1", port=port, single_connection_client=True)
    pair = {"lock": by_lock, "raw": raw}[way](client)
    repeat(pair, seconds)
    print("ready", flush=True)
    if sys.stdin.readline():
        print(*repeat(pair, seconds), flush=True)


main()
