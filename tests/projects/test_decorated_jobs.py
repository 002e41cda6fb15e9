"""The decorator of each queue and scheduler right on a job, of threads and of asyncio."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from datetime import UTC
from queue import SimpleQueue
from types import ModuleType
from typing import Any

import dramatiq
import pytest
from apscheduler.events import EVENT_JOB_ERROR, EVENT_JOB_EXECUTED
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.background import BackgroundScheduler
from celery import Celery
from dramatiq.brokers.stub import StubBroker
from dramatiq.middleware import AsyncIO
from redis import Redis
from rq import Queue
from sqlalchemy import make_url

from benchmarks.servers import Redis as RedisServer
from dblock import Locks, NotAcquired
from dblock.aio import AsyncLocks
from tests.conftest import Database, NewDatabase, OwnServers
from tests.support import SECONDS


@pytest.fixture
def db(new_database: NewDatabase) -> Database:
    return new_database("sqlite", migrated=True)


def later(db: Database) -> str:
    """Its URL under await."""
    return make_url(db.url).set(drivername="sqlite+aiosqlite").render_as_string()


@pytest.fixture
def locks(db: Database) -> Iterator[Locks]:
    with Locks(db.url) as made:
        yield made


class Ran:
    """What ran under the lease of its job."""

    def __init__(self, url: str) -> None:
        self.notes: list[object] = []
        self._url = url

    def note(self, what: object) -> None:
        with Locks(self._url) as others, pytest.raises(NotAcquired):
            others.lease("cleanup", wait=0).__enter__()
        self.notes.append(what)


@pytest.fixture
def ran(db: Database) -> Ran:
    return Ran(db.url)


def test_celery(locks: Locks, ran: Ran) -> None:
    app = Celery("shop", broker="memory://", backend="cache+memory://")
    app.conf.update(task_always_eager=True, task_eager_propagates=True)

    @app.task  # type: ignore[untyped-decorator]
    @locks.cron("cleanup")
    def cleanup(what: str) -> str:
        ran.note(what)
        return what

    @app.task(bind=True)  # type: ignore[untyped-decorator]
    @locks.cron("cleanup")
    def bound(self: Any, what: str) -> None:
        ran.note(f"{self.name.rpartition('.')[2]} {what}")

    assert cleanup.name.endswith(".cleanup")
    assert cleanup.delay("cats").get() == "cats"
    bound.delay("dogs").get()
    assert ran.notes == ["cats", "bound dogs"]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'what'"):
        cleanup.delay()


# RQ imports a task by its name.
MODULE = """
from dblock import Locks
from dblock.aio import AsyncLocks
from rq.decorators import job

@job(queue, connection=queue.connection)
@Locks(url).cron("cleanup")
def cleanup(what):
    ran.note(what)
    return what

@job(queue, connection=queue.connection)
@AsyncLocks(asynchronous).cron("cleanup")
async def cleanup_later(what):
    ran.note(what)
    return what
"""


@pytest.mark.parametrize("name", ["cleanup", "cleanup_later"])
def test_rq(
    own_server: OwnServers, db: Database, ran: Ran, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with Redis.from_url(own_server(RedisServer).url) as redis:
        module = ModuleType("jobs_of_rq")
        queue = Queue(is_async=False, connection=redis)
        vars(module).update(queue=queue, url=db.url, asynchronous=later(db), ran=ran)
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(MODULE, vars(module))
        assert getattr(module, name).delay("cats").return_value() == "cats"
    assert ran.notes == ["cats"]


def test_dramatiq(locks: Locks, db: Database, ran: Ran) -> None:
    broker = StubBroker(middleware=[AsyncIO()])
    broker.emit_after("process_boot")
    asynchronous = AsyncLocks(later(db))

    @dramatiq.actor(broker=broker)
    @locks.cron("cleanup")
    def cleanup(what: str) -> None:
        ran.note(what)

    @dramatiq.actor(broker=broker)
    @asynchronous.cron("cleanup")
    async def cleanup_later(what: str) -> None:
        ran.note(what)

    worker = dramatiq.Worker(broker, worker_threads=1)
    worker.start()
    try:
        for actor in (cleanup, cleanup_later):
            actor.send(actor.actor_name)
            broker.join(actor.queue_name, timeout=int(SECONDS * 1000), fail_fast=True)
    finally:
        worker.stop()
        broker.close()
    assert ran.notes == ["cleanup", "cleanup_later"]


def test_apscheduler(locks: Locks, ran: Ran) -> None:
    scheduler = BackgroundScheduler(timezone=UTC)

    @scheduler.scheduled_job("date")  # type: ignore[untyped-decorator]
    @locks.cron("cleanup")
    def cleanup() -> None:
        ran.note("cats")

    done: SimpleQueue[Any] = SimpleQueue()
    scheduler.add_listener(done.put, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)
    scheduler.start()
    assert done.get(timeout=SECONDS).exception is None
    scheduler.shutdown()
    assert ran.notes == ["cats"]


def test_apscheduler_under_await(db: Database, ran: Ran) -> None:
    async def main() -> None:
        scheduler = AsyncIOScheduler(timezone=UTC)
        done: asyncio.Queue[Any] = asyncio.Queue()
        async with AsyncLocks(later(db)) as locks:

            @scheduler.scheduled_job("date")  # type: ignore[untyped-decorator]
            @locks.cron("cleanup")
            async def cleanup() -> None:
                ran.note("cats")

            scheduler.add_listener(done.put_nowait, EVENT_JOB_EXECUTED | EVENT_JOB_ERROR)
            scheduler.start()
            assert (await asyncio.wait_for(done.get(), SECONDS)).exception is None
            scheduler.shutdown()

    asyncio.run(main())
    assert ran.notes == ["cats"]
