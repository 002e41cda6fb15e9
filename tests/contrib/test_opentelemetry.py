"""What the SDK is told, kept in its memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from sqlalchemy import Column, Integer, MetaData, Table, create_engine
from sqlalchemy.orm import sessionmaker

from dblock import Conflict, LockLost, Locks, OutcomeUnknown, retry_on_conflict
from dblock.contrib.opentelemetry import instrument
from dblock.events import Kind, tell
from tests.conftest import NewDatabase
from tests.support import EAGER, LONG, eventually


class Telemetry:
    def __init__(self) -> None:
        self.reader = InMemoryMetricReader()
        self.exporter = InMemorySpanExporter()
        self.meters = MeterProvider([self.reader])
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))

    def points(self, name: str) -> list[tuple[dict[str, Any], Any]]:
        """The attributes and the point of each series of a metric."""
        data: Any = self.reader.get_metrics_data()
        return [
            (dict(point.attributes), point)
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def outcomes(self, name: str) -> dict[str, int]:
        """How often each outcome was recorded in a histogram."""
        return {about["dblock.outcome"]: point.count for about, point in self.points(name)}


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    made = Telemetry()
    end = instrument(
        meter_provider=made.meters,
        tracer_provider=made.tracers,
        label=lambda name: name.partition(":")[0],
    )
    yield made
    end()
    made.meters.shutdown()
    made.tracers.shutdown()


@pytest.fixture
def locks(new_database: NewDatabase) -> Iterator[Locks]:
    with Locks(new_database("sqlite", migrated=True).url, retry=EAGER) as made:
        yield made


def test_waits_and_holds(locks: Locks, telemetry: Telemetry) -> None:
    tracer = telemetry.tracers.get_tracer("the application's")
    with tracer.start_as_current_span("request") as request, locks.lease("order:42", ttl=LONG):
        locks.lease("order:42").acquire(blocking=False)
    assert telemetry.outcomes("dblock.acquire.duration") == {"acquired": 1, "refused": 1}
    ((about, point),) = telemetry.points("dblock.hold.duration")
    assert about == {
        "dblock.strategy": "lease",
        "dblock.name": "order",
        "dblock.outcome": "released",
    }
    assert 0 < point.sum < LONG
    acquired, refused, held, whole = telemetry.exporter.get_finished_spans()
    names = ["dblock acquire", "dblock acquire", "dblock hold", "request"]
    assert [span.name for span in (acquired, refused, held, whole)] == names
    for span in (acquired, refused, held):
        assert span.parent == request.get_span_context()
        assert span.attributes is not None
        assert span.attributes["dblock.name"] == "order:42"
        assert span.start_time is not None
        assert span.end_time is not None
        assert span.start_time <= span.end_time
        assert span.status.status_code is StatusCode.UNSET
    assert refused.attributes is not None
    assert refused.attributes["error.type"] == "NotAcquired"


def test_renewals_and_losses(locks: Locks, telemetry: Telemetry) -> None:
    lease = locks.lease("a", ttl=3.0)
    lease.acquire()
    eventually(lambda: bool(telemetry.outcomes("dblock.renewal.lag").get("renewed")))
    locks.release("a", force=True)
    eventually(lease.lost.is_set)
    eventually(lambda: bool(telemetry.points("dblock.losses")))
    ((about, point),) = telemetry.points("dblock.losses")
    assert (about["dblock.reason"], point.value) == ("forced", 1)
    assert telemetry.outcomes("dblock.hold.duration") == {"lost": 1}
    *_, held = telemetry.exporter.get_finished_spans()
    assert held.status.status_code is StatusCode.ERROR
    with pytest.raises(LockLost):
        lease.release()
    assert telemetry.outcomes("dblock.hold.duration") == {"lost": 1}


def test_conflicts_and_unknowns(locks: Locks, telemetry: Telemetry) -> None:
    engine = create_engine(locks.engine.url)
    tries = [Conflict("somebody was faster"), None]

    @retry_on_conflict(sessionmaker(engine), retry=EAGER)
    def work(session: Any) -> None:
        error = tries.pop(0)
        if error is not None:
            raise error

    work()
    engine.dispose()
    ((about, point),) = telemetry.points("dblock.conflicts")
    assert (about["dblock.strategy"], point.value) == ("optimistic", 1)
    assert telemetry.outcomes("dblock.acquire.duration") == {}
    tell(Kind.UNKNOWN, "lease", "a", 1.0, OutcomeUnknown("no reply"))
    ((about, point),) = telemetry.points("dblock.unknowns")
    assert point.value == 1
    tell(Kind.ENDANGERED, "lease", "a", 1.0)
    ((about, point),) = telemetry.points("dblock.dangers")
    assert about == {"dblock.strategy": "lease", "dblock.name": "a"}


def test_lost_races_of_a_counter(locks: Locks, telemetry: Telemetry) -> None:
    engine = create_engine(locks.engine.url)
    table = Table("p", MetaData(), Column("id", Integer, primary_key=True), Column("n", Integer))
    table.create(engine)
    races = [True, False]

    def change(value: int) -> int:
        if races.pop(0):
            connection.execute(table.update().values(n=5))
        return value + 1

    with engine.begin() as connection:
        connection.execute(table.insert().values(id=1, n=0))
        counter = locks.counter(table.c.n, key=table.c.id)
        assert counter.update(connection, 1, change) == 6
    engine.dispose()
    ((_, point),) = telemetry.points("dblock.conflicts")
    assert point.value == 1
