"""The asyncio drivers: how to send a statement and how to close a connection."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, TypeVar

from ..dialects import Adapter
from ..dialects.adapter import Answer, Send
from ..dialects.answer_deadline import ended_after, in_loop
from ..dialects.mariadb.adapter import MULTI_STATEMENTS_ON, SET_OPTION, PyMySQL
from ..dialects.packets import CommitFailed
from ..dialects.postgresql.adapter import Psycopg
from ..dialects.postgresql.sender import Sender
from ..dialects.query import Query
from ..dialects.sqlite.adapter import FileSender, SQLite3
from .bridge import answer, await_, check, leave, ready

T = TypeVar("T")


class TaskSender(Sender):
    """Sends for tasks. A task is cancelled between statements, or while one waits for others."""

    def cancel(self, within: float, piped: bool = False) -> None:
        """Do nothing: the KeyboardInterrupt has ended the event loop, which does the waiting."""


class AsyncPsycopg(Psycopg):
    """psycopg's AsyncConnection. Only the waiting differs from the sync one."""

    is_async = True
    drivers: ClassVar[tuple[str, ...]] = ("psycopg", "psycopg_async")

    def sender(self, connection: Any) -> Send:
        return TaskSender(connection, partial(ready, connection.fileno())).send

    def has_rows(self, cursor: Any) -> bool:
        return (
            cursor.description is not None
        )  # SQLAlchemy's cursor, which shows no result of libpq's

    def set_autocommit(self, connection: Any) -> None:
        await_(connection.set_autocommit(True))

    def close(self, connection: Any) -> None:
        _at_once(connection.close())


class AsyncMy(PyMySQL):
    """asyncmy. Its read timeout cannot be changed later, so dblock limits the wait itself."""

    is_async = True
    drivers: ClassVar[tuple[str, ...]] = ("asyncmy",)
    package = "asyncmy"
    extras: ClassVar[Mapping[str, str]] = {"mariadb": "mariadb-async", "mysql": "mysql-async"}

    def connect_args(self) -> dict[str, Any]:
        creator = partial(_connect_mysql, self.timeouts.connect)
        return {"async_creator_fn": creator, "program_name": "dblock"}

    def bound_connecting(self, engine: Any) -> None:
        """The function that connects does it."""

    def unbounded(self, connection: Any) -> list[str]:
        return []

    def bound_reads(self, connection: Any, seconds: float) -> None:
        pass

    @contextlib.contextmanager
    def bounded(
        self, connection: Any, patience: float | None, within: float | None
    ) -> Iterator[None]:
        with ended_after(within, connection.close, in_loop):
            yield

    def send(
        self, connection: Any, query: Query[Any], within: float | None = None, waits: bool = False
    ) -> Answer:
        within = self.timeouts.connect if within is None else within
        try:
            return answer(
                self._execute(connection.cursor(_quiet_cursor()), query),
                within=within,
                give_up=connection.close,
                waits=waits,
            )
        except TimeoutError as error:
            raise _lost(f"the server did not answer within {within:g} s") from error

    def send_packet(
        self, connection: Any, query: Query[Any], answers: Any, within: float, waits: bool
    ) -> None:
        try:
            answer(
                self._execute_all(connection.cursor(_quiet_cursor()), query, answers),
                within=within,
                give_up=connection.close,
                waits=waits,
            )
        except TimeoutError as error:
            raise _lost(f"the server did not answer within {within:g} s") from error

    async def _execute_all(self, making: Any, query: Query[Any], answers: Any) -> None:
        async with making as cursor:
            await cursor.execute(query.sql, query.params)
            answers.add(await cursor.fetchall() if cursor.description else (), cursor)
            while await cursor.nextset():
                answers.add(await cursor.fetchall() if cursor.description else (), cursor)

    def allow_packets(self, connection: Any) -> None:
        within = self.timeouts.connect
        try:
            answer(_allow_packets(connection), within=within, give_up=connection.close, waits=False)
        except TimeoutError as error:
            raise _lost(f"the server did not answer within {within:g} s") from error

    async def _execute(self, making: Any, query: Query[Any]) -> Answer:
        async with making as cursor:
            await cursor.execute(query.sql, query.params)
            rows = await cursor.fetchall() if cursor.description else self.told(cursor)
            return rows, cursor.rowcount

    def set_autocommit(self, connection: Any) -> None:
        await_(connection.autocommit(True))

    def close(self, connection: Any) -> None:
        try:
            here = asyncio.get_running_loop() is connection.loop
        except RuntimeError:
            here = False
        if here or connection.loop.is_closed():
            connection.close()
        else:  # a garbage collection comes in any thread
            connection.loop.call_soon_threadsafe(connection.close)

    def timed_out(self, error: BaseException) -> bool:
        if isinstance(error, CommitFailed) and error.__cause__ is not None:
            error = error.__cause__
        return super().timed_out(error) or isinstance(error.__cause__, TimeoutError)

    def is_usable(self, connection: Any) -> bool:
        return bool(connection.connected)


class AioSQLite(SQLite3):
    """aiosqlite. It has a thread for each connection, where the sync adapter's code runs."""

    is_async = True
    drivers: ClassVar[tuple[str, ...]] = ("aiosqlite",)
    package = "aiosqlite"
    extras: ClassVar[Mapping[str, str]] = {"sqlite": "sqlite-async"}
    # Nothing can interrupt a wait for the file's writer, so dblock waits in pieces.
    longest_wait = 0.5

    def send(
        self, connection: Any, query: Query[Any], within: float | None = None, waits: bool = False
    ) -> Answer:
        return _in_its_thread(connection, partial(super().send, connection._connection, query))

    def sender(self, connection: Any) -> Send:
        sender = FileSender(connection._connection)

        def send(query: Query[Any], within: float, waits: bool = False) -> Answer:
            return _in_its_thread(connection, partial(sender.send, query), waits)

        return send

    def set_autocommit(self, connection: Any) -> None:
        await_(connection._execute(super().set_autocommit, connection._connection))

    def close(self, connection: Any) -> None:
        closed = connection.stop()
        if closed is not None:
            leave(closed)

    def is_usable(self, connection: Any) -> bool:
        return connection._connection is not None

    def transaction_problem(self, connection: Any, locking: bool) -> str | None:
        if not self.is_usable(connection):
            return "its connection is closed"
        return super().transaction_problem(connection._connection, locking)

    def plain_of(self, connection: Any) -> Any:
        return connection._connection

    @contextlib.contextmanager
    def bounded(
        self, connection: Any, patience: float | None, within: float | None
    ) -> Iterator[None]:
        with super().bounded(connection, patience, within):
            check()
            yield


def _in_its_thread(connection: Any, call: Callable[[], T], waits: bool = False) -> T:
    """Run a function in the thread of an aiosqlite connection."""
    done: T = answer(connection._execute(call), give_up=lambda: None, waits=waits, after=0.0)
    return done


ASYNC_ADAPTERS: dict[str, type[Adapter]] = {
    "postgresql": AsyncPsycopg,
    "mariadb": AsyncMy,
    "mysql": AsyncMy,
    "sqlite": AioSQLite,
}


def _at_once(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine that does not wait, even if no event loop is running any more."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()


async def _connect_mysql(within: float, *args: Any, **options: Any) -> Any:
    import asyncmy

    for name in ("ssl_disabled", "write_timeout"):  # PyMySQL's: without TLS is the default here
        options.pop(name, None)
    try:
        async with asyncio.timeout(within):
            return await asyncmy.connect(*args, **options)
    except TimeoutError as error:
        raise _lost(f"no connection was made within {within:g} s", 2003) from error


def _lost(message: str, code: int = 2013) -> Exception:
    from asyncmy.errors import OperationalError

    error: Exception = OperationalError(code, message)
    return error


async def _allow_packets(connection: Any) -> None:
    await connection._execute_command(SET_OPTION, MULTI_STATEMENTS_ON)
    await connection.read_packet()


def _quiet_cursor() -> Any:
    """Return a cursor class that does not ask for the warnings of each statement."""
    global _quiet
    if _quiet is None:
        from asyncmy.cursors import Cursor

        async def _show_warnings(self: Any, connection: Any) -> None:
            pass

        _quiet = type("QuietCursor", (Cursor,), {"_show_warnings": _show_warnings})
    return _quiet


_quiet: Any = None
