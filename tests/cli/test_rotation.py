"""The password in a file with the URL changes while a command runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from dblock import Locks
from tests.cli.conftest import Program, Running
from tests.conftest import Database, NewDatabase, OwnServers, new_name
from tests.servers import PostgreSQL, execute
from tests.support import eventually

FIRST, SECOND = "First-of-the-tests-1", "Second-of-the-tests-2"
TTL = 9.0


@dataclass
class Account:
    """A role that has to give its password."""

    db: Database
    role: str
    file: Path

    def url(self, password: str) -> str:
        url = make_url(self.db.url).set(username=self.role, password=password)
        return url.render_as_string(hide_password=False)

    def write(self, text: str) -> None:
        """Put another text in the file's place, all of it at once."""
        new = self.file.with_name("new")
        new.write_text(f"{text}\n")
        new.chmod(0o600)
        new.rename(self.file)

    def change(self, password: str) -> None:
        how = "PASSWORD" if self.db.kind == "postgresql" else "IDENTIFIED BY"
        execute(self.db.url, f"ALTER {self.kind} {self.role} {how} '{password}'")

    @property
    def kind(self) -> str:
        return "ROLE" if self.db.kind == "postgresql" else "USER"

    def cut(self) -> None:
        """End all connections of the role."""
        if self.db.kind == "postgresql":
            end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = "
            execute(self.db.url, f"{end}'{self.role}'")
        else:
            execute(self.db.url, f"KILL CONNECTION USER {self.role}")

    def renewed(self, since: object) -> Callable[[], bool]:
        def renewed() -> bool:
            with Locks(self.db.url) as locks:
                return locks.show("nightly").expires_at != since

        return renewed


@pytest.fixture(params=["postgresql", "mariadb"])
def account(
    request: pytest.FixtureRequest,
    own_server: OwnServers,
    new_database: NewDatabase,
    tmp_path: Path,
) -> Iterator[Account]:
    role = new_name()[:30]
    if request.param == "postgresql":
        server = own_server(lambda: PostgreSQL())
        db = new_database("postgresql", migrated=True, server=server)
        hba = server.data / "pg_hba.conf"
        hba.write_text(f"host all {role} all scram-sha-256\n{hba.read_text()}")
        execute(
            db.url,
            "SELECT pg_reload_conf()",
            f"CREATE ROLE {role} LOGIN PASSWORD '{FIRST}'",
            f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}",
        )
    else:
        db = new_database("mariadb", migrated=True)
        execute(
            db.url,
            f"CREATE USER {role} IDENTIFIED BY '{FIRST}'",
            f"GRANT ALL ON {make_url(db.url).database}.* TO {role}",
        )
    account = Account(db, role, tmp_path / "url")
    account.write(account.url(FIRST))
    yield account
    if db.kind == "mariadb":
        execute(db.url, f"DROP USER {role}")


def started(program: Program, account: Account, how: str) -> Running:
    options = ["--ttl", str(TTL)]
    if how == "option":
        options += ["--url-file", str(account.file)]
    else:
        program.environment["DBLOCK_URL_FILE"] = str(account.file)
    return program.holder("nightly", *options)


def expiry(account: Account) -> object:
    with Locks(account.db.url) as locks:
        return locks.show("nightly").expires_at


@pytest.mark.parametrize("how", ["option", "variable"])
def test_a_new_password_in_the_file_is_used_for_the_next_connection(
    program: Program, account: Account, how: str
) -> None:
    holder = started(program, account, how)
    account.change(SECOND)
    account.write(account.url(SECOND))
    account.cut()
    since = expiry(account)
    eventually(account.renewed(since))
    assert holder.finish() == (0, "", "")


def test_a_file_that_cannot_be_used_for_a_moment_is_told(
    program: Program, account: Account
) -> None:
    """dblock goes on trying, and the lock is kept if the file is right again in time."""
    holder = started(program, account, "option")
    stderr = holder.process.stderr
    assert stderr is not None
    account.file.rename(account.file.with_name("away"))
    account.cut()
    assert stderr.readline().endswith(f"{account.file}: No such file or directory\n")
    account.write(account.url(FIRST).replace("127.0.0.1", "127.0.0.2"))
    assert "names another database than at the start" in (line := stderr.readline())
    assert FIRST not in line
    account.write(account.url(FIRST))
    since = expiry(account)
    eventually(account.renewed(since))
    assert holder.finish() == (0, "", "")


def test_a_password_of_another_driver_is_read_anew(program: Program, account: Account) -> None:
    """dblock connects with its own driver, to what the URL of the other one names."""
    other = "psycopg2" if account.db.kind == "postgresql" else "mysqldb"
    url = make_url(account.url(FIRST))

    def of_other(password: str) -> str:
        named = url.set(drivername=f"{url.get_backend_name()}+{other}", password=password)
        return named.render_as_string(hide_password=False)

    account.write(of_other(FIRST))
    holder = started(program, account, "option")
    account.change(SECOND)
    account.write(of_other(SECOND))
    account.cut()
    eventually(account.renewed(expiry(account)))
    assert holder.finish() == (0, "", "")
