"""MySQL: each way to use dblock finds out what the server is, whatever the URL calls it."""

from __future__ import annotations

import asyncio
import os

import pytest
from flask import Flask
from sqlalchemy import MetaData, create_engine, make_url

from dblock import Locks, Unsupported, fencing
from dblock.aio import AsyncLocks
from dblock.contrib.flask import DBLock
from dblock.doctor import examine
from dblock.schema import downgrade, upgrade
from tests.aio.support import async_url
from tests.conftest import NewDatabase, new_name
from tests.databases.test_look_alikes import dblock
from tests.servers import Server, execute
from tests.support import LONG


@pytest.fixture
def real_mysql(new_database: NewDatabase) -> str:
    return new_database("mysql", migrated=True).url


def run_a_task(url: str) -> None:
    async def use() -> None:
        async with AsyncLocks(async_url(url)) as locks, locks.lease("a", wait=0):
            pass

    asyncio.run(use())


def lock_a_row(url: str) -> None:
    engine = create_engine(url)
    try:
        with Locks(url) as locks, engine.connect() as connection:
            locks.row("a", on=connection, wait=0).acquire()
    finally:
        engine.dispose()


def pass_a_gate(url: str) -> None:
    engine = create_engine(url)
    try:
        fencing.table(MetaData()).create(engine)
        with engine.connect() as connection:
            fencing.gate(connection, "report", 7)
    finally:
        engine.dispose()


def take_in_flask(url: str) -> None:
    app = Flask("shop")
    app.config["DBLOCK_URL"] = url
    locks = DBLock(app)
    with app.app_context():
        made = locks.locks
        try:
            locks.acquire("a", ttl=LONG, wait=0).release()
        finally:
            made.close()


def take(url: str) -> None:
    with Locks(url) as locks, locks.lease("a", wait=0):
        pass


def diagnose(url: str) -> None:
    with Locks(url) as locks:
        examine(locks)


ENTRIES = (
    take,
    run_a_task,
    lock_a_row,
    pass_a_gate,
    take_in_flask,
    diagnose,
    upgrade,
    downgrade,
)
ON_ITS_OWN = [entry for entry in ENTRIES if entry not in (lock_a_row, pass_a_gate)]


def test_mysql(real_mysql: str) -> None:
    for entry in ENTRIES:
        entry(real_mysql)


def test_mysql_by_mariadbs_name(real_mysql: str) -> None:
    """SQLAlchemy itself refuses it under that name, and the error says which name is right."""
    for entry in ON_ITS_OWN:
        with pytest.raises(Unsupported, match="a URL that begins with mysql"):
            entry(real_mysql.replace("mysql+", "mariadb+", 1))


def test_mysql_on_the_command_line(real_mysql: str) -> None:
    for arguments in (("run", "a", "--", "echo", "ran"), ("upgrade",), ("list",)):
        done = dblock(real_mysql, *arguments)
        assert done.returncode == os.EX_OK, done.stderr
    assert "server" in dblock(real_mysql, "doctor").stdout


def test_mysqls_usual_login(
    real_mysql: str, mysql: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without TLS the driver needs a package that it does not bring."""
    monkeypatch.setattr("pymysql._auth._have_cryptography", False)
    user = new_name()[:32]
    execute(mysql.url, f"CREATE USER {user} IDENTIFIED BY 'secret'")
    given = make_url(real_mysql).set(username=user, password="secret")
    url = given.update_query_dict({"ssl_disabled": "true"}).render_as_string(hide_password=False)
    try:
        for entry in (take, upgrade, take_in_flask):
            with pytest.raises(Unsupported, match=r"cannot log in.*pip install .dblock.mysql."):
                entry(url)
    finally:
        execute(mysql.url, f"DROP USER {user}")
