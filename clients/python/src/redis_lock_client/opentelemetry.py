"""Metrics and traces of OpenTelemetry. It needs the package ``opentelemetry-api``."""

from __future__ import annotations

from typing import Callable, Optional

from opentelemetry import metrics, trace

from .observer import Observed, Observer
from .outcome import LostReason

_SCOPE = "redis_lock_client"


class OpenTelemetryObserver(Observer):
    """Gives the histograms ``redis_lock.wait`` and ``redis_lock.hold`` (seconds), the counters ``redis_lock.losses``
    and ``redis_lock.late_renewals``, and a span ``lock <kind>`` for each acquisition.

    :param name: makes the attribute ``redis_lock.name`` of a lock. Without it there is none: a metric of each key would
        be too many.
    :param meter: those of the global provider by default, and so is the tracer.
    """

    def __init__(
        self,
        name: Optional[Callable[[Observed], str]] = None,
        *,
        meter: Optional[metrics.Meter] = None,
        tracer: Optional[trace.Tracer] = None,
    ) -> None:
        meter = meter or metrics.get_meter(_SCOPE)
        self._name = name
        self._tracer = tracer or trace.get_tracer(_SCOPE)
        self._spans: dict[Observed, trace.Span] = {}
        self._waits = meter.create_histogram("redis_lock.wait", unit="s", description="Time of acquisitions")
        self._holds = meter.create_histogram("redis_lock.hold", unit="s", description="Time from grant to release")
        self._losses = meter.create_counter("redis_lock.losses", description="Locks that were lost")
        self._late = meter.create_counter("redis_lock.late_renewals", description="Renewals that were late")

    def asked(self, lock: Observed) -> None:
        self._spans[lock] = self._tracer.start_span(f"lock {lock.kind}", attributes=self._attributes(lock))

    def answered(self, lock: Observed, granted: bool, waited: float, error: Optional[BaseException]) -> None:
        self._waits.record(waited, {**self._attributes(lock), "redis_lock.granted": granted})
        span = self._spans.pop(lock, None)
        if span is not None:
            span.set_attribute("redis_lock.granted", granted)
            if error is not None:
                span.record_exception(error)
                span.set_status(trace.StatusCode.ERROR, type(error).__name__)
            span.end()

    def released(self, lock: Observed, held: float) -> None:
        self._holds.record(held, self._attributes(lock))

    def lost(self, lock: Observed, reason: LostReason) -> None:
        self._losses.add(1, {**self._attributes(lock), "redis_lock.reason": reason.kind})

    def late(self, lock: Observed, by: float) -> None:
        self._late.add(1, self._attributes(lock))

    def _attributes(self, lock: Observed) -> dict[str, str]:
        name = {} if self._name is None else {"redis_lock.name": self._name(lock)}
        return {"redis_lock.kind": lock.kind, **name}
