"""Every snippet and command of the README and the docs is run, and every link leads somewhere."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Column, Integer, MetaData, Table, create_engine, make_url
from sqlalchemy.engine import Engine
from sqlalchemy.orm import Session

from dblock import Locks
from dblock.cli import exits
from dblock.schema import upgrade
from tests.aio.support import async_url
from tests.conftest import EVER, Database, NewDatabase

ROOT = Path(__file__).parent.parent
# Those of frameworks are run where there is a project of them: tests/contrib/test_docs.py.
IN_PROJECTS = ("django.md", "fastapi.md", "flask.md", "idempotency.md", "queues.md", "testing.md")
FRAMEWORKS = [ROOT / "docs" / name for name in IN_PROJECTS]
PAGES = [ROOT / "README.md", *sorted({*(ROOT / "docs").glob("*.md")} - {*FRAMEWORKS})]
OTHERS = [ROOT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
OTHERS += sorted((ROOT / "examples").rglob("README.md"))

# Commands that install, need a server of their own, or run this very suite. Their parts are
# tested elsewhere; the CI script runs the first two.
ELSEWHERE = ("celery ", "pip install", "python -m venv", "python3 -m venv", ". .venv/")


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def having(language: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, language)]


async def make_report(fence: int) -> None: ...


@pytest.mark.parametrize("page", having("python"), ids=lambda page: page.name)
def test_python_snippets(page: Path, db: Database) -> None:
    engine = create_engine(db.url)
    metadata = MetaData()
    product = Table("product", metadata, Column("id", Integer, primary_key=True))
    product.append_column(Column("stock", Integer))
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(product.insert().values(id=7, stock=10))
    names: dict[str, Any] = {
        "Locks": Locks,
        "DATABASE_URL": db.url,
        "engine": engine,
        "Session": Session,
        "product": product,
        "ASYNC_DATABASE_URL": async_url(db.url),
        "WAREHOUSE_URL": db.url,
        "ASYNC_WAREHOUSE_URL": async_url(db.url),
        "make_report": lambda fence: None,
        "make_report_async": make_report,
        "charge": lambda session, order: None,
        "fetch_for_a_long_time": list,
        "store": lambda session, rows: None,
    }
    for block in blocks(page, "python"):
        exec(compile(block, str(page), "exec"), names)
    if page.name == "README.md":
        with engine.connect() as connection:
            assert connection.execute(product.select()).one().stock == 7
    if "locks" in names:
        names["locks"].close()
    for made in names.values():
        if isinstance(made, Engine):
            made.dispose()


@pytest.mark.parametrize("page", [ROOT / "README.md", ROOT / "docs" / "index.md"])
def test_the_first_screen_prints_what_it_says(page: Path, tmp_path: Path) -> None:
    """Its Python and the text under it, on the README and on the site's first page."""
    found = re.search(
        r"^```python first\n(.*?)^```\n\n```text\n(.*?)^```", page.read_text(), re.M | re.S
    )
    assert found is not None
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", found[1]],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    varies = r"by \S+ pid \d+ since [-\d]+ [:\d]+ UTC, expires in [\d.]+ s"
    assert re.search(varies, found[2])
    assert re.sub(varies, "", done.stdout) == re.sub(varies, "", found[2])
    assert done.stderr == ""
    # And the shell's lock is the same one.
    (command,) = re.findall(r"^\$ dblock (run report .*)", page.read_text(), re.MULTILINE)
    run = partial(
        subprocess.run,
        [sys.executable, "-m", "dblock", *shlex.split(command)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    with Locks(f"sqlite:///{tmp_path}/locks.db") as locks, locks.lease("report", ttl=EVER):
        assert run().returncode == exits.BUSY
    assert run().stdout == "only one of me\n"


def test_the_first_screen_of_the_site_is_that_of_the_readme() -> None:
    readme, home = ((ROOT / name).read_text() for name in ("README.md", "docs/index.md"))
    for block in re.findall(r"^```(?:python first|text)\n.*?^```", readme, re.M | re.S):
        assert block in home


def test_the_readme_has_at_most_150_lines() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_the_tutorial_says_what_it_prints(tmp_path: Path) -> None:
    """All its pieces in one file, as a reader would put them, run twice."""
    page = (ROOT / "docs" / "tutorial.md").read_text()
    found = re.findall(r"^```(python tutorial|text)\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    pieces = [text for kind, text in found if kind == "python tutorial"]
    first = next(at for at, (kind, _) in enumerate(found) if kind == "python tutorial")
    said = "".join(text for kind, text in found[first:] if kind == "text")
    program = (ROOT / "examples" / "tutorial.py").read_text()
    assert program == "\n".join(pieces)
    (tmp_path / "tutorial.py").write_text(program)
    expected = ".*".join(map(re.escape, said.split("...")))
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "tutorial.py"],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert re.fullmatch(expected, done.stdout), done.stdout


@pytest.mark.parametrize("page", having("sql postgresql"), ids=lambda page: page.name)
def test_what_one_would_write_by_hand(page: Path, new_database: NewDatabase) -> None:
    url = make_url(new_database("postgresql").url).set(drivername="postgresql")
    with psycopg.connect(url.render_as_string(False), autocommit=True) as connection:
        for block in blocks(page, "sql postgresql"):
            connection.execute(block)


@pytest.mark.parametrize("page", having("console"), ids=lambda page: page.name)
def test_commands(page: Path, tmp_path: Path) -> None:
    """Each command is run on the embedded default, a given --url replaced by a SQLite file."""
    env = {**os.environ, "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path)}
    env.pop("DBLOCK_URL", None)
    (tmp_path / "backup.sh").write_text("#!/bin/sh\n")
    (tmp_path / "backup.sh").chmod(0o755)
    url = f"sqlite:///{tmp_path}/other.db"
    upgrade(url)
    for block in blocks(page, "console"):
        for line in block.splitlines():
            assert line.startswith("$ "), line
            for command in line[2:].split("#")[0].split("&&"):
                command = command.strip()
                if command.startswith(ELSEWHERE) or "pytest" in command:
                    continue
                command = re.sub(r"--url \S+", f"--url {url}", command)
                command = re.sub(r"DBLOCK_URL=\S+", f"DBLOCK_URL={url}", command)
                command = re.sub(r"\bdblock ", f"{shlex.quote(sys.executable)} -m dblock ", command)
                command = command.replace(
                    "alembic ", f"{sys.executable} -m alembic -c {ROOT}/alembic.ini "
                )
                done = subprocess.run(
                    command, shell=True, env=env, cwd=tmp_path, capture_output=True, text=True
                )
                # They say by 1 that nobody holds it, or that it has not run, which is so here.
                allowed = {0, 1} if re.search(r"dblock (show|release|runs)", command) else {0}
                assert done.returncode in allowed, f"{command}\n{done.stdout}{done.stderr}"
                assert "Traceback" not in done.stderr


def test_the_commands_that_find_tests() -> None:
    """They start no server, so each is run as it is on the page."""
    (block,) = blocks(ROOT / "CONTRIBUTING.md", "console find")
    for line in block.splitlines():
        command = line.removeprefix("$ ").replace("python ", f"{shlex.quote(sys.executable)} ")
        done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), command
        assert len(done.stdout.splitlines()) > 1, command


def test_the_page_that_finds_tests_has_each_folder() -> None:
    folders = {file.parent.name for file in (ROOT / "tests").glob("*/__init__.py")}
    page = (ROOT / "CONTRIBUTING.md").read_text()
    (table,) = re.findall(r"^\| folder of `tests/` .*?\n\n", page, re.DOTALL | re.MULTILINE)
    assert {folder for folder in folders if f"`{folder}/`" not in table} == set()


@pytest.mark.parametrize("page", [*PAGES, *FRAMEWORKS, *OTHERS], ids=lambda page: page.name)
def test_links(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_exit_codes_in_the_readme_are_the_programs() -> None:
    readme = (ROOT / "README.md").read_text()
    assert f"with {exits.BUSY} when" in readme
    assert f"{exits.UNAVAILABLE} when the database cannot be reached" in readme
