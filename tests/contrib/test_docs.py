"""The snippets of the frameworks' pages and of Alembic's files, each in a project of its kind."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from dblock import Locks
from tests.conftest import NewDatabase
from tests.contrib.project import Project
from tests.test_docs import ROOT, blocks


def page(name: str) -> Path:
    return ROOT / "docs" / name


def commands(name: str) -> list[list[str]]:
    """The arguments of a page's commands, without the program that they are given to."""
    lines = [line[2:] for block in blocks(page(name), "console") for line in block.splitlines()]
    program = re.compile(r"(python manage\.py|flask --app shop) ")
    return [shlex.split(program.sub("", line)) for line in lines if program.match(line)]


def test_flask(new_database: NewDatabase, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    database = new_database("postgresql", migrated=True)
    monkeypatch.setenv("DATABASE_URL", database.url)
    names: dict[str, Any] = {"__name__": "shop"}
    (block,) = blocks(page("flask.md"), "python")
    exec(compile(block, "flask.md", "exec"), names)
    config: dict[str, Any] = {}
    (block,) = blocks(page("flask.md"), "python config")
    exec(compile(block, "flask.md", "exec"), config)
    app = names["create_app"](config["Production"])
    client = app.test_client()
    with Locks(database.url) as others, others.lease("report", ttl=60):
        assert client.post("/report").status_code == 409
    assert client.post("/report").text == "report number 2"
    assert client.post("/orders/42/charge").text == "charged"
    (tmp_path / "backup.sh").write_text("#!/bin/sh\n")
    (tmp_path / "backup.sh").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    *_, list_, run = commands("flask.md")  # those before are run in tests/projects
    # `run` handles signals, so it is tried for its arguments only.
    assert app.test_cli_runner().invoke(args=list_).exit_code == 0
    assert app.test_cli_runner().invoke(args=[*run[:3], "--help"]).exit_code == 0
    (block,) = blocks(page("flask.md"), "python kinds")
    exec(compile(block, "flask.md", "exec"), names)
    with app.app_context():
        names["nightly"]()
        names["figures"]()
        names["figures"]()
        names["locks"].locks.close()
        names["db"].engine.dispose()


def test_alembic(new_database: NewDatabase, tmp_path: Path) -> None:
    """The line for env.py, the hook, and the revision."""
    project = Project(tmp_path, new_database("postgresql").url)
    locked, hook = blocks(page("migrations.md"), "python env.py")
    assert "context.configure(connection=connection" in hook
    env = project.directory / "migrations" / "env.py"
    plain = env.read_text()
    body = (locked + "\n" + hook).split("\n")
    imports = [line for line in body if line.startswith("from ")]
    run = [line for line in locked.splitlines() if line and line not in imports]
    configure = next(line for line in body if line.startswith("context.configure"))
    start = plain.index("    context.configure")
    env.write_text(
        "\n".join(imports)
        + "\n"
        + plain[:start]
        + f"    {configure}\n"
        + "\n".join(f"    {line}" for line in run)
        + "\n"
    )
    (revision,) = blocks(page("migrations.md"), "python revision")
    head = 'from alembic import op\nrevision = "locks"\ndown_revision = None\n'
    (project.versions / "locks.py").write_text(head + revision)
    project.alembic("upgrade", "head")
    with Locks(project.url) as locks, locks.lease("a", wait=0):
        pass
    assert "No new upgrade operations" in project.alembic("check")
    project.alembic("downgrade", "base")
