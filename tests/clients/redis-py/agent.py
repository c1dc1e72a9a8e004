"""The agent of redis-py: reads orders, writes answers, as driver/agent.rs lists them."""

import sys
import threading
import time

import redis
from redis_lock import Locks


def raw(plain, wait, key, owner):
    return token_or_nil(plain.execute_command("LOCK.ACQUIRE", key, owner, "BLOCK", wait))


def ping_behind(plain, *request):
    def wait():
        try:
            raw(plain, *request)
        except redis.RedisError:
            pass  # only the PING is measured

    waiter = threading.Thread(target=wait)
    waiter.start()
    while len(plain.connection_pool._in_use_connections) == 0:
        time.sleep(0.001)
    start = time.monotonic()
    plain.ping()
    took = int((time.monotonic() - start) * 1000)
    waiter.join()
    return f"ping {took}"


def token_or_nil(token):
    return "nil" if token is None else f"token {token}"


def main(host, port):
    locks = Locks(host=host, port=port)
    plain = redis.Redis(host=host, port=port)
    orders = {
        "acquire": lambda k, o, wait, lease: token_or_nil(locks.acquire(k, o, int(wait), int(lease))),
        "renew": lambda k, o, token, lease: int(locks.renew(k, o, token, lease)),
        "release": lambda k, o, token: int(locks.release(k, o, token)),
        "raw": lambda *request: raw(plain, *request),
        "ping-behind": lambda *request: ping_behind(plain, *request),
    }
    print("ready", flush=True)
    for line in sys.stdin:
        order, *words = line.split()
        if order == "quit":
            break
        try:
            answer = orders[order](*words)
        except redis.RedisError as error:
            answer = f"error {error}".replace("\n", " ")
        print(answer, flush=True)


main(sys.argv[1], int(sys.argv[2]))
