"""What an observer is told, and the metrics and traces of OpenTelemetry."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Optional
from unittest.mock import Mock

import pytest
import redis.asyncio
from harness import TestServer, bounded, wait_for
from test_locks import in_threads, join

import redis_lock_client as client
from redis_lock_client import Lock, LostReason, Observed, Observer, Semaphore, Server, observe
from redis_lock_client import asyncio as of_tasks


class Ear(Observer):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.locks: set[Observed] = set()
        self.threads: set[str] = set()

    def _told(self, lock: Observed, *words: Any) -> None:
        assert lock.name and "secret" not in lock.name
        self.threads.add(threading.current_thread().name)
        self.locks.add(lock)
        self.events.append((f"{lock.kind} {lock.name}", *words))

    def asked(self, lock: Observed) -> None:
        self._told(lock, "asked")

    def answered(self, lock: Observed, granted: bool, waited: float, error: Optional[BaseException]) -> None:
        assert waited >= 0
        self._told(lock, "answered", granted, type(error) if error else None)

    def released(self, lock: Observed, held: float) -> None:
        assert held >= 0
        self._told(lock, "released")

    def lost(self, lock: Observed, reason: LostReason) -> None:
        self._told(lock, "lost", reason.kind)

    def late(self, lock: Observed, by: float) -> None:
        assert by > 0
        self._told(lock, "late")


def test_the_events_of_each_kind(server: TestServer) -> None:
    ear = Ear()
    with Server(server.client()) as locks:
        observe(locks, ear)
        both = locks.read_write_lock("rw")
        for lock, name in (
            (locks.lock("k", owner="secret"), "exclusive k"),
            (locks.multi_lock(["a", "b"]), "exclusive a, b"),
            (both.read_lock(), "read rw"),
            (both.write_lock(), "write rw"),
        ):
            with lock:
                pass
            assert ear.events == [(name, "asked"), (name, "answered", True, None), (name, "released")]
            assert len(ear.locks) == 1, "one object"
            ear.events.clear()
            ear.locks.clear()
        with locks.semaphore("s", limit=1).acquire():
            assert locks.semaphore("s").try_acquire() is None
        assert locks.latch("l").wait(0)
        name = "semaphore s"
        assert ear.events == [
            *((name, "asked"), (name, "answered", True, None), (name, "asked"), (name, "answered", False, None)),
            *((name, "released"), ("latch l", "asked"), ("latch l", "answered", True, None)),
        ]
        assert ear.threads == {threading.current_thread().name}
        observe(locks, None)
        with locks.lock("k"):
            pass
        assert len(ear.events) == 7


def test_the_ends_of_acquisitions_and_holds(server: TestServer, monkeypatch: pytest.MonkeyPatch) -> None:
    ear, one = Ear(), server.client()
    observe(one, ear)
    server.run("SADD set x")
    with pytest.raises(client.WrongType):
        Lock(one, "set").acquire()
    token = server.hold()
    assert not Lock(one, "k").acquire(blocking_timeout=0.01)
    with pytest.raises(client.NotOwned):
        Lock(one, "k").resume("holder", token + 1)
    lock = Lock(one, "k")
    lock.resume("holder", token)
    lock.leave(600)
    assert [event[1:] for event in ear.events] == [
        *(("asked",), ("answered", False, client.WrongType), ("asked",), ("answered", False, None)),
        *(("asked",), ("answered", False, client.NotOwned), ("asked",), ("answered", True, None), ("released",)),
    ]
    ear.events.clear()
    # A signal handler raises.
    monkeypatch.setattr(Lock, "_keep", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        lock.resume("holder", token)
    monkeypatch.undo()
    assert [event[1:] for event in ear.events] == [("asked",), ("answered", False, KeyboardInterrupt)]
    ear.events.clear()
    lock = Lock(one, "l", lease=6)
    lock.acquire()
    server.run("DEL l")
    wait_for("the loss", lambda: ear.events[-1][1:] == ("lost", "taken"))
    with pytest.raises(client.NotOwned):
        lock.release()
    assert len(ear.events) == 3, "a loss is no release"
    # What the garbage collector gives back is told in another thread.
    Semaphore(one, "s", limit=1).acquire()
    wait_for("the release", lambda: ear.events[-1] == ("semaphore s", "released"))
    assert "redis-lock-lost" in ear.threads and "redis-lock" not in ear.threads


def test_a_late_renewal(server: TestServer) -> None:
    ear = Ear()
    with Server(server.client(**bounded(60))) as locks:
        observe(locks, ear)
        with locks.lock("k", lease=9, margin=0, raise_on_release_error=False) as lock:
            with server.stopped():
                wait_for("the late renewal", lambda: ("exclusive k", "late") in ear.events)
            wait_for("its end", lambda: locks.statistics().renewals or lock.lost.is_set())
            # With a margin of 0, so that the loss comes long after it.
            assert [event[1] for event in ear.events][:3] == ["asked", "answered", "late"]
        assert [event[1] for event in ear.events].count("late") == 1


def test_an_observer_that_fails(server: TestServer, caplog: Any) -> None:
    class Broken(Observer):
        def asked(self, lock: Observed) -> None:
            raise RuntimeError("of the observer")

        answered = released = lost = asked  # type: ignore[assignment]

    with Server(server.client()) as locks:
        observe(locks, Broken())
        with locks.lock("k", lease=6) as lock:
            pass
        lock.acquire()
        server.run("DEL k")
        assert lock.lost.wait(20)
    wait_for("the warnings", lambda: sum("the observer has failed" in one for one in caplog.messages) >= 3)


def test_tasks(server: TestServer) -> None:
    ear = Ear()

    async def work() -> None:
        async with redis.asyncio.Redis(port=server.port) as one:
            # Before there is a hub of this loop, and for the next one after.
            of_tasks.observe(one, ear)
            async with of_tasks.Lock(one, "k"):
                waiting = asyncio.ensure_future(of_tasks.Lock(one, "k").acquire())
                while server.stat("tickets") == 0:
                    # sleep: polls
                    await asyncio.sleep(0.01)
                waiting.cancel()
                await asyncio.wait({waiting})
            lock = of_tasks.Lock(one, "k", lease=6)
            await lock.acquire()
            server.run("DEL k")
            assert await lock.lost.wait(20)
            while ear.events[-1][1] != "lost":
                # sleep: polls
                await asyncio.sleep(0.01)

    asyncio.run(work())
    assert [event[1:] for event in ear.events] == [
        *(("asked",), ("answered", True, None), ("asked",), ("answered", False, asyncio.CancelledError)),
        *(("released",), ("asked",), ("answered", True, None), ("lost", "taken")),
    ]


def test_opentelemetry(server: TestServer) -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    from redis_lock_client.opentelemetry import OpenTelemetryObserver

    reader, spans, traces = InMemoryMetricReader(), InMemorySpanExporter(), TracerProvider()
    traces.add_span_processor(SimpleSpanProcessor(spans))
    tracer, meter = traces.get_tracer("test"), MeterProvider([reader]).get_meter("test")
    with Server(server.client()) as locks:
        observe(locks, OpenTelemetryObserver(lambda lock: lock.name.split(":")[0], meter=meter, tracer=tracer))
        with tracer.start_as_current_span("job"), locks.lock("orders:42"):
            assert not locks.lock("orders:42").acquire(blocking=False)
        server.run("SADD orders:1 x")
        with pytest.raises(client.WrongType):
            locks.lock("orders:1").acquire()
        lock = locks.lock("orders:2", lease=6)
        lock.acquire()
        server.run("DEL orders:2")
        found: dict[str, Any] = {}

        def has_loss() -> bool:
            data: Any = reader.get_metrics_data()
            for metric in data.resource_metrics[0].scope_metrics[0].metrics:
                found[metric.name] = metric
            return "redis_lock.losses" in found

        wait_for("the loss", has_loss)
    granted, refused, failed, other = sorted(
        (span for span in spans.get_finished_spans() if span.name != "job"), key=lambda span: span.start_time or 0
    )
    job = next(span for span in spans.get_finished_spans() if span.name == "job")
    assert granted.parent is not None and granted.parent.span_id == job.context.span_id
    assert granted.name == "lock exclusive"
    for span, is_granted in ((granted, True), (refused, False), (failed, False), (other, True)):
        assert dict(span.attributes or {}) == {
            "redis_lock.kind": "exclusive",
            "redis_lock.name": "orders",
            "redis_lock.granted": is_granted,
        }
    assert [span.status.is_ok for span in (granted, refused, failed)] == [True, True, False]
    points = {name: metric.data.data_points for name, metric in found.items()}
    assert found["redis_lock.wait"].unit == "s"
    assert sorted(point.count for point in points["redis_lock.wait"]) == [2, 2]
    assert [point.count for point in points["redis_lock.hold"]] == [1]
    assert [(point.value, point.attributes["redis_lock.reason"]) for point in points["redis_lock.losses"]] == [
        (1, "taken")
    ]


def test_one_thread_at_a_time(server: TestServer) -> None:
    """Waiters of several threads each have their events."""
    ear = Ear()
    with Server(server.client()) as locks:
        observe(locks, ear)

        def work(_: int) -> None:
            with locks.lock("k"):
                pass

        join(in_threads(10, work))
    assert len(ear.locks) == 10
    assert sorted(event[1] for event in ear.events) == sorted(["asked", "answered", "released"] * 10)
