"""Celery: docs/queues.md with real workers and beats. The broker is a database too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import NewDatabase
from tests.projects.crew import PAGE, Crew, command
from tests.test_docs import blocks


@pytest.fixture
def crew(new_database: NewDatabase, tmp_path: Path) -> Iterator[Crew]:
    url = new_database("postgresql", migrated=True).url
    made = Crew(tmp_path, DATABASE_URL=url, BROKER_URL=f"sqla+{url}")
    (block,) = blocks(PAGE, "python celery")
    made.write("shop.py", block)
    yield made
    made.close()


def test_workers(crew: Crew) -> None:
    crew.python("import shop; [shop.report.delay() for _ in range(2)]")
    for number in range(2):
        crew.start(f"exec {command('celery -A shop worker')} -c 2 -n {number} --loglevel INFO")
    crew.two_reports("retry: Retry in")

    crew.python("import shop; [shop.bill.delay(customer) for customer in (1, 2)]")
    with crew.one_run_an_hour("clean"):
        crew.python("import shop; [shop.cleanup.delay() for _ in range(3)]")
        crew.until_said("shop.cleanup", 6)  # three times received, three times done
    crew.until_noted("bill:1")
    crew.until_noted("bill:2")


def test_one_beat(crew: Crew) -> None:
    beats = [
        crew.start(f"exec {command('dblock run celery-beat')} --loglevel INFO -s {number}")
        for number in range(2)
    ]
    crew.until_said("beat: Starting...")
    crew.until_said("Sending due task cleanup", 2)
    first = 0 if "Sending" in crew.log(0) else 1
    assert "Sending" in crew.log(first)
    assert "Starting" not in crew.log(1 - first)
    crew.end(beats[first])
    crew.until(lambda: "Sending due task cleanup" in crew.log(1 - first))
