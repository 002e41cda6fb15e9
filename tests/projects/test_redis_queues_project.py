"""RQ and Dramatiq: docs/queues.md with real workers, whose queue is in Redis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.servers import Redis
from tests.conftest import NewDatabase, OwnServers
from tests.projects.crew import PAGE, Crew, command
from tests.test_docs import blocks


@pytest.fixture
def crew(new_database: NewDatabase, own_server: OwnServers, tmp_path: Path) -> Iterator[Crew]:
    url = new_database("postgresql", migrated=True).url
    made = Crew(tmp_path, DATABASE_URL=url, REDIS_URL=own_server(Redis).url)
    for language, name in (("rq", "jobs.py"), ("dramatiq", "actors.py")):
        (block,) = blocks(PAGE, f"python {language}")
        made.write(name, block)
    yield made
    made.close()


def test_rq(crew: Crew) -> None:
    crew.python("import jobs; jobs.ask_for_report(); jobs.ask_for_report()")
    for _ in range(2):
        crew.start(f"exec {command('rq worker')}")
    crew.two_reports("dblock.errors.NotAcquired: 'report'")

    with crew.one_run_an_hour("clean"):
        crew.python("import jobs; jobs.ask_for_cleanup(); jobs.ask_for_cleanup()")
        crew.until_said("Successfully completed", 4)


def test_the_job_of_a_killed_process_is_done_again(crew: Crew) -> None:
    (block,) = blocks(PAGE, "python rq")
    crew.write("jobs.py", block.replace('"report", ttl=60', '"report", ttl=4'))
    crew.python("import jobs; jobs.ask_for_report()")
    crew.start(f"exec {command('rq worker')}")
    crew.killed_and_done_again()


def test_dramatiq(crew: Crew) -> None:
    crew.python("import actors; actors.report.send(); actors.report.send()")
    crew.start(f"exec {command('dramatiq actors')} --processes 2 --threads 2 -v")
    crew.two_reports("dblock.errors.NotAcquired: 'report'")

    with crew.one_run_an_hour("clean"):
        crew.python("import actors; actors.cleanup.send(); actors.cleanup.send()")
        crew.until_said("a run was skipped: 'cleanup'")
        crew.until_noted("clean")
