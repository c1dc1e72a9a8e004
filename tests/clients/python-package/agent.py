"""The agent of the Python package: the orders of driver/ticket_agent.rs with "tasks" (asyncio) and "threads", and with
"double-" before these above a double of the server."""

import asyncio
import contextvars
import logging
import sys
import threading

import redis
import redis.asyncio

import redis_lock_client
import redis_lock_client.asyncio
import redis_lock_client.testing


KINDS = {
    redis_lock_client.NotOwned: "lost",
    redis_lock_client.Unheard: "unheard",
    redis_lock_client.Closed: "closed",
    redis_lock_client.ConfigError: "usage",
    redis_lock_client.NoSemaphore: "no-semaphore",
    redis_lock_client.QueueFull: "queue-full",
    redis_lock_client.NotReplicated: "not-replicated",
}


# The id of the order.
ID = contextvars.ContextVar("ID")
# What `unblock` sets.
GATE = threading.Event()


def tell(id, text):
    sys.stdout.write(f"{id} {text}\n")
    sys.stdout.flush()


def block(id):
    tell(id, "blocked")
    GATE.wait()


class Blocking(logging.Handler):
    """A handler of the log that blocks at each record."""

    def __init__(self, id):
        super().__init__()
        self.id = id

    def emit(self, record):
        block(self.id)


def failure(error):
    kind = next((word for kind, word in KINDS.items() if isinstance(error, kind)), "other")
    return f"error {kind} {error}".replace("\n", " ")


class Watching(redis_lock_client.Observer):
    """What an observer is told, by the name of the lock."""

    def __init__(self):
        self.told = {}

    def tell(self, lock, word):
        self.told.setdefault(lock.name, []).append(word)

    def asked(self, lock):
        self.tell(lock, "asked")

    def answered(self, lock, granted, waited, error):
        self.tell(lock, "granted" if granted else "refused" if error is None else "failed")

    def released(self, lock, held):
        self.tell(lock, "released")

    def lost(self, lock, reason):
        self.tell(lock, "lost")

    def late(self, lock, by):
        self.tell(lock, "late")


def options_of(words):
    """The options of the package in words such as `queue=1`."""
    found = {}
    for word in words:
        name, value = word.split("=")
        if name == "mode":
            found[name] = redis_lock_client.Mode[value.upper()]
        elif name == "within":
            found["replicas_within"] = int(value) / 1000
        elif name in ("queue", "replicas", "limit", "count"):
            found[name] = int(value)
        elif name == "note":
            found[name] = value
    return found


class Orders:
    """The orders, with whatever interface: `done` waits for what a call returns."""

    def __init__(self, double):
        self.double = double
        self.held = {}  # by key, owner and token: a later order names these
        self.former = []
        self.watching = Watching()

    async def answer(self, id, words):
        ID.set(id)
        try:
            order = getattr(self, {"break": "break_"}.get(words[0], words[0].replace("-", "_")))
            return await order(*words[1:])
        except (redis.RedisError, redis_lock_client.Error) as error:
            return failure(error)

    def granted(self, key, owner, hold):
        token = next(iter(hold.tokens.values())) if "," in key else hold.token
        # A permit that nobody refers to is released: the one that another object has resumed stays.
        self.former.append(self.held.get((key, owner, str(token))))
        self.held[key, owner, str(token)] = hold
        return f"token {token}"

    async def acquire(self, key, owner, wait, lease, *options):
        return await self.lock(key, owner, wait, options, timeout=int(lease) / 1000)

    async def keep(self, key, owner, wait, lease, *options):
        on_lost = next((word.split("=")[1] for word in options if word.startswith("on-lost=")), None)
        return await self.lock(
            key, owner, wait, options, lease=int(lease) / 1000, on_lost=self.callback(ID.get(), on_lost)
        )

    async def lock(self, key, owner, wait, options, **lease):
        make = self.server.lock
        if "," in key:
            key, make = key.split(","), self.server.multi_lock
        wait = int(wait) / 1000
        lock = make(key, owner=owner, blocking_timeout=wait, thread_local=False, **options_of(options), **lease)
        name = key if isinstance(key, str) else ",".join(key)
        return self.granted(name, owner, lock) if await self.done(lock.acquire()) else "nil"

    async def permit(self, key, owner, wait, lease, *options):
        permits = self.server.semaphore(key, owner=owner, lease=int(lease) / 1000, **options_of(options))
        asking = permits.try_acquire() if wait == "0" else permits.acquire_within(int(wait) / 1000)
        permit = await self.done(asking)
        return "nil" if permit is None else self.granted(key, owner, permit)

    async def resume(self, key, owner, token, lease, *options):
        given = {"lease": int(lease) / 1000, **options_of(options)}
        if "permits=yes" in options:
            permit = await self.done(self.server.semaphore(key, **given).resume(owner, int(token)))
            return self.granted(key, owner, permit)
        lock = self.server.lock(key, thread_local=False, **given)
        await self.done(lock.resume(owner, int(token)))
        return self.granted(key, owner, lock)

    async def leave(self, *hold_and_rest):
        *of, rest = hold_and_rest
        return await self.ended(of, lambda hold: hold.leave(int(rest) / 1000))

    async def info(self, key):
        info = await self.done(self.server.lock(key).info())
        if info.mode is None:
            return "info nil"
        holders = [f"{one.owner.decode()}/{one.token}/{(one.note or b'').decode()}" for one in info.holders]
        return " ".join(["info", info.mode, str(info.waiters), *holders])

    async def info_permits(self, key):
        info = await self.done(self.server.semaphore(key).info())
        return "info nil" if info is None else f"info {info.permits} {info.free} {info.held} {info.waiters}"

    async def events(self, key):
        return " ".join(["events", *self.watching.told.get(key, [])])

    async def advance(self, ms):
        self.double.advance(int(ms) / 1000)
        return "advanced"

    async def break_(self, key):
        self.double.lose(key)
        return "broken"

    async def has_replicas(self, number):
        self.double.replicas = int(number)
        return "has"

    async def renew(self, *hold_and_lease):
        *of, lease = hold_and_lease
        return await self.ended(of, lambda lock: lock.extend(int(lease) / 1000, replace_ttl=True))

    async def release(self, *of):
        return await self.ended(of, lambda lock: lock.release())

    async def ended(self, of, doing):
        lock = self.held.get(tuple(of))
        try:
            if lock is None:  # the token of another grant
                return "0"
            released = await self.done(doing(lock))
            return "0" if released is redis_lock_client.Released.NOT_HELD else "1"
        except redis.exceptions.LockError:
            return "0"

    async def lost(self, *of):
        await self.done(self.held[of].lost.wait())
        return "lost"

    async def state(self, *of):
        return "held" if self.held[of].valid_for() > 0 else "lost"

    async def do(self, key, owner, token, *command):
        reply = await self.done(self.held[key, owner, token].execute(*command))
        return f"did {reply.decode() if isinstance(reply, bytes) else reply}"

    async def close(self):
        await self.closed()
        return "closed"

    async def closed(self):
        await self.done(self.server.close() if isinstance(self, Threads) else self.server.aclose())

    async def block_log(self):
        logging.getLogger("redis_lock_client").addHandler(Blocking(ID.get()))
        return "blocks"

    async def unblock(self):
        GATE.set()
        return "unblocked"

    async def types(self, key, owner, token):
        values = {
            "text": "a\u00e9", "bytes": b"\x00\xff", "int": -(2**70), "float": 0.1, "large": 1e30, "whole": 3.0,
            "bool": True, "null": None, "list": [1], "memory": memoryview(b"ab"),
        }
        found = []
        for name, value in values.items():
            try:
                await self.done(self.client.set(f"own:{name}", value))
            except redis.DataError:
                pass
            try:
                await self.done(self.held[key, owner, token].execute("SET", f"do:{name}", value))
                found.append(f"{name}=ok")
            except (redis.RedisError, redis_lock_client.Error) as error:
                found.append(f"{name}={failure(error).split()[1]}")
        return "types " + " ".join(found)

    async def odd(self, what):
        lock, semaphore, lease = self.server.lock, self.server.semaphore, 30
        mode = redis_lock_client.Mode.READ
        making = {
            "lease-zero": lambda: lock("odd", lease=0),
            "lease-negative": lambda: lock("odd", lease=-1),
            "lease-short": lambda: lock("odd", lease=0.0015),
            "lease-huge": lambda: lock("odd", lease=200 * 365 * 86_400),
            "wait-negative": lambda: lock("odd", blocking_timeout=-1),
            "margin-negative": lambda: lock("odd", lease=lease, margin=-1),
            "margin-large": lambda: lock("odd", lease=lease, margin=16),
            "hold-zero": lambda: lock("odd", max_hold=0),
            "note-long": lambda: lock("odd", note="n" * 257),
            "note-read": lambda: lock("odd", note="n", mode=mode),
            "owner-empty": lambda: lock("odd", owner=""),
            "owner-reserved": lambda: lock("odd", owner="#o"),
            "owner-read": lambda: lock("odd", owner="mode", mode=mode),
            "permits-zero": lambda: semaphore("odd", limit=0),
            "permits-huge": lambda: semaphore("odd", limit=2**31),
            "permit-lease-zero": lambda: semaphore("odd", lease=0),
            "permit-owner-empty": lambda: semaphore("odd", owner=""),
        }
        hold = next(iter(self.held.values()))
        if what == "renew-zero":
            return await self.done(hold.extend(0, replace_ttl=True))
        if what == "renew-negative":
            return await self.done(hold.extend(-1, replace_ttl=True))
        if what == "renew-huge":
            return await self.done(hold.extend(200 * 365 * 86_400, replace_ttl=True))
        if what not in making:
            return "none"
        made = making[what]()
        acquire = made.acquire if isinstance(made, type(lock("odd"))) else made.try_acquire
        return f"acquired {await self.done(acquire())}"


class Threads(Orders):
    """The interface for threads. Each order has a thread."""

    def __init__(self, kind, place, double):
        super().__init__(double)
        self.client = getattr(redis, kind)(**place)
        self.server = redis_lock_client.Server(self.client)
        redis_lock_client.observe(self.server, self.watching)

    def callback(self, id, what):
        def close(_):
            self.server.close()
            tell(id, "closed")

        return {"close": close, "block": lambda _: block(id)}.get(what)

    async def done(self, value):
        return value  # the call has waited

    def serve(self, orders):
        for line in orders:
            id, *words = line.split()
            threading.Thread(target=self.say, args=(id, words), daemon=True).start()

    def say(self, id, words):
        try:
            self.answer(id, words).send(None)
        except StopIteration as end:
            tell(id, end.value)


class Tasks(Orders):
    """The interface for asyncio. Each order has a task."""

    def __init__(self, kind, place, double):
        super().__init__(double)
        self.kind, self.place = kind, place
        self.running = {}

    async def done(self, call):
        return await call

    async def say(self, id, words):
        try:
            answer = await self.answer(id, words)
        except asyncio.CancelledError:
            answer = "cancelled"
        tell(id, answer)

    def callback(self, id, what):
        async def close(_):
            await self.server.aclose()
            tell(id, "closed")

        return close if what == "close" else None

    async def serve(self, orders):
        self.client = getattr(redis.asyncio, self.kind)(**self.place)
        self.server = redis_lock_client.asyncio.Server(self.client)
        redis_lock_client.asyncio.observe(self.server, self.watching)
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
    double = redis_lock_client.testing.LockServer() if mode.startswith("double") else None
    place = {"host": host, "port": double.port if double else int(port), "socket_timeout": 2}
    print("ready", flush=True)
    if mode.endswith("tasks"):
        asyncio.run(Tasks(kind, place, double).serve(sys.stdin))
    else:
        Threads(kind, place, double).serve(sys.stdin)


if __name__ == "__main__":
    threading.stack_size(256 * 1024)  # a thousand threads
    main()
