"""Flask, Flask-SQLAlchemy and Flask-Migrate: docs/flask.md, in an empty directory."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import create_engine, inspect

from dblock import Locks
from tests.conftest import NewDatabase
from tests.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "flask.md"
FLASK = "flask --app shop "


class Project:
    def __init__(self, directory: Path, url: str) -> None:
        self.directory = directory
        self.url = url
        (block,) = blocks(PAGE, "python")
        (directory / "shop.py").write_text(block)
        (directory / "backup.sh").write_text("#!/bin/sh\necho backed up\n")
        (directory / "backup.sh").chmod(0o755)

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *arguments],
            cwd=self.directory,
            env={**os.environ, "DATABASE_URL": self.url},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{arguments}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def follow(self) -> dict[str, str]:
        """Run all commands of the page; return what each said."""
        lines = [line[2:] for block in blocks(PAGE, "console") for line in block.splitlines()]
        install, *rest = lines
        assert install.startswith("pip install ")
        return {line.removeprefix(FLASK): self.run(*shlex.split(line)) for line in rest}

    def tables(self) -> set[str]:
        engine = create_engine(self.url)
        names = set(inspect(engine).get_table_names())
        engine.dispose()
        return names


@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_the_page_word_for_word(new_database: NewDatabase, tmp_path: Path, kind: str) -> None:
    project = Project(tmp_path, new_database(kind).url)
    said = project.follow()
    assert list(said)[:4] == ["dblock upgrade", "db init", "db migrate -m orders", "db upgrade"]
    assert "backed up" in said["dblock run nightly -- ./backup.sh"]
    assert "dblock_" not in said["db migrate -m orders"]
    (revision,) = (tmp_path / "migrations" / "versions").glob("*.py")
    upgrade = revision.read_text().partition("def downgrade")[0]
    assert "create_table('order'" in upgrade
    assert "drop" not in upgrade
    assert {"order", "dblock_lock", "dblock_version"} <= project.tables()

    again = project.run("flask", "--app", "shop", "db", "migrate", "-m", "nothing")
    assert "No changes in schema detected" in again
    project.run("flask", "--app", "shop", "db", "check")
    assert "upgrade" in project.run("flask", "--app", "shop", "dblock", "--help")
    with Locks(project.url) as locks:
        run = locks.last_run("nightly")
        assert run is not None
        assert run.exit_status == 0
