"""The agent of redis-py's Lock: reads orders, writes answers, as driver/strings.rs lists them."""

import sys
import threading
import time

import redis

host, port, _, lease = sys.argv[1:5]
client = redis.Redis(host=host, port=int(port))
KEY = "string-lock"


def new_lock():
    return client.lock(KEY, timeout=int(lease) / 1000)


class Contest:
    def __init__(self, rounds):
        self.left, self.released, self.refused, self.unsure = rounds, 0, 0, 0
        self.guard = threading.Lock()

    def count(self, name, by=1):
        with self.guard:
            setattr(self, name, getattr(self, name) + by)
            return getattr(self, name)

    def work(self):
        plain = redis.Redis(host=host, port=int(port), retry=None)
        while self.count("left", -1) >= 0:
            lock = new_lock()
            while True:
                try:
                    lock.acquire()
                    break
                except redis.RedisError:
                    time.sleep(0.1)
            try:
                plain.set("counter", int(plain.get("counter") or 0) + 1)
            except redis.RedisError:
                self.count("unsure")
            try:
                lock.release()
                self.count("released")
            except redis.RedisError:
                self.count("refused")


def contend(threads, rounds):
    contest = Contest(int(rounds))
    workers = [threading.Thread(target=contest.work) for _ in range(int(threads))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return f"contended {contest.released} {contest.refused} {contest.unsure}"


held = new_lock()
print("ready", flush=True)
for line in sys.stdin:
    order, *words = line.split()
    if order == "key":
        answer = KEY
    elif order == "lock":
        held.acquire()
        answer = "locked"
    elif order == "unlock":
        before = time.time_ns() // 1000
        try:
            held.release()
            answer = f"unlocked {before}"
        except redis.RedisError as error:
            answer = f"refused {error}"
    else:
        answer = contend(*words)
    print(answer, flush=True)
