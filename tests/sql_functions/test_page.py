"""The page about other languages: its snippets are run as they are, by real programs."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import make_url

from dblock import Locks
from dblock.protocol.term import MARGIN_MAX, MARGIN_SHARE
from dblock.schema import upgrade
from tests.conftest import Database, NewDatabase
from tests.servers import execute
from tests.servers.postgresql import find_postgresql
from tests.sql_functions.caller import Caller, conninfo, token
from tests.support import LONG, SECONDS, eventually

PAGE = (Path(__file__).parents[2] / "docs" / "other-languages.md").read_text()


def block(kind: str) -> str:
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    return str(found)


def environment(url: str) -> dict[str, str]:
    programs = find_postgresql()
    assert programs is not None
    path = f"{programs}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "DATABASE_URL": conninfo(url)}


@pytest.fixture
def reports(db: Database) -> Iterator[str]:
    """The URL of the role that the page grants the functions to."""
    execute(db.url, "DROP ROLE IF EXISTS reports", "CREATE ROLE reports LOGIN", block("sql grant"))
    yield make_url(db.url).set(username="reports").render_as_string(hide_password=False)
    execute(db.url, "DROP OWNED BY reports", "DROP ROLE reports")


class Scripts:
    """Starts the recipe of the page, with other jobs in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[subprocess.Popen[bytes]] = []

    def start(self, url: str, job: str, every: str = "sleep 10") -> subprocess.Popen[bytes]:
        """What it prints is in the file "said" of its folder."""
        (self.folder / "make-report").write_text(f"#!/bin/sh\n{job}\n")
        (self.folder / "make-report").chmod(0o755)
        script = block("sh recipe").replace("sleep 10", every)
        with (self.folder / "said").open("ab") as said:
            process = subprocess.Popen(
                ["sh", "-c", script],
                cwd=self.folder,
                env=environment(url),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def said(self) -> list[str]:
        return (self.folder / "said").read_text().splitlines()

    def close(self) -> None:
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with the renewals that sleep
            process.wait(SECONDS)


@pytest.fixture
def scripts(tmp_path: Path) -> Iterator[Scripts]:
    with contextlib.closing(Scripts(tmp_path)) as made:
        yield made


def test_the_recipe_runs_once_at_a_time(db: Database, reports: str, scripts: Scripts) -> None:
    job = "echo fence $1; while test ! -e done; do sleep 0.1; done"
    working = scripts.start(reports, job)
    with Caller(db.url) as caller:
        eventually(lambda: scripts.said() == ["fence 1"])
        assert scripts.start(reports, job).wait(SECONDS) == 75
        assert scripts.said() == ["fence 1", "another process makes the report"]
        with Locks(db.url) as locks:
            assert not locks.lease("report", wait=0).acquire()
        (scripts.folder / "done").touch()
        assert working.wait(SECONDS) == 0
        assert caller.show("report").holder is None


def test_the_recipe_renews_and_stops_the_job_that_lost_its_lease(
    db: Database, reports: str, scripts: Scripts
) -> None:
    working = scripts.start(reports, "exec sleep 3600", every="sleep 0.1")
    with Caller(db.url) as caller:
        eventually(lambda: caller.show("report").holder is not None)
        ends = "SELECT expires_at FROM dblock_lock"
        first = caller.run(ends)
        eventually(lambda: caller.run(ends) != first)
        caller.run("UPDATE dblock_lock SET token = NULL, expires_at = clock_timestamp()")
    assert working.wait(SECONDS) == 128 + signal.SIGTERM


def test_the_recipe_tells_the_status_of_its_job(
    db: Database, reports: str, scripts: Scripts
) -> None:
    assert scripts.start(reports, "exit 7").wait(SECONDS) == 7
    with Caller(db.url) as caller:
        assert caller.show("report").holder is None


def test_the_recipe_does_not_start_its_job_without_the_database(scripts: Scripts) -> None:
    nowhere = "postgresql+psycopg://app@127.0.0.1:1/app"
    assert scripts.start(nowhere, "echo never").wait(SECONDS) == 69
    assert "never" not in scripts.said()


def test_the_gate_of_the_page(db: Database) -> None:
    execute(db.url, "CREATE TABLE report (made_by bigint)", "INSERT INTO report VALUES (0)")
    with Caller(db.url) as caller:
        fence = caller.acquire("report", token(), LONG).fence
        assert fence is not None
        made = []
        for number in (fence, fence + 2, fence + 1):
            command = ["psql", "-Xq", "-v", "ON_ERROR_STOP=1", "-v", f"fence={number}"]
            done = subprocess.run(
                [*command, conninfo(db.url)],
                input=block("sql gate"),
                env=environment(db.url),
                capture_output=True,
                text=True,
            )
            made.append((done.returncode == 0, *execute(db.url, "SELECT made_by FROM report")[0]))
    assert made == [(True, fence), (True, fence + 2), (False, fence + 2)]


def test_the_command_of_the_page(new_database: NewDatabase) -> None:
    url = new_database("postgresql").url
    command = re.sub(r"--url \S+", f"--url '{url}'", block("sh create"))
    command = command.replace("dblock ", f"'{sys.executable}' -m dblock ", 1)
    subprocess.run(command, shell=True, check=True, capture_output=True)
    assert "dblock_acquire" in upgrade(url).functions


def test_the_page_knows_the_margin_and_the_tables_columns(db: Database) -> None:
    assert (MARGIN_SHARE, MARGIN_MAX) == (0.1, 5.0)
    assert "Stop a tenth of the TTL before the lease ends, at most 5 seconds." in PAGE
    for name in ("acquire", "renew", "release", "show", "gate"):
        query = "SELECT proargnames, proargmodes FROM pg_proc WHERE proname = 'dblock_" + name + "'"
        ((names, modes),) = execute(db.url, query)
        takes = ", ".join(one for one, mode in zip(names, modes, strict=True) if mode == "i")
        (row,) = re.findall(rf"^\| `dblock_{name}\((.*?)\)` \| (.*) \|$", PAGE, re.MULTILINE)
        assert row[0] == takes
        if name in ("acquire", "renew", "show"):
            gives = [one for one, mode in zip(names, modes, strict=True) if mode == "o"]
            assert [one for one in gives if f"`{one}`" not in row[1]] == []
