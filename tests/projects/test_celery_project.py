"""Celery: docs/queues.md with real workers and beats. The broker is a database too, or Redis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.servers import Redis
from tests.conftest import NewDatabase, OwnServers
from tests.projects.crew import PAGE, Crew, command
from tests.test_docs import ROOT, blocks


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


@pytest.fixture
def redis_crew(crew: Crew, own_server: OwnServers) -> Crew:
    """With a broker that can take a message back."""
    crew.environment["BROKER_URL"] = own_server(Redis).url
    return crew


def test_the_task_of_a_killed_worker_is_done_again(redis_crew: Crew) -> None:
    (block,) = blocks(PAGE, "python celery")
    redis_crew.write("shop.py", block)
    redis_crew.python("import shop; shop.report.delay()")
    redis_crew.start(f"exec {command('celery -A shop worker')} -c 1 --loglevel INFO")
    redis_crew.killed_and_done_again("retry: Retry in")


def test_what_a_killed_worker_had_attached_is_done_again(redis_crew: Crew) -> None:
    """docs/handover.md: while the hold may go on the task looks again, and then begins anew."""
    page = ROOT / "docs" / "handover.md"
    (block,) = blocks(page, "python flask-celery")
    redis_crew.write("shop.py", block)
    redis_crew.python("import shop; print(shop.app.test_client().post('/report').status)")
    assert "202" in redis_crew.logs()
    (start,) = [line[2:] for line in "".join(blocks(page, "console")).splitlines()]
    redis_crew.start(f"exec {start} -c 1 --loglevel INFO")
    redis_crew.killed_and_done_again("retry: Retry in")


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
    # It tried each second: it says once of each leader that this one leads.
    assert 2 <= crew.log(third).count("refused lease") <= 4


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
