"""The recipe of docs/handover.md for Flask and Celery, with a worker of Celery's."""

from __future__ import annotations

import sys
import threading
from types import ModuleType
from typing import Any

import pytest
from celery.contrib.testing.worker import start_worker
from sqlalchemy import create_engine

from dblock import LockLost, Locks, NotAcquired
from tests.conftest import NewDatabase
from tests.support import LONG, SECONDS, eventually, expire
from tests.test_docs import ROOT, blocks


def test_flask_and_celery(new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    database = new_database("postgresql", migrated=True)
    monkeypatch.setenv("DATABASE_URL", database.url)
    monkeypatch.setenv("BROKER_URL", "memory://")
    begun, go_on, fences = threading.Event(), threading.Event(), list[int]()

    def make_report(fence: int) -> None:
        fences.append(fence)
        begun.set()
        assert go_on.wait(SECONDS)

    reports: Any = ModuleType("reports")
    reports.make_report = make_report
    monkeypatch.setitem(sys.modules, "reports", reports)
    names: dict[str, Any] = {"__name__": "shop"}
    (block,) = blocks(ROOT / "docs" / "handover.md", "python flask-celery")
    exec(compile(block, "handover.md", "exec"), names)
    client, celery = names["app"].test_client(), names["celery"]
    with Locks(database.url) as others:
        assert client.post("/report").status_code == 202
        fence = others.show("report").fence
        assert client.post("/report").status_code == 409  # before anybody has begun
        with start_worker(celery, perform_ping_check=False, pool="solo", loglevel="ERROR"):
            assert begun.wait(SECONDS)
            assert client.post("/report").status_code == 409
            go_on.set()
            eventually(lambda: not others.show("report").held)
        assert fences == [fence]
        with others.lease("report", wait=0):
            assert client.post("/report").status_code == 409
    names["locks"].close()


def test_a_second_delivery(new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the first goes on it looks again later; then it does nothing, or all of it anew."""
    database = new_database("postgresql", migrated=True)
    monkeypatch.setenv("DATABASE_URL", database.url)
    monkeypatch.setenv("BROKER_URL", "memory://")
    made: list[int] = []
    reports: Any = ModuleType("reports")
    reports.make_report = lambda fence: made.append(fence)
    monkeypatch.setitem(sys.modules, "reports", reports)
    names: dict[str, Any] = {"__name__": "shop"}
    (block,) = blocks(ROOT / "docs" / "handover.md", "python flask-celery")
    exec(compile(block, "handover.md", "exec"), names)
    with Locks(database.url) as others:
        with others.lease("report") as lease:
            handover = lease.detach()
        with others.attach(handover) as lease:
            with pytest.raises(LockLost):  # so Celery tries again
                names["report"](handover)
            fence, text = lease.fence, lease.detach()
        assert made == []
        names["report"](text)
        assert made == [fence]
        assert not others.show("report").held
        names["report"](handover)
        names["report"](text)
        assert made == [fence]  # it was released there
        assert others.lease("report", ttl=LONG).acquire()
        with pytest.raises(NotAcquired):  # so Celery tries again
            names["report"](text)
        others.release("report", force=True)
        with others.lease("report", ttl=LONG) as lease:
            fence, text = lease.fence, lease.detach()
        others.attach(text, ttl=LONG).acquire()
        engine = create_engine(database.url)
        expire(engine, others, "report")  # its process was killed
        engine.dispose()
        names["report"](text)
        assert made[1:] == [fence + 1]
    names["locks"].close()
