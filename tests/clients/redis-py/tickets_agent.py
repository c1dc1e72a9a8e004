"""The agent of redis-py's tickets, through tasks or threads: the orders of driver/ticket_agent.rs."""

import asyncio
import sys
import threading

import redis.asyncio as aio
from redis import RedisError
from tickets import Tickets
from tickets_threads import ThreadTickets


def connect(host, port, shard):
    if shard:
        return aio.RedisCluster(host=host, port=port, socket_timeout=5, reinitialize_steps=0)
    pool = aio.BlockingConnectionPool(host=host, port=port, max_connections=2, socket_timeout=5, retry=None)
    return aio.Redis(connection_pool=pool)


def say(number, token):
    print(f"{number} {token}\n", end="", flush=True)


def shown(order, result):
    if order != "acquire":
        return int(result)
    return "nil" if result is None else f"token {result}"


def typed(order, words):
    return (*words[:2], *map(int, words[2:]))


async def carry_out(tickets, number, order, words):
    try:
        say(number, shown(order, await getattr(tickets, order)(*typed(order, words))))
    except RedisError as error:
        say(number, f"error {error}".replace("\n", " "))
    except asyncio.CancelledError:
        say(number, "cancelled")


async def tasks(host, port, shard=""):
    tickets, running = Tickets(connect(host, int(port), shard), shard), {}
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        number, order, *words = line.split()
        if order == "cancel":
            running[words[0]].cancel()
        else:
            running[number] = asyncio.create_task(carry_out(tickets, number, order, words))


def carry_out_here(tickets, number, order, words):
    try:
        say(number, shown(order, getattr(tickets, order)(*typed(order, words))))
    except RedisError as error:
        say(number, f"error {error}".replace("\n", " "))


def threads(host, port, shard=""):
    tickets = ThreadTickets(lambda: connect(host, int(port), shard), shard)
    print("ready", flush=True)
    for line in sys.stdin:
        number, order, *words = line.split()
        threading.Thread(target=carry_out_here, args=(tickets, number, order, words), daemon=True).start()


host, port, mode, *shard = sys.argv[1:]
if mode == "tasks":
    asyncio.run(tasks(host, port, *shard))
else:
    threads(host, port, *shard)
