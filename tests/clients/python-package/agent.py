"""The agent of the Python package: the orders of driver/ticket_agent.rs with "tasks" (asyncio) and "threads"."""

import asyncio
import sys
import threading

import redis
import redis.asyncio

import redis_lock_client
import redis_lock_client.asyncio


def options(words):
    """The arguments of a lock for the order "acquire KEY OWNER WAIT LEASE"."""
    _, key, owner, wait, lease = words
    named = {"owner": owner, "timeout": int(lease) / 1000, "blocking_timeout": int(wait) / 1000}
    return key, named


class Held:
    """The locks that were granted, each by key, owner and token: a later order names these."""

    def __init__(self):
        self.locks = {}

    def granted(self, words, lock):
        self.locks[words[1], words[2], str(lock.token)] = lock
        return f"token {lock.token}"

    def of(self, words):  # None: the token of another grant
        return self.locks.get(tuple(words[1:4]))


def failure(error):
    return f"error {error}".replace("\n", " ")


NOT_HELD = redis.exceptions.LockError


class Threads:
    """The interface for threads. Each order has a thread, or is carried out before the next one is read."""

    def __init__(self, kind, place):
        self.server = redis_lock_client.Server(getattr(redis, kind)(**place))
        self.held = Held()

    def answer(self, words):
        try:
            if words[0] == "acquire":
                key, named = options(words)
                lock = self.server.lock(key, thread_local=False, **named)
                return self.held.granted(words, lock) if lock.acquire() else "nil"
            lock = self.held.of(words)
            if lock is None:
                return "0"
            try:
                lock.extend(int(words[4]) / 1000, replace_ttl=True) if words[0] == "renew" else lock.release()
            except NOT_HELD:
                return "0"
            return "1"
        except redis.RedisError as error:
            return failure(error)

    def serve(self, orders):
        for line in orders:
            id, *words = line.split()
            threading.Thread(target=self.say, args=(id, words), daemon=True).start()

    def say(self, id, words):
        sys.stdout.write(f"{id} {self.answer(words)}\n")
        sys.stdout.flush()


class Tasks:
    """The interface for asyncio. Each order has a task."""

    def __init__(self, kind, place):
        self.kind, self.place = kind, place
        self.held = Held()
        self.running = {}

    async def answer(self, words):
        try:
            if words[0] == "acquire":
                key, named = options(words)
                lock = self.server.lock(key, thread_local=False, **named)
                return self.held.granted(words, lock) if await lock.acquire() else "nil"
            lock = self.held.of(words)
            if lock is None:
                return "0"
            try:
                await (lock.extend(int(words[4]) / 1000, replace_ttl=True) if words[0] == "renew" else lock.release())
            except NOT_HELD:
                return "0"
            return "1"
        except redis.RedisError as error:
            return failure(error)

    async def say(self, id, words):
        try:
            answer = await self.answer(words)
        except asyncio.CancelledError:
            answer = "cancelled"
        print(id, answer, flush=True)

    async def serve(self, orders):
        self.server = redis_lock_client.asyncio.Server(getattr(redis.asyncio, self.kind)(**self.place))
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, orders.readline):
            id, *words = line.split()
            if words[0] == "cancel":
                self.running[words[1]].cancel()
            else:
                self.running[id] = loop.create_task(self.say(id, words))


def main():
    host, port, mode, *tag = sys.argv[1:]
    kind = "RedisCluster" if tag else "Redis"
    place = {"host": host, "port": int(port), "socket_timeout": 2}
    print("ready", flush=True)
    if mode == "tasks":
        asyncio.run(Tasks(kind, place).serve(sys.stdin))
    else:
        Threads(kind, place).serve(sys.stdin)


if __name__ == "__main__":
    threading.stack_size(256 * 1024)  # a thousand threads
    main()
