"""A Django project, made by docs/django.md in an empty directory, and its test runs."""

from __future__ import annotations

import os
import pprint
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, make_url, text

from dblock import Locks
from tests.conftest import KINDS, Database, NewDatabase
from tests.contrib.django.conftest import of
from tests.patience import SECONDS
from tests.servers import FAMILY
from tests.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "django.md"
MANAGE = "manage.py"
PYTEST = ("-m", "pytest", "-q", "--ds=mysite.settings", "tests.py")
RUNNERS = {"manage.py": (MANAGE, "test"), "pytest": PYTEST}

#: No test of it takes a lock.
PLAIN = """
from django.contrib.auth.models import Group
from django.test import TestCase

class PlainTest(TestCase):
    def test_groups(self):
        Group.objects.create(name="a")
        self.assertEqual(Group.objects.count(), 1)
"""

#: Where its users leave connections behind, each in its own way.
LEAVING = """
import threading
from django.test import TransactionTestCase
from dblock.contrib.django import locks

kept = locks.lease("kept", ttl=3, wait=0)
row = locks.row("row")

class LeavingTest(TransactionTestCase):
    def test_a_lease_that_is_renewed(self):
        self.assertFalse(locks.show("early").fence)
        kept.acquire()
        before = locks.show("kept").expires_at
        while locks.show("kept").expires_at == before:
            threading.Event().wait(0.1)

    def test_a_row_lock_of_its_own_transaction(self):
        with row:
            pass

    def test_a_wait(self):
        taken = threading.Event()
        def wait():
            with locks.lease("waited-for"):
                taken.set()
        with locks.lease("waited-for"):
            waiting = threading.Thread(target=wait)
            waiting.start()
            while not locks.show("waited-for").waiters:
                threading.Event().wait(0.05)
        self.assertTrue(taken.wait(60))
        waiting.join()
"""

#: A lease, taken before Django puts the test database in the place of the real one.
EARLY = """
from dblock.contrib.django import locks

with locks.lease("early", wait=0):
    pass
"""

IN_TEST_CASE = """
from django.contrib.auth.models import Group
from django.test import TestCase
from dblock import DeadlockDetected, NotAcquired
from dblock.contrib.django import locks

class Before(TestCase):
    def test_a_lease(self):
        with locks.lease("report", wait=0):
            pass

class Reading(TestCase):
    def test_a_lease(self):
        Group.objects.count()
        with self.assertRaisesRegex(DeadlockDetected, "use TransactionTestCase"):
            locks.lease("read").acquire()

class TheOneWriter(TestCase):
    def test_a_lease(self):
        held = locks.lease("held", ttl=30)
        held.acquire()
        Group.objects.create(name="a")
        for wait in (None, 5):
            with self.assertRaisesRegex(DeadlockDetected, "use TransactionTestCase"):
                locks.lease("report", wait=wait).acquire()
        with self.assertRaisesRegex(NotAcquired, "use TransactionTestCase"):
            with locks.lease("report", wait=0):
                pass
        for end in (held.release, held.renew):
            with self.assertRaisesRegex(DeadlockDetected, "use TransactionTestCase"):
                end()

class RowLock(TestCase):
    def test_a_row_lock(self):
        Group.objects.create(name="a")
        with locks.row("report", wait=0):
            pass
"""


class Project:
    """What ``django-admin startproject mysite .`` makes, with the settings of the page."""

    def __init__(self, directory: Path, database: Database, **test: Any) -> None:
        self.directory = directory
        self.database = database
        self.run("-m", "django", "startproject", "mysite", ".")
        (settings,) = blocks(PAGE, "python settings")
        entry = of(database, **({"TEST": test} if test else {}))
        with (directory / "mysite" / "settings.py").open("a") as file:
            if database.kind in FAMILY:
                file.write("import pymysql\npymysql.install_as_MySQLdb()\n")
            file.write(f"DATABASES = {{'default': {pprint.pformat(entry)}}}\n{settings}")
            file.write("PASSWORD_HASHERS = ['django.contrib.auth.hashers.MD5PasswordHasher']\n")
        (directory / "backup.sh").write_text("#!/bin/sh\necho backed up\n")
        (directory / "backup.sh").chmod(0o755)

    def run(self, *arguments: str, codes: tuple[int, ...] = (0,)) -> str:
        env = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.directory,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=SECONDS,
        )
        said = done.stdout + done.stderr
        assert done.returncode in codes, f"{arguments}\n{said}"
        return said

    def has(self, *tests: str) -> None:
        """Have these tests, and no others."""
        (self.directory / "tests.py").write_text("\n".join(tests))

    def test(self, runner: str, *more: str) -> str:
        said = self.run(*RUNNERS[runner], *more)
        assert not self.test_databases(), said
        return said

    def test_databases(self) -> list[str]:
        """The test databases that are still there."""
        name = self.database.url
        if self.database.kind == "sqlite":
            return [file.name for file in self.directory.glob("test*.db")]
        tables, column = {
            "postgresql": ("pg_database", "datname"),
            **dict.fromkeys(FAMILY, ("information_schema.schemata", "schema_name")),
        }[self.database.kind]
        engine = create_engine(name)
        pattern = f"test_{make_url(name).database}%"
        with engine.connect() as connection:
            found = connection.execute(
                text(f"SELECT {column} FROM {tables} WHERE {column} LIKE :pattern"),
                {"pattern": pattern},
            )
            names = [str(row[0]) for row in found]
        engine.dispose()
        return names


@pytest.fixture(params=KINDS)
def project(request: pytest.FixtureRequest, new_database: NewDatabase, tmp_path: Path) -> Project:
    database = new_database(request.param)
    (tmp_path / "site").mkdir()
    test = {"NAME": str(tmp_path / "site" / "test.db")} if request.param == "sqlite" else {}
    return Project(tmp_path / "site", database, **test)


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_test_run_without_locks(project: Project, runner: str) -> None:
    project.has(PLAIN)
    project.test(runner)


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_test_run_with_locks(project: Project, runner: str) -> None:
    """Its leases are in the test database, and nothing stays connected to that."""
    project.run(MANAGE, "migrate", "-v0")
    (page,) = blocks(PAGE, "python tests")
    project.has(
        EARLY, page, LEAVING, *([IN_TEST_CASE] if project.database.kind == "sqlite" else [])
    )
    project.test(runner)
    with Locks(project.database.url) as real:
        assert real.show("early").fence == 1
        for name in ("kept", "waited-for", "row", "nightly"):
            assert not real.show(name).fence, name


def test_a_test_run_in_parallel(new_database: NewDatabase, tmp_path: Path) -> None:
    """PostgreSQL copies no database that somebody is connected to."""
    project = Project(tmp_path, new_database("postgresql"))
    project.run(MANAGE, "migrate", "-v0")
    project.has(EARLY, PLAIN, LEAVING)
    assert "Cloning test database" in project.test("manage.py", "--parallel=2")


@pytest.mark.parametrize("runner", RUNNERS)
def test_a_test_run_with_sqlite_as_it_comes(
    new_database: NewDatabase, tmp_path: Path, runner: str
) -> None:
    """In memory, where nothing can be locked: that matters only to who wants to lock."""
    project = Project(tmp_path, new_database("sqlite"))
    project.has(PLAIN)
    project.test(runner)
    (page,) = blocks(PAGE, "python tests")
    project.has(page)
    assert "is an SQLite database in memory" in project.run(*RUNNERS[runner], codes=(1,))


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_page_word_for_word(new_database: NewDatabase, tmp_path: Path, kind: str) -> None:
    project = Project(tmp_path, new_database(kind))
    lines = [line[2:] for block in blocks(PAGE, "console") for line in block.splitlines()]
    install, *commands = lines
    assert install.startswith("pip install ")
    said = {}
    for line in commands:
        python, *arguments = shlex.split(line)
        assert python == "python"
        # Nobody holds it; and the tests' server is told not to care for a crash.
        answers = {"show", "release", "doctor", "--reopen"} & {*arguments}
        said[line] = project.run(*arguments, codes=(0, 1) if answers else (0,))
    assert "backed up" in said["python manage.py dblock run nightly -- ./backup.sh"]
    with Locks(project.database.url) as real:
        run = real.last_run("nightly")
        assert run is not None
        assert run.exit_status == 0
