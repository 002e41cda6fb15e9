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
        crew.start(f"exec {command('celery -A shop beat')} --loglevel INFO -s {number}")
        for number in range(3)
    ]
    crew.until_said("Sending due task cleanup", 2)
    (first,) = [one for one in range(3) if "Sending" in crew.log(one)]
    assert "this beat leads" in crew.log(first)
    crew.end(beats[first])
    left = [one for one in range(3) if one != first]
    crew.until(lambda: any("Sending due task cleanup" in crew.log(one) for one in left))
    (second,) = [one for one in left if "Sending" in crew.log(one)]
    beats[second].kill()  # it resigns from nothing
    (third,) = [one for one in left if one != second]
    crew.until(lambda: "Sending due task cleanup" in crew.log(third))


def test_another_scheduler_works(crew: Crew) -> None:
    """As one that an extension of Celery's has."""
    with (crew.directory / "shop.py").open("a") as shop:
        shop.write(
            """
import celery.beat

class Other(celery.beat.Scheduler):
    def setup_schedule(self):
        print("the other one works", flush=True)
        super().setup_schedule()

app.conf.dblock_scheduler = Other
"""
        )
    crew.start(f"exec {command('celery -A shop beat')} --loglevel INFO")
    crew.until_said("the other one works")


def test_without_an_election(crew: Crew) -> None:
    with (crew.directory / "shop.py").open("a") as shop:
        shop.write("\napp.conf.dblock_election = 'celery-beat'\n")
    crew.start(f"exec {command('celery -A shop beat')} --loglevel INFO")
    crew.until_said("app.conf.dblock_election is an election")
