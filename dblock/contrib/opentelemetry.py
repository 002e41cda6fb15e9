"""Metrics and spans of OpenTelemetry for what happens to locks.

>>> from dblock.contrib.opentelemetry import instrument
>>> end = instrument()                                          # doctest: +SKIP

=========================== ========= ==================================================
``dblock.acquire.duration`` histogram seconds, by ``dblock.outcome``: acquired, refused,
                                      unknown, conflict, failed
``dblock.hold.duration``    histogram seconds, by ``dblock.outcome``: released, lost
``dblock.renewal.lag``      histogram seconds from when a renewal was due, by
                                      ``dblock.outcome``: renewed, missed
``dblock.dangers``          counter   holds that were not renewed in time
``dblock.losses``           counter   by ``dblock.reason``
``dblock.unknowns``         counter   outcomes that are unknown
``dblock.conflicts``        counter   of row locks and of optimistic changes
=========================== ========= ==================================================

All have the attribute ``dblock.strategy``. The spans ``dblock acquire`` and ``dblock hold`` also
have the name of the lock. Metrics have what ``label`` makes of the name, because each value is a
time series.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from opentelemetry import metrics, trace
from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import Status, StatusCode, TracerProvider

from .. import __version__
from ..errors import LockLost
from ..events import Kind, LockEvent, listen

ACQUIRE = {Kind.ACQUIRED, Kind.REFUSED, Kind.UNKNOWN, Kind.CONFLICT, Kind.FAILED}
HOLD = {Kind.RELEASED, Kind.LOST}
RENEWAL = {Kind.RENEWED, Kind.MISSED}
# A refusal and a conflict are not errors: locks are there for them.
ERRORS = {Kind.UNKNOWN, Kind.FAILED, Kind.LOST}

# In seconds, from a round trip to a long job. The SDK's own are for milliseconds.
BOUNDARIES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000, 3600)


def instrument(
    *,
    meter_provider: MeterProvider | None = None,
    tracer_provider: TracerProvider | None = None,
    label: Callable[[str], str] | None = None,
) -> Callable[[], None]:
    """Record the events of this process's locks from now on.

    Return a function that stops the recording. Call ``instrument`` once in each process.

    Without ``meter_provider`` and ``tracer_provider`` it uses OpenTelemetry's global ones.
    ``label`` makes the attribute ``dblock.name`` of the metrics from the name of a lock. Let it
    return few different values: ``lambda name: name.partition(":")[0]``. Without ``label`` the
    metrics have no name.
    """
    return listen(_Recorder(meter_provider, tracer_provider, label).record)


class _Recorder:
    def __init__(
        self,
        meter_provider: MeterProvider | None,
        tracer_provider: TracerProvider | None,
        label: Callable[[str], str] | None,
    ) -> None:
        meter = metrics.get_meter("dblock", __version__, meter_provider)
        self._tracer = trace.get_tracer("dblock", __version__, tracer_provider)
        self._label = label
        self._acquires, self._holds, self._lags = (
            meter.create_histogram(name, "s", explicit_bucket_boundaries_advisory=BOUNDARIES)
            for name in ("dblock.acquire.duration", "dblock.hold.duration", "dblock.renewal.lag")
        )
        self._dangers = meter.create_counter("dblock.dangers")
        self._losses = meter.create_counter("dblock.losses")
        self._unknowns = meter.create_counter("dblock.unknowns")
        self._conflicts = meter.create_counter("dblock.conflicts")

    def record(self, event: LockEvent) -> None:
        attributes = {"dblock.strategy": event.strategy}
        if self._label is not None:
            attributes["dblock.name"] = self._label(event.name)
        ended = {**attributes, "dblock.outcome": str(event.kind)}
        optimistic = event.strategy == "optimistic"
        if event.kind in ACQUIRE and not optimistic:
            self._acquires.record(event.seconds, ended)
            self._span("dblock acquire", event)
        elif event.kind in HOLD:
            self._holds.record(event.seconds, ended)
            self._span("dblock hold", event)
        elif event.kind in RENEWAL:
            self._lags.record(event.seconds, ended)
        elif event.kind is Kind.ENDANGERED:
            self._dangers.add(1, attributes)
        if isinstance(event.error, LockLost):
            self._losses.add(1, {**attributes, "dblock.reason": str(event.error.reason)})
        elif event.kind is Kind.UNKNOWN:
            self._unknowns.add(1, attributes)
        elif event.kind is Kind.CONFLICT:
            self._conflicts.add(1, attributes)

    def _span(self, name: str, event: LockEvent) -> None:
        """Record a span for what has just ended, inside the caller's span."""
        end = time.time_ns()
        span = self._tracer.start_span(
            name,
            start_time=end - int(event.seconds * 1e9),
            attributes={
                "dblock.strategy": event.strategy,
                "dblock.name": event.name,
                "dblock.outcome": str(event.kind),
            },
        )
        if event.error is not None:
            if event.kind in ERRORS:
                span.set_status(Status(StatusCode.ERROR, str(event.error)))
            span.set_attribute("error.type", type(event.error).__name__)
        span.end(end)
