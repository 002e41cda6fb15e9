"""From what the user gives, a URL or an Engine, to an engine and its dialect, before any I/O."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import create_engine
from sqlalchemy.engine import URL, Engine, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from .arguments import check_flag, check_identifier
from .dialects import DIALECTS, Dialect
from .errors import Unsupported
from .timeouts import Timeouts

Target = str | URL | Engine


def resolve(
    target: Target,
    *,
    timeouts: Timeouts,
    schema: str | None,
    prefix: str,
    trust_server: bool = False,
    dialects: Mapping[str, type[Dialect]] = DIALECTS,
    create: Callable[..., Engine] = create_engine,
) -> tuple[Engine, Dialect]:
    """Return the engine to use and the dialect that speaks to it.

    ``dialects`` are those to choose from, ``create`` makes an engine from a URL.

    Raises ValueError for what is no database URL, TypeError for what is neither URL nor Engine,
    Unsupported for a database or driver dblock does not speak to, or one that is not installed.
    """
    if schema is not None:
        check_identifier("schema", schema)
    check_identifier("prefix", prefix)
    check_flag("trust_server", trust_server)
    if isinstance(target, Engine):
        kind = _dialect_class(dialects, target.dialect.name, target.dialect.driver)
        if target.dialect.is_async != kind.is_async:
            raise Unsupported(
                "this engine is an asyncio one's: give that to dblock.aio.AsyncLocks"
                if target.dialect.is_async
                else "this engine is not an asyncio one: give it to dblock.Locks"
            )
        _refuse_memory(kind, target.url)
        return target, _dialect(kind, schema, prefix, timeouts, trust_server)
    if not isinstance(target, str | URL):
        hint = ""
        if type(target).__name__ == "AsyncEngine":
            hint = "; for asyncio give it to dblock.aio.AsyncLocks, or its .sync_engine's URL here"
        raise TypeError(
            f"a database is given as a URL or an SQLAlchemy Engine, not "
            f"{type(target).__name__}{hint}"
        )
    try:
        url = make_url(target)
    except (ArgumentError, ValueError):  # ValueError: a port that is no number
        raise ValueError(
            "this is not a database URL; one looks like "
            "postgresql://user:password@host/database or sqlite:////path/to/file"
        ) from None
    backend, _, driver = url.drivername.partition("+")
    if backend == "postgres":
        backend = "postgresql"
    kind = _dialect_class(dialects, backend, driver)
    _refuse_memory(kind, url)
    url = url.set(drivername=f"{backend}+{driver or kind.drivers[0]}")
    dialect = _dialect(kind, schema, prefix, timeouts, trust_server)
    try:
        return create(url, connect_args=_connect_args(dialect, url)), dialect
    except (ModuleNotFoundError, NoSuchModuleError) as error:
        raise Unsupported(
            f"the driver for {url.drivername} is not installed ({error}): "
            f"pip install 'dblock[{kind.extra}]'"
        ) from error


def _dialect(
    kind: type[Dialect], schema: str | None, prefix: str, timeouts: Timeouts, trust_server: bool
) -> Dialect:
    made = kind(schema, prefix, timeouts)
    made.trust_server = trust_server
    return made


def _connect_args(dialect: Dialect, url: URL) -> dict[str, Any]:
    """Return the timeouts' arguments, without those the URL sets itself."""
    ours = dialect.connect_args(dialect.timeouts)
    return {key: value for key, value in ours.items() if key not in url.query}


def _dialect_class(
    dialects: Mapping[str, type[Dialect]], backend: str, driver: str
) -> type[Dialect]:
    for kind in dialects.values():
        if backend in kind.backends:
            if driver and driver not in kind.drivers:
                raise Unsupported(
                    f"dblock speaks to {kind.name} through {' or '.join(kind.drivers)}, not "
                    f"{driver}: use {backend}+{kind.drivers[0]}://..."
                    + (f" (pip install 'dblock[{kind.extra}]')" if kind.extra else "")
                )
            return kind
    raise Unsupported(
        f"dblock does not know the database {backend!r}; it works on "
        "postgresql (pip install 'dblock[postgresql]'), mariadb (pip install 'dblock[mariadb]') "
        "and sqlite (built in)"
    )


def _refuse_memory(kind: type[Dialect], url: URL) -> None:
    database = url.database or ":memory:"
    in_memory = database in (":memory:", "file:") or database.startswith("file::memory:")
    if kind.name == DIALECTS["sqlite"].name and (in_memory or url.query.get("mode") == "memory"):
        raise Unsupported(
            "an SQLite database in memory is seen by one connection only, so nothing would be "
            "locked; give a file: sqlite:////path/to/file"
        )
