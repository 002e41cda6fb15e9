"""Plain Alembic: docs/migrations.md, in what `alembic init` writes."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect

from dblock import Locks
from tests.conftest import NewDatabase
from tests.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "migrations.md"

SHOP = """\
from sqlalchemy import Column, Integer, MetaData, Table

metadata = MetaData()
order = Table("order", metadata, Column("id", Integer, primary_key=True))
"""

each = pytest.mark.parametrize("kind", ["sqlite", "postgresql", "mysql"])


def installed(site: Path) -> Path:
    """Return a directory with dblock as a wheel has it: the migrations are in the package."""
    package = site / "dblock"
    package.mkdir(parents=True)
    for part in (*(ROOT / "dblock").iterdir(), ROOT / "migrations"):
        (package / part.name).symlink_to(part)
    return site


class Project:
    """A project that has been begun as Alembic's own tutorial says."""

    def __init__(self, directory: Path, url: str) -> None:
        self.directory = directory
        self.url = url
        self.site = installed(directory / "site")
        (directory / "shop.py").write_text(SHOP)
        self.run("alembic", "init", "migrations")
        self.change("alembic.ini", r"^sqlalchemy\.url = .*", f"sqlalchemy.url = {url}")
        models = "from shop import metadata\ntarget_metadata = metadata"
        self.change("migrations/env.py", r"^target_metadata = None", models)

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=self.directory,
            env={**os.environ, "DBLOCK_URL": self.url, "PYTHONPATH": str(self.site)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def change(self, file: str, pattern: str, new: str) -> None:
        path = self.directory / file
        text, number = re.subn(pattern, lambda _: new, path.read_text(), flags=re.MULTILINE)
        assert number == 1, f"{number} of {pattern} in {file}"
        path.write_text(text)

    def change_env(self) -> None:
        """Put the page's lines in the place of those that they are like."""
        for block in blocks(PAGE, "python env.py"):
            lines = block.splitlines()
            imported = next(line for line in lines if line.startswith("from dblock"))
            self.change("migrations/env.py", r"\A", f"{imported}\n")
            changed = next(line for line in lines if line.startswith(("with", "context.con")))
            if changed.startswith("with"):
                pattern = (
                    r"^        with context\.begin_transaction\(\):\n(?=            .*\n+^if )"
                )
                self.change("migrations/env.py", pattern, f"        {changed}\n")
            else:
                pattern = r"^        context\.configure\(\s+connection=[^)]*\)"
                self.change("migrations/env.py", pattern, f"        {changed}")

    def revise(self, message: str) -> str:
        """Let Alembic write a revision; return the part of it that upgrades."""
        said = self.run("alembic", "revision", "--autogenerate", "-m", message)
        (file,) = (self.directory / "migrations" / "versions").glob(f"*_{message}.py")
        assert "dblock_" not in said.replace(str(self.directory), "")
        return file.read_text().partition("def downgrade")[0]

    def head(self, message: str) -> str:
        (file,) = (self.directory / "migrations" / "versions").glob(f"*_{message}.py")
        return file.name.partition("_")[0]

    def tables(self) -> set[str]:
        engine = create_engine(self.url)
        names = set(inspect(engine).get_table_names())
        engine.dispose()
        return names

    def works(self) -> bool:
        with Locks(self.url) as locks, locks.lease("a", wait=0) as lease:
            return lease.held


@each
def test_tables_beside_the_project(new_database: NewDatabase, tmp_path: Path, kind: str) -> None:
    project = Project(tmp_path, new_database(kind).url)
    project.change_env()
    project.run("dblock", "upgrade")
    orders = project.revise("orders")
    assert "create_table('order'" in orders
    assert "drop" not in orders
    project.run("alembic", "upgrade", "heads")
    assert {"order", "dblock_lock", "dblock_version"} <= project.tables()
    project.run("alembic", "check")
    assert "drop" not in project.revise("nothing")
    assert project.works()


@each
def test_tables_in_the_history(new_database: NewDatabase, tmp_path: Path, kind: str) -> None:
    project = Project(tmp_path, new_database(kind).url)
    project.change_env()
    project.revise("orders")
    project.run("alembic", "upgrade", "heads")
    (ini,) = blocks(PAGE, "ini")
    for option in ("script_location", "path_separator"):  # which it gives itself
        project.change("alembic.ini", rf"^{option} = .*\n", "")
    project.change("alembic.ini", r"^\[alembic\]\n", ini)
    project.run("alembic", "upgrade", "heads")
    (merge,) = re.findall(r"`(alembic merge [^`]*)`", PAGE.read_text())
    project.run(*shlex.split(merge.replace("<your head>", project.head("orders"))))
    project.run("alembic", "upgrade", "heads")
    assert project.run("alembic", "heads").count("(head)") == 1
    project.run("alembic", "check")
    assert {"order", "dblock_lock"} <= project.tables()
    assert project.works()
