"""The extension in applications made by factories, several in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from inspect import isfunction
from pathlib import Path
from typing import Any

import flask_migrate
import pytest
from flask import Flask
from flask_sqlalchemy import SQLAlchemy
from sqlalchemy import Column, Integer, MetaData, Table, inspect

from dblock import Locks, NotAcquired, SchemaMissing
from dblock.contrib.flask import DBLock
from dblock.testing import Faults
from tests.conftest import KINDS, SERVERS, NewDatabase
from tests.contrib.project import HEAD
from tests.support import LONG, Threads

locks = DBLock()
db = SQLAlchemy()
Factory = Callable[..., Flask]


@locks.locked("nightly", wait=0)
def nightly() -> str:
    return locks.locks.show("nightly").owner or ""


@locks.skip("cleanup", ttl=LONG)
def cleanup(day: int) -> int:
    assert locks.locks.show("cleanup").held
    return day


@pytest.fixture
def create_app() -> Iterator[Factory]:
    with ExitStack() as stack:

        def create_app(url: str, name: str = "shop", alchemy: bool = True, **config: Any) -> Flask:
            app = Flask(name)
            app.config.update(config)
            if alchemy:
                app.config["SQLALCHEMY_DATABASE_URI"] = url
                db.init_app(app)
            else:
                app.config["DBLOCK_URL"] = url
            locks.init_app(app)

            @app.post("/report")
            def report() -> dict[str, Any]:
                lease = locks.acquire("report", ttl=LONG, wait=0)
                return {"fence": lease.fence}

            @app.errorhandler(NotAcquired)
            def busy(error: NotAcquired) -> tuple[str, int]:
                return str(error), 409

            def close() -> None:
                with app.app_context():
                    locks.locks.close()
                    for engine in db.engines.values() if alchemy else ():
                        engine.dispose()

            stack.callback(close)
            return app

        yield create_app


@pytest.mark.parametrize(
    ("kind", "alchemy"),
    [("mariadb", True), ("mysql", True), ("postgresql", False)],
    ids=["mariadb-flask-sqlalchemy", "mysql-flask-sqlalchemy", "postgresql-url"],
)
def test_a_request(
    new_database: NewDatabase, create_app: Factory, kind: str, alchemy: bool
) -> None:
    database = new_database(kind, migrated=True)
    app = create_app(database.url, alchemy=alchemy)
    client = app.test_client()
    assert client.post("/report").json == {"fence": 1}
    assert client.post("/report").json == {"fence": 2}  # given back with the first request's end
    with Locks(database.url, label="others") as others, others.lease("report", ttl=LONG):
        refused = client.post("/report")
        assert refused.status_code == 409
        assert "others" in refused.text


def test_a_handover(new_database: NewDatabase, create_app: Factory) -> None:
    """What was acquired for the request is not given back at its end."""
    database = new_database("postgresql", migrated=True)
    app = create_app(database.url)
    with app.app_context():
        text = locks.acquire("report", ttl=LONG, wait=0).detach()
    with app.app_context():
        assert locks.locks.show("report").held
        with locks.attach(text, ttl=LONG):
            pass
        assert not locks.locks.show("report").held


def test_an_election(new_database: NewDatabase, create_app: Factory) -> None:
    app = create_app(new_database("sqlite", migrated=True).url)
    with app.app_context(), locks.election("leader", ttl=LONG).campaign() as term:
        leader = locks.election("leader").leader()
        assert leader is not None
        assert leader.fence == term.fence


def test_all_kinds(new_database: NewDatabase, create_app: Factory) -> None:
    app = create_app(new_database("sqlite", migrated=True).url)
    table = Table("item", MetaData(), Column("id", Integer, primary_key=True), Column("n", Integer))
    with app.app_context():
        with locks.all(locks.lease("a", ttl=LONG), locks.lease("b", ttl=LONG), wait=0):
            assert [state.name for state in locks.locks.list()] == ["a", "b"]
        assert locks.detached("import").take(ttl=LONG).fence == 1

        @locks.cron("figures", once_per="day")
        def figures() -> str:
            return "new"

        assert [figures(), figures()] == ["new", None]
        table.create(db.session.connection())
        db.session.execute(table.insert().values(id=7, n=3))
        assert locks.counter(table.c.n, key=table.c.id).take(db.session, 7, 2)
        db.session.commit()
        for replayed in (False, True):
            with locks.once(db.session, "order:42") as call:
                assert call.replayed is replayed
                if not replayed:
                    call.result = {"id": 7}
            assert call.result == {"id": 7}
            db.session.commit()


def test_while_the_locks_are_a_tests(new_database: NewDatabase, create_app: Factory) -> None:
    """Counters and calls that are made once stay in the application's database."""
    app = create_app(new_database("sqlite", migrated=True).url)
    table = Table("item", MetaData(), Column("id", Integer, primary_key=True), Column("n", Integer))
    with app.app_context():
        table.create(db.session.connection())
        db.session.execute(table.insert().values(id=7, n=3))
        db.session.commit()
        with Faults() as faults:
            faults.instead_of(locks.locks)
            assert locks.counter(table.c.n, key=table.c.id).take(db.session, 7, 2)
            with locks.once(db.session, "order:42") as call:
                call.result = {"id": 7}
            db.session.commit()
        with locks.once(db.session, "order:42") as call:
            assert call.replayed


def test_every_maker_of_locks_is_there() -> None:
    made = {name for name, one in vars(Locks).items() if isfunction(one) and name[0] != "_"}
    assert made - {"close"} <= set(vars(DBLock))


def test_several_applications(new_database: NewDatabase, create_app: Factory) -> None:
    one = create_app(new_database("sqlite", migrated=True).url, "one")
    two = create_app(new_database("sqlite", migrated=True).url, "two", alchemy=False)
    for app in (one, two):
        with app.app_context():
            assert nightly().endswith(app.name)
    with one.app_context(), locks.semaphore("api", 2, ttl=LONG) as slot, two.app_context():
        assert slot.held
        assert locks.locks.list() == []
    with one.app_context(), locks.shared("nightly", ttl=LONG) as reader, two.app_context():
        assert reader.held
        assert locks.locks.list() == []
    with one.app_context(), locks.lease("nightly", ttl=LONG), two.app_context():
        assert nightly().endswith("two")  # another database's name
    with pytest.raises(RuntimeError, match="outside of application context"):
        nightly()
    with pytest.raises(RuntimeError, match="already"):
        locks.init_app(one)
    with Flask("bare").app_context(), pytest.raises(RuntimeError, match="not set up"):
        nightly()


def test_a_call_is_skipped_in_the_application_whose_lock_is_held(
    new_database: NewDatabase, create_app: Factory, caplog: pytest.LogCaptureFixture
) -> None:
    one = create_app(new_database("sqlite", migrated=True).url, "one")
    two = create_app(new_database("sqlite", migrated=True).url, "two", alchemy=False)
    with one.app_context():
        assert cleanup(1) == 1
        with locks.lease("cleanup", ttl=LONG), caplog.at_level("INFO", "dblock"):
            assert cleanup(2) is None
            with two.app_context():
                assert cleanup(3) == 3
        assert caplog.text.count("cleanup was skipped: 'cleanup' is held") == 1
        assert cleanup(4) == 4
    with pytest.raises(RuntimeError, match="outside of application context"):
        cleanup(5)


@pytest.mark.parametrize("decorator", [locks.locked, locks.skip])
@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"name": ""}, "name"),
        ({"ttl": -1}, "TTL"),
        ({"ttl": "60"}, "TTL"),
        ({"fair": "yes"}, "fair"),
        ({"label": "a\0"}, "label"),
        ({"max_hold": 0}, "max_hold"),
        ({"max_renewals": -1}, "max_renewals"),
        ({"on_lost": "call me"}, "on_lost"),
        ({"reentrant": True}, "reentrant"),
        ({"nothing_like_it": 1}, "nothing_like_it"),
    ],
)
def test_a_wrong_option_is_refused_where_the_function_is_decorated(
    decorator: Callable[..., object], wrong: dict[str, Any], named: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=named):
        decorator(**{"name": "nightly"} | wrong)


def test_a_wrong_wait_is_refused_where_the_function_is_decorated() -> None:
    with pytest.raises(ValueError, match="wait"):
        locks.locked("nightly", wait=-1)


def test_without_a_database() -> None:
    app = Flask("bare")
    locks.init_app(app)
    with app.app_context(), pytest.raises(RuntimeError, match="set DBLOCK_URL"):
        locks.lease("a")


@pytest.mark.parametrize(
    "config", [{"DBLOCK_URL": ""}, {"DBLOCK_URL": "  "}, {"DBLOCK_BIND_KEY": ""}]
)
def test_a_setting_that_is_set_but_empty_is_refused(
    create_app: Factory, new_database: NewDatabase, config: dict[str, str]
) -> None:
    """It names no database, and the default may be another one."""
    app = create_app(new_database("sqlite", migrated=True).url)
    app.config.update(config)
    with app.app_context():
        with pytest.raises(ValueError, match=next(iter(config))):
            locks.lease("a")
        del app.config[next(iter(config))]  # the fixture closes its locks


@pytest.mark.parametrize("kind", SERVERS)
def test_a_row_lock_in_the_session(
    new_database: NewDatabase, create_app: Factory, threads: Threads, kind: str
) -> None:
    database = new_database(kind, migrated=True)
    app = create_app(database.url)
    with app.app_context(), Locks(database.url) as others:
        with locks.row("order:42", on=db.session):
            pass
        assert not threads.run(others.row("order:42").acquire, False)
        db.session.commit()
        with others.row("order:42", wait=0):
            pass


@pytest.mark.parametrize("kind", ["mariadb", "mysql"])
def test_the_session_of_another_bind_on_the_same_server_locks_where_the_locks_are(
    new_database: NewDatabase, create_app: Factory, kind: str
) -> None:
    """A transaction is the server's there, and may lock rows in any of its databases."""
    shop, binds = new_database(kind, migrated=True), new_database(kind, migrated=True)
    app = create_app(shop.url, SQLALCHEMY_BINDS={"locks": binds.url}, DBLOCK_BIND_KEY="locks")
    with app.app_context(), Locks(binds.url) as others, Locks(shop.url) as elsewhere:
        assert locks.row("order", on=db.session).acquire()
        assert not others.lease("order").acquire(blocking=False)
        assert elsewhere.lease("order", wait=0).acquire()
        db.session.rollback()
        assert others.lease("order", wait=0).acquire()


@pytest.mark.parametrize("kind", ["postgresql", "sqlite"])
def test_the_session_of_another_bind_is_refused(
    new_database: NewDatabase, create_app: Factory, kind: str
) -> None:
    shop, binds = new_database(kind, migrated=True), new_database(kind, migrated=True)
    app = create_app(shop.url, SQLALCHEMY_BINDS={"locks": binds.url}, DBLOCK_BIND_KEY="locks")
    with app.app_context():
        with pytest.raises(ValueError, match="these locks are in"):
            locks.row("order", on=db.session).acquire()
        db.session.rollback()
        on = db.session.connection(bind_arguments={"bind": db.engines["locks"]})
        assert locks.row("order", on=on).acquire()
        assert not locks.locks.lease("order").acquire(blocking=False)
        db.session.rollback()


@pytest.mark.parametrize("kind", KINDS)
def test_tables_that_are_missing(new_database: NewDatabase, create_app: Factory, kind: str) -> None:
    app = create_app(new_database(kind).url)
    with app.app_context(), pytest.raises(SchemaMissing, match="`flask dblock upgrade`"):
        locks.lease("report").acquire()
    assert app.test_cli_runner().invoke(args=["dblock", "upgrade"]).exit_code == 0
    with app.app_context(), locks.lease("report"):
        pass


def test_the_commands(new_database: NewDatabase, create_app: Factory) -> None:
    database = new_database("sqlite", migrated=True)
    app = create_app(database.url)
    runner = app.test_cli_runner()
    assert runner.invoke(args=["dblock", "show", "nightly"]).exit_code == 1
    with Locks(database.url) as others:
        assert others.lease("nightly", ttl=LONG).acquire()
        listed = runner.invoke(args=["dblock", "list"])
        assert listed.exit_code == 0
        assert "nightly" in listed.output
        assert runner.invoke(args=["dblock", "release", "nightly", "--force"]).exit_code == 0
        assert not others.show("nightly").held
    assert "--url" not in runner.invoke(args=["dblock", "list", "--help"]).output


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # its own, of what its env.py uses
def test_flask_migrate(
    new_database: NewDatabase,
    create_app: Factory,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its env.py with the one line in it."""
    # It would turn off the loggers of other tests.
    monkeypatch.setattr("logging.config.fileConfig", lambda *arguments, **options: None)
    database = new_database("postgresql")
    app = create_app(database.url)
    directory = str(tmp_path / "migrations")
    flask_migrate.Migrate(app, db, directory=directory)
    with app.app_context():
        flask_migrate.init(directory)
        env = tmp_path / "migrations" / "env.py"
        run = "with context.begin_transaction():\n            context.run_migrations()"
        locked = f"with migration_lock(connection), {run.removeprefix('with ')}"
        text = env.read_text()
        assert run in text
        env.write_text(f"from dblock.schema import migration_lock\n{text.replace(run, locked)}")
        flask_migrate.revision(directory, message="locks")
        (revision,) = (tmp_path / "migrations" / "versions").glob("*.py")
        text = revision.read_text().replace(
            "def upgrade():\n    pass",
            f'def upgrade():\n    import dblock.schema\n    dblock.schema.create(op, "{HEAD}")',
        )
        assert "dblock" in text
        revision.write_text(text)
        flask_migrate.upgrade(directory)
        assert inspect(db.engine).has_table("dblock_lock")
        with locks.lease("a", wait=0):
            pass
