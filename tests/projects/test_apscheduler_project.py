"""APScheduler: docs/queues.md with real schedulers in two processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import NewDatabase
from tests.projects.crew import PAGE, Crew, command
from tests.test_docs import blocks

RUNNING = 'Running job "cleanup'


@pytest.fixture
def crew(new_database: NewDatabase, tmp_path: Path) -> Iterator[Crew]:
    url = new_database("postgresql", migrated=True).url
    made = Crew(tmp_path, DATABASE_URL=url)
    (block,) = blocks(PAGE, "python apscheduler")
    made.write("schedule_jobs.py", block)
    yield made
    made.close()


def test_each_process_has_its_schedule(crew: Crew) -> None:
    with crew.one_run_an_hour("clean"):
        for _ in range(2):
            crew.start(f"exec {command('python schedule_jobs.py')}")
        crew.until(lambda: all(crew.log(one).count(RUNNING) >= 2 for one in range(2)))
        crew.until_said("a run was skipped: 'cleanup' has succeeded for", 3)


def test_one_scheduler(crew: Crew) -> None:
    (block,) = blocks(PAGE, "python apscheduler-elected")
    crew.write("one_scheduler.py", block)
    schedulers = [crew.start(f"exec {command('python one_scheduler.py')}") for _ in range(2)]
    crew.until_said(RUNNING, 2)
    first = 0 if RUNNING in crew.log(0) else 1
    assert RUNNING in crew.log(first)
    assert "Scheduler started" not in crew.log(1 - first)
    crew.end(schedulers[first])
    crew.until(lambda: RUNNING in crew.log(1 - first))
