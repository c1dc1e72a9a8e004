"""Threads, forks, interrupts, and the end of the interpreter."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import linecache
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Callable

import pytest
import redis
import redis.asyncio
from harness import TestServer, bounded, wait_for

import redis_lock_client as client
import redis_lock_client.asyncio
from redis_lock_client import Lock, Server, _hub, _threads

SOURCE = str(pathlib.Path(client.__file__).parents[1])


def engine_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("redis-lock")]


def test_a_closed_server_leaves_nothing(server: TestServer) -> None:
    wait_for("the threads of other tests", _close_all)
    server.hold()
    locks = Server.open(server.url)
    held, fixed = locks.lock("held"), locks.lock("fixed", timeout=60)
    held.acquire()
    fixed.acquire()
    errors: list[BaseException] = []

    def wait() -> None:
        try:
            locks.lock("k").acquire()
        except client.Closed as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    wait_for("the ticket", lambda: server.stat("tickets") == 1)
    locks.close()
    thread.join(5)
    assert len(errors) == 1
    assert server.run("EXISTS held fixed") == 0 and server.stat("tickets") == 0
    wait_for("the connections to end", lambda: not server.clients())
    wait_for("the threads to end", lambda: not engine_threads())
    locks.close()
    with pytest.raises(client.Closed):
        held.acquire()
    assert held.valid_for() == 0


def _close_all() -> bool:
    gc.collect()
    for hub in list(_hub.HUBS):
        if isinstance(hub, _threads.ThreadHub) and not hub.is_closed:
            hub.close_now()
            hub.wake()
    return not engine_threads()


def test_closing_is_bounded(server: TestServer) -> None:
    locks = Server(server.client(**bounded(1)))
    locks.lock("k").acquire()
    with server.stopped():
        begin = time.monotonic()
        locks.close()
        assert time.monotonic() - begin < 3


def test_closing_takes_no_time_if_the_server_was_never_reached() -> None:
    begin = time.monotonic()
    with Server(redis.Redis(port=1, **bounded(5))) as locks, pytest.raises(client.ConnectionFailed):
        locks.lock("k").acquire()
    assert time.monotonic() - begin < 3

    async def work() -> None:
        async with client.asyncio.Server(redis.asyncio.Redis(port=1, **bounded(5, True))) as locks:
            with pytest.raises(client.ConnectionFailed):
                await locks.lock("k").acquire()

    asyncio.run(work())
    assert time.monotonic() - begin < 6


def test_a_collected_client_leaves_nothing(server: TestServer) -> None:
    wait_for("the threads of other tests", _close_all)
    redis_client = server.client()
    with Lock(redis_client, "k"):
        assert engine_threads()
    del redis_client
    gc.collect()
    wait_for("the threads to end", lambda: not engine_threads())
    wait_for("the connections to end", lambda: not server.clients())


def test_an_idle_timer_ends_and_begins_again(server: TestServer, monkeypatch: Any) -> None:
    wait_for("the threads of other tests", _close_all)
    monkeypatch.setattr("redis_lock_client._hub.IDLE", 0.2)
    server.hold("other")
    with Server(server.client()) as locks:
        lock = locks.lock("k")
        for _ in range(2):
            lock.acquire()
            assert locks.lock("other").acquire(blocking_timeout=0.1) is False
            # sleep: more than the time without use after which the timer ends
            time.sleep(0.5)
            assert engine_threads(), "not while a lock is held"
            lock.release()
            wait_for("the threads to end", lambda: not engine_threads())
            wait_for("the subscription to end", lambda: not server.subscribers())
        assert locks.statistics().acquisitions == 2


@pytest.mark.parametrize("lease", [0.5, 3])
def test_short_leases_do_not_wake_the_timer_each_time(
    server: TestServer, monkeypatch: pytest.MonkeyPatch, lease: float
) -> None:
    """It would cost more than the requests."""
    with Server(server.client()) as locks:
        hub: Any = locks._hub
        tick, ticks = hub.tick, []
        monkeypatch.setattr(hub, "tick", lambda moment: ticks.append(moment) or tick(moment))
        lock, begin = locks.lock("k", lease=lease), time.monotonic()
        for _ in range(300):
            with lock:
                pass
        assert len(ticks) < 20 + 10 / lease * (time.monotonic() - begin)


def test_a_forked_child_begins_anew(server: TestServer) -> None:
    redis_client = server.client()
    lock, fresh = Lock(redis_client, "k"), Lock(redis_client, "other")
    lock.acquire()
    before = lock.lost
    context = multiprocessing.get_context("fork")
    queue: Any = context.Queue()

    def child() -> None:
        try:
            assert before.is_set() and lock.lost.is_set() and lock.lost.wait() and lock.lost.reason is None
            assert not lock.owned() and lock.token is None and lock.lost.is_set() and not fresh.lost.is_set()
            assert not lock._hub.holds and not lock._hub.waits
            try:
                lock.release()
            except client.NotAcquired:
                queue.put("not held here")
            assert not lock.acquire(blocking=False)
            with fresh:
                assert not fresh.lost.is_set()
                queue.put("held")
            queue.put(lock.acquire(blocking_timeout=10))
            lock.release()
        except BaseException as error:
            queue.put(repr(error))

    process = context.Process(target=child)
    process.start()
    assert queue.get(timeout=10) == "not held here"
    assert queue.get(timeout=10) == "held"
    wait_for("the child's wait", lambda: server.stat("tickets") == 1)
    assert lock.owned() and lock.valid_for() > 20 and not before.is_set()
    lock.release()
    assert queue.get(timeout=10) is True
    process.join(10)
    assert process.exitcode == 0
    with lock:
        pass


def test_a_child_does_not_keep_the_connections_of_its_parent(server: TestServer) -> None:
    script = f"""
import os, sys, time, redis
from redis_lock_client import Lock
client = redis.Redis(port={server.port})
Lock(client, "k").acquire()
client.close()
if os.fork() == 0:
    # sleep: the child outlives the test
    time.sleep(20)
    os._exit(0)
print("ready", flush=True)
os.kill(os.getpid(), 9)
"""
    _assert_connections_end(server, script, b"ready\n")


def _python(script: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-W", "error::ResourceWarning", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": SOURCE, "PYTHONDONTWRITEBYTECODE": "1"},
    )


def _assert_connections_end(server: TestServer, script: str, line: bytes) -> None:
    """Runs a script that prints this line and is killed; its child lives on."""
    process = _python(script)
    assert process.stdout is not None
    assert process.stdout.readline() == line
    process.wait()
    wait_for("the connections to end", lambda: not server.clients(), 5)


class Boom(BaseException):
    """Raised by the handler of a signal."""


def _raise_at(number: int) -> Callable[..., Any]:
    """A trace function that raises before a line of the package, counted from 1."""
    lines = 0

    def trace(frame: Any, event: str, _: Any) -> Any:
        nonlocal lines
        if "redis_lock_client" not in frame.f_code.co_filename:
            return None
        # The end of a `with` statement is traced before its lock is released; a signal never comes there.
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and not text.startswith("with "):
            lines += 1
            if lines == number:
                raise Boom
        return trace

    return trace


# A request that is interrupted before it begins. (pytest would keep it, and with it the permit.)
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("kind", ["lock", "multi", "session", "permit"])
@pytest.mark.parametrize("phase", ["acquire", "release"])
def test_an_interrupt_at_any_line_leaves_nothing(server: TestServer, kind: str, phase: str) -> None:
    with Server(server.client()) as locks:
        known: dict[str, Callable[[str], Any]] = {
            "lock": lambda key: locks.lock(key),
            "multi": lambda key: locks.multi_lock([key, key + "b"]),
            "session": lambda key: locks.lock(key, session=True),
            "permit": lambda key: locks.semaphore(key, limit=1),
        }
        interrupts = number = 0
        while interrupts == number:
            number += 1
            lock = known[kind](f"k{number}")
            held = lock.acquire() if phase == "release" else None
            end = (held if kind == "permit" else lock).release if phase == "release" else lock.acquire
            sys.settrace(_raise_at(number))
            try:
                held = end()
            except Boom:
                interrupts += 1
            finally:
                sys.settrace(None)
            held = end = None
            if kind != "permit" and lock.local.token is not None:
                # What the program can still release.
                with contextlib.suppress(client.NotOwned):
                    lock.release()
        assert interrupts > 15
        gc.collect()
        keys = [name for place in range(1, number + 1) for name in (f"k{place}", f"k{place}b")]
        if kind == "permit":
            assert locks.settled() == []
            assert all(locks.semaphore(f"k{place}", limit=1).try_acquire() for place in range(1, number + 1))
        else:
            wait_for("no hold", lambda: server.observer.exists(*keys) == 0)
        wait_for("no hold here", lambda: locks.statistics().holds == 0)


def test_an_interrupted_close_goes_on(server: TestServer) -> None:
    locks = Server.open(server.url)
    lock = locks.lock("k")
    lock.acquire()
    with server.stopped():
        sys.settrace(_raise_at(12))
        try:
            locks.close()
        except Boom:
            pass
        finally:
            sys.settrace(None)
    locks.close()
    assert server.run("EXISTS k") == 0
    wait_for("the connections to end", lambda: not server.clients())


def test_an_interrupt_withdraws_the_wait(server: TestServer) -> None:
    server.hold()
    # A test run in the background of a shell ignores SIGINT, and so does its child.
    script = f"""
import redis, signal
from redis_lock_client import Lock
signal.signal(signal.SIGINT, signal.default_int_handler)
lock = Lock(redis.Redis(port={server.port}), "k")
try:
    lock.acquire()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    assert lock.acquire(blocking=False) is False
    assert Lock(lock.redis, "free").acquire()
"""
    process = _python(script)
    wait_for("the ticket", lambda: server.stat("tickets") == 1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=10)
    assert (out, err, process.returncode) == (b"interrupted\n", b"", 0)
    assert server.stat("tickets") == 0


def test_a_subscription_whose_thread_was_interrupted_is_taken_over(server: TestServer) -> None:
    server.hold()
    with Server(server.client(**bounded(0.5))) as locks:
        locks._hub._gates[None] = locks._hub.new_event()
        waiting = threading.Thread(target=locks.lock("k").acquire)
        waiting.start()
        wait_for("the ticket", lambda: server.stat("tickets") == 1)
        server.run("LOCK.RELEASE k holder")
        waiting.join(10)
        assert not waiting.is_alive()


@pytest.mark.parametrize("is_stopped", [False, True])
def test_the_interpreter_ends_with_locks_held(server: TestServer, is_stopped: bool) -> None:
    script = f"""
import sys, redis
from redis_lock_client import Lock
client = redis.Redis(port={server.port})
Lock(client, "renewed").acquire()
Lock(client, "fixed", timeout=60).acquire()
print("held", flush=True)
sys.stdin.readline()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": SOURCE, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    if is_stopped:
        server.signal(signal.SIGSTOP)
    # Before the lease is over, also on a busy machine.
    process.communicate(b"\n", timeout=20)
    server.signal(signal.SIGCONT)
    if not is_stopped:
        assert (server.run("EXISTS renewed"), server.run("EXISTS fixed")) == (0, 1)


def test_many_threads_share_connections(server: TestServer) -> None:
    server.hold()
    redis_client = server.client()
    order: list[int] = []

    def work() -> None:
        with Lock(redis_client, "k") as lock:
            order.append(lock.token or 0)

    threads = [threading.Thread(target=work) for _ in range(200)]
    for thread in threads:
        thread.start()
    wait_for("the tickets", lambda: server.stat("tickets") == 200)
    assert len(server.subscribers()) == 1 and len(server.clients()) <= 17, "a wait has no connection"
    server.run("LOCK.RELEASE k holder")
    for thread in threads:
        thread.join(20)
    assert len(order) == 200 and order == sorted(order)


def test_a_refused_argument_sends_nothing(start: Callable[..., TestServer]) -> None:
    redis_client = redis.Redis(port=1)
    with Server(redis_client) as locks:
        for options in (
            {"timeout": 0.001},
            {"timeout": -1},
            {"timeout": float("nan")},
            {"timeout": 1e12},
            {"timeout": 10**400},
            {"blocking_timeout": 10**400},
            {"owner": "\ud800"},
            {"renew": "no"},
            {"renew": 0},
            {"session": "no"},
            {"timeout": 1, "lease": 1},
            {"lease": "1"},
            {"lease": 6, "margin": 3.1},
            {"owner": ""},
            {"owner": "x" * 257},
            {"owner": "#token"},
            {"owner": "mode", "mode": client.Mode.READ},
            {"owner": "x:write", "mode": client.Mode.WRITE},
            {"owner": 7},
            {"mode": "READ"},
            {"blocking_timeout": -1},
            {"blocking_timeout": float("nan")},
            {"blocking_timeout": True},
            {"on_lost": asyncio.sleep},
        ):
            with pytest.raises(client.ConfigError):
                locks.lock("k", **options)
        for name in (None, True, ["k"], "\ud800"):
            with pytest.raises(client.ConfigError):
                locks.lock(name)
        for wait in (-1, float("nan"), "1"):
            with pytest.raises(client.ConfigError):
                locks.lock("k").acquire(blocking_timeout=wait)
        for token in ("", "#token", b"x" * 257):
            with pytest.raises(client.ConfigError) as raised:
                locks.lock("k").acquire(token=token)
            assert "xxx" not in str(raised.value)
        for limit in (0, -1, 2**31, 1.5, True):
            with pytest.raises(client.ConfigError):
                locks.semaphore("s", limit=limit)
        for semaphore_options in (
            {"on_lost": 5},
            {"on_lost": asyncio.sleep},
            {"lease": 0.001},
            {"margin": -1},
            {"owner": "\ud800"},
        ):
            with pytest.raises(client.ConfigError):
                locks.semaphore("s", **semaphore_options)
        for count in (-1, 2**63, None):
            with pytest.raises(client.ConfigError):
                locks.latch("l").set(count)
        assert locks.statistics().connections == 0
        lock = locks.lock("k", owner=b"\xff\x00mode", lease=6, margin=3)
        assert "xff" not in repr(lock)
    for wrong in (None, object(), 7, "redis://host"):
        with pytest.raises(client.ConfigError):
            Lock(wrong, "k")
    for wrong in (None, object(), redis.asyncio.Redis()):
        with pytest.raises(client.ConfigError):
            Server(wrong)  # type: ignore[arg-type]


def test_a_refused_argument_is_named() -> None:
    with Server(redis.Redis(port=1)) as locks:
        calls: list[tuple[str, Callable[[], Any]]] = [
            ("timeout is", lambda: locks.lock("k", timeout="1")),
            ("timeout: a lease lasts at least", lambda: locks.lock("k", timeout=0.001)),
            ("lease: a lease lasts at least", lambda: locks.lock("k", lease=0.001)),
            ("timeout is a lease that is not renewed", lambda: locks.lock("k", timeout=1, lease=1)),
            ("margin is at most half of timeout", lambda: locks.lock("k", timeout=1, margin=0.6)),
            ("blocking_timeout is", lambda: locks.lock("k", blocking_timeout=-1)),
            ("blocking_timeout is", lambda: locks.lock("k").acquire(blocking_timeout="1")),
            ("blocking_timeout is", lambda: locks.multi_lock(["k"]).acquire(blocking_timeout="1")),
            ("renew is", lambda: locks.lock("k", renew="no")),
            ("limit is a whole number from 1", lambda: locks.semaphore("s", limit=0)),
            ("permits is a whole number from 0", lambda: locks.semaphore("s").set(-1)),
            ("wait is", lambda: locks.semaphore("s").acquire_within(-1)),
            ("count is a whole number from 0", lambda: locks.latch("l").set(-1)),
            ("count is a whole number from 1", lambda: locks.latch("l").count_down(0)),
            ("timeout is", lambda: locks.latch("l").wait("1")),
            ("timeout is", lambda: locks.settled(-1)),
            ("max_hold: a lease lasts", lambda: locks.lock("k", max_hold=0)),
            ("no option tiemout", lambda: Lock.with_options(tiemout=3)),  # type: ignore[call-arg]
            ("timeout, ... are arguments of", lambda: Lock.with_options(timeout=3)),  # type: ignore[call-arg]
            ("the owner has", lambda: locks.lock("k", owner="a-secret\ud800")),
        ]
        for text, call in calls:
            with pytest.raises(client.ConfigError, match=text) as raised:
                call()
            assert raised.value.__context__ is None and "a-secret" not in str(raised.value)


@pytest.mark.parametrize("end", [signal.SIGINT, "exit"])
def test_the_end_of_asyncio_run_leaves_nothing(server: TestServer, end: Any) -> None:
    """After SystemExit of a task that another one awaits, asyncio.run skips the last step of the loop."""
    for key in ("other", "go"):
        server.run(f"LOCK.ACQUIRE {key} holder PX 600000")
    script = f"""
import asyncio, signal, sys
import redis.asyncio
from redis_lock_client.asyncio import Lock
signal.signal(signal.SIGINT, signal.default_int_handler)
async def hold(client):
    async with Lock(client, "k"):
        await asyncio.Event().wait()
async def end(client):
    await Lock(client, "go").acquire()
    sys.exit(3)
async def main():
    client = redis.asyncio.Redis(port={server.port})
    await asyncio.gather(hold(client), Lock(client, "other").acquire(), end(client))
asyncio.run(main())
"""
    process = _python(script)
    wait_for("the hold and the waits", lambda: (server.run("EXISTS k"), server.stat("tickets")) == (1, 2))
    if end == "exit":
        server.run("LOCK.RELEASE go holder")
    else:
        process.send_signal(end)
    process.communicate(timeout=20)
    assert process.returncode == (3 if end == "exit" else -end)
    assert server.run("EXISTS k") == 0
    assert server.stat("tickets") == 0


def test_what_the_main_thread_has_locked_is_renewed_until_the_threads_end(server: TestServer) -> None:
    script = f"""
import sys, threading, redis
from redis_lock_client import Lock
lock = Lock(redis.Redis(port={server.port}), "k", lease=1)
lock.acquire()
def work():
    threading.main_thread().join()
    print("alone", flush=True)
    sys.stdin.readline()
threading.Thread(target=work).start()
"""
    process = _python(script)
    assert process.stdout is not None
    assert process.stdout.readline() == b"alone\n"

    def renewals() -> int:
        stats: dict[str, Any] = server.observer.info("commandstats")
        return int(stats.get("cmdstat_lock.renew", {"calls": 0})["calls"])

    before = renewals()
    wait_for("two renewals", lambda: renewals() >= before + 2)
    out, err = process.communicate(b"\n", timeout=20)
    assert (out, err, process.returncode) == (b"", b"", 0)
    assert server.run("EXISTS k") == 0


@pytest.mark.skipif(
    (3, 12) <= sys.version_info < (3, 12, 2), reason="these versions start no thread after the main thread has ended"
)
def test_threads_go_on_after_the_main_thread(server: TestServer) -> None:
    script = f"""
import threading, time, redis
from redis_lock_client import Lock
def work():
    threading.main_thread().join()
    with Lock(redis.Redis(port={server.port}), "k") as lock:
        print("held", flush=True)
threading.Thread(target=work).start()
"""
    process = _python(script)
    out, err = process.communicate(timeout=10)
    assert (out, err, process.returncode) == (b"held\n", b"", 0)


def test_a_system_without_fork() -> None:
    script = """
import os
import redis.asyncio
del os.register_at_fork
import redis_lock_client.asyncio
print("imported")
"""
    out, err = _python(script).communicate(timeout=10)
    assert (out, err) == (b"imported\n", b"")


def test_a_destructor_at_the_end_of_the_interpreter_does_not_hang(server: TestServer) -> None:
    script = f"""
import redis
from redis_lock_client import Lock
class Work:
    def __init__(self):
        self.lock = Lock(redis.Redis(port={server.port}), "k", timeout=60)
        self.lock.acquire()
    def __del__(self):
        self.lock.release()
        print("released", flush=True)
work = Work()
"""
    process = _python(script)
    out, err = process.communicate(timeout=10)
    assert (out, err, process.returncode) == (b"released\n", b"", 0)


def test_a_signal_handler_may_use_a_lock(server: TestServer) -> None:
    """While its thread is inside a call."""
    lock = Lock(server.client(), "k")
    done = threading.Event()

    def work() -> None:
        with lock._hub.guard:
            lock.acquire()
            lock.release()
        done.set()

    threading.Thread(target=work, daemon=True).start()
    assert done.wait(10)


def test_a_thread_that_does_not_start_is_tried_again(server: TestServer, monkeypatch: Any) -> None:
    wait_for("the threads of other tests", _close_all)

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    lock = Lock(server.client(), "k")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(RuntimeError):
            lock.acquire()
    assert lock.acquire(blocking_timeout=5)
    lock.release()
