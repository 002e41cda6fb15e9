"""What the tests may ask of a server, and the servers that the environment gives."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, ClassVar, NoReturn, Self

from sqlalchemy import NullPool, create_engine, make_url


class ServerMissing(Exception):
    """This machine has no such server; the message is one line that says what to install."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name} tests skipped: {why}")


def missing(variable: str, otherwise: str) -> str:
    """Say why there is no server where the variable may name the folder of its programs."""
    folder = os.environ.get(variable)
    return f"{variable} has no server's programs in {folder}" if folder else otherwise


class ServerFailed(RuntimeError):
    """The server, or a program that sets it up, did not do what was asked."""


class NotOwned(RuntimeError):
    """The tests may use a given server's databases, but not stop or break the server."""


class Server(ABC):
    """A database server, or something that looks like one."""

    kind: ClassVar[str]
    owned = True

    @property
    @abstractmethod
    def url(self) -> str:
        """SQLAlchemy URL of the maintenance database."""

    def url_for(self, database: str) -> str:
        url = make_url(self.url).set(database=database)
        return url.render_as_string(hide_password=False)

    @abstractmethod
    def create_database(self, name: str, template: str | None = None) -> None: ...

    @abstractmethod
    def drop_database(self, name: str) -> None:
        """Drop the database if it exists, whoever is still connected to it."""

    @abstractmethod
    def start(self) -> None:
        """Start the server and wait until it answers; nothing to do if it runs."""

    @abstractmethod
    def stop(self) -> None:
        """Shut the server down cleanly."""

    @abstractmethod
    def kill(self) -> None:
        """Crash the server: SIGKILL to all its processes at once."""

    @abstractmethod
    def pause(self) -> None:
        """Freeze the server: it stays connected, accepts nothing, answers nothing."""

    @abstractmethod
    def resume(self) -> None:
        """Undo `pause`."""

    def settle(self) -> None:  # noqa: B027 - one server has nothing to wait for
        """Wait until it is whole, and all that was committed can be read at its URL."""

    def restart(self) -> None:
        self.stop()
        self.start()

    @abstractmethod
    def close(self) -> None:
        """End the server and delete its data."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class GivenServer(Server):
    """A running server that an environment variable names."""

    owned = False

    def __init__(self, variable: str, url: str, drivers: dict[str, str]) -> None:
        self.variable = variable
        parsed = make_url(url)
        driver = drivers.get(parsed.drivername, parsed.drivername)
        self._url = parsed.set(drivername=driver).render_as_string(hide_password=False)

    @property
    def url(self) -> str:
        return self._url

    def _refuse(self) -> NoReturn:
        raise NotOwned(f"the server of {self.variable} is not the tests' own to start or stop")

    def start(self) -> None:
        self._refuse()

    def stop(self) -> None:
        self._refuse()

    def kill(self) -> None:
        self._refuse()

    def pause(self) -> None:
        self._refuse()

    def resume(self) -> None:
        self._refuse()

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self


def execute(url: str, *statements: str, **connect_args: object) -> list[tuple[Any, ...]]:
    """Run statements, each in a transaction of its own; return the rows of the last one."""
    rows: list[tuple[Any, ...]] = []
    engine = create_engine(
        url, isolation_level="AUTOCOMMIT", poolclass=NullPool, connect_args=connect_args
    )
    with engine.connect() as connection:
        for statement in statements:
            result = connection.exec_driver_sql(statement)
            rows = [tuple(row) for row in result] if result.returns_rows else []
    return rows
