"""Django's tasks: docs/queues.md with real workers, and their queue in the same database."""

from __future__ import annotations

import pprint
from collections.abc import Iterator
from pathlib import Path

import django
import pytest

from tests.conftest import NewDatabase
from tests.contrib.django.conftest import of
from tests.projects.crew import PAGE, Crew, command
from tests.test_docs import blocks


@pytest.fixture
def crew(new_database: NewDatabase, tmp_path: Path) -> Iterator[Crew]:
    made = Crew(tmp_path)
    made.run("django-admin startproject mysite .")
    (settings,) = blocks(PAGE, "python django-settings")
    (tasks,) = blocks(PAGE, "python django-tasks")
    if django.VERSION >= (6,):  # as the page says
        settings = settings.replace('"django_tasks", ', "")
        tasks = tasks.replace("from django_tasks import", "from django.tasks import")
    databases = {"default": of(new_database("postgresql"))}
    with (tmp_path / "mysite" / "settings.py").open("a") as file:
        file.write(f"DATABASES = {pprint.pformat(databases)}\n{settings}")
    made.write("mysite/tasks.py", tasks)
    yield made
    made.close()


def test_workers(crew: Crew) -> None:
    crew.run(command("python manage.py migrate"))
    ask = "from mysite import tasks; [tasks.{}.enqueue() for _ in range(2)]"
    crew.run(f"python manage.py shell -c '{ask.format('report')}'")
    for _ in range(2):
        crew.start(f"exec {command('python manage.py db_worker')} --no-reload")
    # The one that was refused has put itself into the queue again, and so it has succeeded.
    crew.two_reports("state=SUCCESSFUL")

    with crew.one_run_an_hour("clean"):
        crew.run(f"python manage.py shell -c '{ask.format('cleanup')}'")
        crew.until_said("state=SUCCESSFUL", 5)
