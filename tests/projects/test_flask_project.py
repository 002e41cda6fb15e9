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
from tests.support import SECONDS
from tests.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "flask.md"
FLASK = "flask --app shop "


class Project:
    def __init__(self, directory: Path, config: str, url: str = "") -> None:
        self.directory = directory
        self.environment = {"SHOP_CONFIG": f"config.{config}"}
        if url:
            self.environment["DATABASE_URL"] = url
        self.url = url or f"sqlite:///{directory}/instance/shop.db"
        for language, name in (("python", "shop.py"), ("python config", "config.py")):
            (block,) = blocks(PAGE, language)
            (directory / name).write_text(block)
        (directory / "backup.sh").write_text("#!/bin/sh\necho backed up\n")
        (directory / "backup.sh").chmod(0o755)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", *arguments],
            cwd=self.directory,
            env={**os.environ, **self.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def said(self, process: subprocess.Popen[str]) -> str:
        said, _ = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, f"{process.args!r}\n{said}"
        return said

    def run(self, *arguments: str) -> str:
        return self.said(self.start(*arguments))

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


@pytest.mark.parametrize("config", ["Testing", "Production"])
def test_the_page_word_for_word(
    request: pytest.FixtureRequest, tmp_path: Path, config: str
) -> None:
    url = ""
    if config == "Production":
        url = request.getfixturevalue("new_database")("postgresql").url
    project = Project(tmp_path, config, url)
    said = project.follow()
    assert list(said)[:4] == ["dblock upgrade", "db init", "db migrate -m orders", "db upgrade"]
    assert "backed up" in said["dblock run nightly -- ./backup.sh"]
    assert "dblock_" not in said["db migrate -m orders"]
    assert not any("connects without" in words for words in said.values())
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


def test_one_host_migrates(new_database: NewDatabase, tmp_path: Path) -> None:
    """With the page's lines in env.py, where Flask-Migrate's own are."""
    project = Project(tmp_path, "Production", new_database("postgresql").url)
    flask = shlex.split(FLASK)
    project.run(*flask, "db", "init")
    (block,) = blocks(PAGE, "python flask-env")
    first, *run = [line for line in block.splitlines() if line]
    env = tmp_path / "migrations" / "env.py"
    before, last = env.read_text().rsplit("        with context.begin_transaction()", 1)
    _, *rest = last.split("context.run_migrations()\n", 1)
    locked = "\n".join(f"        {line}" for line in run)
    env.write_text(f"{first}\n{before}{locked}\n{''.join(rest)}")
    project.run(*flask, "db", "migrate", "-m", "orders")
    hosts = [project.start(*flask, "db", "upgrade") for _ in range(3)]
    migrated = [project.said(host).count("Running upgrade") for host in hosts]
    assert sorted(migrated) == [0, 0, 1]
    assert "order" in project.tables()


def test_two_configurations(new_database: NewDatabase, tmp_path: Path) -> None:
    """Both applications in one process, each with locks of its own."""
    project = Project(tmp_path, "Production", new_database("postgresql", migrated=True).url)
    (tmp_path / "both.py").write_text(BOTH)
    project.run("flask", "--app", "shop:create_app('config.Testing')", "dblock", "upgrade")
    assert project.run("both").splitlines()[-1] == "[409, 200]"


BOTH = """
from shop import create_app, locks

apps = [create_app(), create_app("config.Testing")]
with apps[0].app_context():
    locks.acquire("report")
    print([app.test_client().post("/report").status_code for app in apps])
"""
