"""A cron job of several machines: one of them writes the report of a day. Status 0, also where another one does.
Run: pip install redis redis_lock_client-*.whl; python report.py redis://127.0.0.1:6379 "$(date +%F)" 20"""

import signal
import sys

import redis

from redis_lock_client import Lock, NotAcquired


def write(client: redis.Redis, day: str, pages: int) -> None:
    with Lock(client, "report", lease=10, blocking=False) as lock:
        if client.exists(f"report:{day}:done"):  # cron may start the machines a second apart
            print("another machine has written it")
            return
        lock.execute("DEL", f"report:{day}")  # what a machine has left that died in the middle
        for page in range(1, pages + 1):
            # After a loss it raises, and writes nothing: another machine may be writing.
            lock.execute("RPUSH", f"report:{day}", f"page {page}")
        lock.execute("SET", f"report:{day}:done", "yes")


def main(url: str, day: str, pages: str) -> None:
    # Python raises SystemExit in the `with` statement, which releases the lock.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        write(redis.Redis.from_url(url, socket_timeout=5), day, int(pages))
    except NotAcquired:
        print("another machine writes it")
    except redis.RedisError as error:  # redis_lock_client's errors are too: the lock was lost, the server is away
        sys.exit(f"report: {error}")  # status 1


if __name__ == "__main__":
    main(*sys.argv[1:])
