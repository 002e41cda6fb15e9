"""Django on mysqlclient and psycopg2, as most projects have it.

It chooses its drivers once in a process, and these tests have PyMySQL and psycopg 3: so those about
its transactions run once more in another.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection

from tests.conftest import Database
from tests.contrib.django.conftest import IN_C
from tests.servers import FAMILY

HERE = Path(__file__).parent
USUAL = {"postgresql": "psycopg", **dict.fromkeys(FAMILY, "pymysql"), "sqlite": "sqlite3.dbapi2"}


def test_the_driver(dj: Database) -> None:
    in_c = {"postgresql": "psycopg2", **dict.fromkeys(FAMILY, "MySQLdb")}
    there: object = connection.Database.__name__  # type: ignore[attr-defined]
    assert there == (USUAL | in_c if IN_C else USUAL)[dj.kind]


@pytest.mark.mysqlclient
def test_transactions_of_drivers_in_c() -> None:
    if IN_C:
        return
    these = ["test_locks.py", "test_counter.py", "test_fencing.py", "test_drivers.py"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-n", "1", "-p", "no:cacheprovider"),
            # Django's own pool is one of psycopg 3's.
            *("-k", "not sqlite and not pool"),
            *(str(HERE / name) for name in these),
        ],
        env={**os.environ, "DBLOCK_TEST_DJANGO_DRIVERS": "in C"},
        cwd=HERE.parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "passed" in done.stdout
