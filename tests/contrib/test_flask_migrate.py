"""Flask-Migrate beside the extension: what autogenerate writes down, and `flask dblock upgrade`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import flask_migrate
import pytest
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import Column, Integer, inspect, text

from dblock.contrib.flask import DBLock
from dblock.schema import tables
from tests.conftest import NewDatabase

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # its env.py's own


class Site:
    """An application with one table of its own, and one in its database that it does not know."""

    def __init__(self, directory: Path, url: str, **config: Any) -> None:
        self.directory = str(directory / "migrations")
        self.app = Flask("shop")
        self.app.config.update(config, SQLALCHEMY_DATABASE_URI=url)
        self.db = SQLAlchemy()
        self.db.init_app(self.app)
        self.db.Table("order", Column("id", Integer, primary_key=True))
        self.locks = DBLock()

    def set_up(self, first: str = "migrate", **options: Any) -> None:
        if first == "dblock":
            self.locks.init_app(self.app)
        flask_migrate.Migrate(self.app, self.db, directory=self.directory, **options)
        if first != "dblock":
            self.locks.init_app(self.app)
        upgraded = self.app.test_cli_runner().invoke(args=["dblock", "upgrade"])
        assert upgraded.exit_code == 0
        assert upgraded.output.startswith("created ")
        with self.app.app_context():
            flask_migrate.init(self.directory)
            with self.db.engine.begin() as connection:
                connection.execute(text("CREATE TABLE strange (id INTEGER)"))

    def migrate(self) -> str:
        """Let a revision be written; return what it does."""
        with self.app.app_context():
            flask_migrate.migrate(self.directory)
        (revision,) = Path(self.directory, "versions").glob("*.py")
        return revision.read_text().partition("def downgrade")[0]

    def close(self) -> None:
        with self.app.app_context():
            self.locks.locks.close()
            for engine in self.db.engines.values():
                engine.dispose()


@pytest.fixture
def sites(
    new_database: NewDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    # It would turn off the loggers of other tests.
    monkeypatch.setattr("logging.config.fileConfig", lambda *arguments, **options: None)
    made: list[Site] = []

    def make(kind: str = "sqlite", **config: Any) -> Site:
        made.append(Site(tmp_path, new_database(kind).url, **config))
        return made[-1]

    yield make
    for site in made:
        site.close()


@pytest.mark.parametrize("order", ["before", "after"])
def test_autogenerate_leaves_our_tables_alone(sites: Any, order: str) -> None:
    site = sites()
    site.set_up("dblock" if order == "before" else "migrate")
    written = site.migrate()
    assert "create_table('order'" in written
    assert "drop_table('strange')" in written  # the user's own matter
    assert "dblock" not in written


def test_autogenerate_asks_the_users_own_filters(sites: Any) -> None:
    site = sites()
    site.set_up(
        include_name=lambda name, kind, parents: name != "strange",
        include_object=lambda object, name, kind, reflected, other: name != "order",
    )
    with site.app.app_context():
        flask_migrate.migrate(site.directory)
    assert not list(Path(site.directory, "versions").glob("*.py"))  # no changes at all


def test_a_filter_in_env_py_is_the_users_alone(sites: Any) -> None:
    """Given beside the arguments that Flask-Migrate passes on, two would be an error."""
    site = sites()
    site.set_up()
    env = Path(site.directory, "env.py")
    before = "            **conf_args\n"
    assert before in env.read_text()
    own = f"            include_name=leave_ours(),\n{before}"
    written = f"from dblock.schema import leave_ours\n{env.read_text().replace(before, own)}"
    env.write_text(written)
    assert "dblock" not in site.migrate().partition("def upgrade")[2]


def test_tables_that_the_models_have_are_compared(sites: Any) -> None:
    site = sites()
    tables(site.db.metadata)
    site.set_up()
    written = site.migrate()
    assert "create_table('dblock" not in written
    assert "drop_table('dblock_lock" not in written


@pytest.mark.parametrize("schema", ["public", "elsewhere"])
def test_wherever_they_are(sites: Any, schema: str) -> None:
    site = sites("postgresql", DBLOCK_SCHEMA=schema, DBLOCK_PREFIX="my_")
    with site.app.app_context(), site.db.engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA IF NOT EXISTS {schema}"))
    site.set_up(include_schemas=True)
    with site.app.app_context():
        assert inspect(site.db.engine).has_table("my_lock", schema)
    written = site.migrate()
    assert "create_table('order'" in written
    assert "my_" not in written


def test_upgrade_and_downgrade(sites: Any) -> None:
    site = sites(DBLOCK_PREFIX="my_")
    site.set_up()
    runner = site.app.test_cli_runner()
    with site.app.app_context():
        with site.locks.lease("a", wait=0):
            pass
        assert (
            "CREATE TABLE IF NOT EXISTS my_lock"
            in runner.invoke(args=["dblock", "upgrade", "--sql"]).output
        )
        assert runner.invoke(args=["dblock", "downgrade", "--revision", "base"]).exit_code != 0
        args = ["dblock", "downgrade", "--revision", "base", "--yes"]
        assert runner.invoke(args=args).exit_code == 0
        assert not inspect(site.db.engine).has_table("my_lock")
    assert "--url" not in runner.invoke(args=["dblock", "downgrade", "--help"]).output
