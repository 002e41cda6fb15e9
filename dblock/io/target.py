"""From the user's URL or Engine to an engine and its dialect, before any I/O; and its address.

dblock connects to a :class:`File` without SQLAlchemy, whose import takes longer than everything
else that the command line does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ..arguments import check_flag, check_identifier
from ..dialects import ADAPTERS, DIALECTS, Adapter, Dialect
from ..errors import Unsupported
from ..policy import Timeouts

if TYPE_CHECKING:
    from sqlalchemy.engine import URL, Engine

    Target = str | URL | Engine


class File:
    """A database that is a file. It takes the place of an engine, which is made only when it is
    needed."""

    def __init__(self, connect: Callable[[], Any], create: Callable[[], Engine]) -> None:
        #: Makes a driver's connection, as the engine would.
        self.connect = connect
        self._create = create

    @cached_property
    def engine(self) -> Engine:
        return self._create()


def engine_of(source: Engine | File) -> Engine:
    """Return an engine that connects to the same database."""
    return source.engine if isinstance(source, File) else source


def locate(
    target: Target, *, timeouts: Timeouts, schema: str | None, prefix: str, trust_server: bool
) -> tuple[Engine | File, Dialect]:
    """As :func:`resolve`, but this creates an engine only if the driver needs one to connect."""
    engine = partial(
        resolve,
        target,
        timeouts=timeouts,
        schema=schema,
        prefix=prefix,
        trust_server=trust_server,
    )
    backend = target.partition(":")[0].partition("+")[0] if isinstance(target, str) else ""
    if not isinstance(target, str) or backend not in DIALECTS:
        return engine()
    kind = DIALECTS[backend]
    adapter = kind.driver(timeouts, trust_server)
    connect = adapter.plain(target)
    if connect is None:
        return engine()
    _check(schema, prefix, trust_server)
    return File(connect, lambda: engine()[0]), kind(schema, prefix, timeouts, adapter)


class Drivers(NamedTuple):
    """How threads, or asyncio, connect: the adapters of the supported databases, and the maker of
    an engine from a URL; None is SQLAlchemy's ``create_engine``."""

    adapters: Mapping[str, type[Adapter]] = ADAPTERS
    create: Callable[..., Engine] | None = None

    def engine(self, given: Engine | URL, dialect: Dialect, driver: str) -> Engine:
        """Return an engine for dblock's own connections. Raises Unsupported without their
        driver."""
        from sqlalchemy import create_engine
        from sqlalchemy.engine import URL
        from sqlalchemy.exc import NoSuchModuleError

        adapter, create = dialect.adapter, self.create or create_engine
        try:
            if isinstance(given, URL) and driver in adapter.drivers:
                made = create(given, connect_args=_connect_args(dialect, given))
            else:
                from .own_engine import engine_like

                made = engine_like(given, adapter, driver, create)
            adapter.bound_connecting(made)
            return made
        except (ModuleNotFoundError, NoSuchModuleError) as error:
            own, url = adapter.drivers[0], given if isinstance(given, URL) else given.url
            extra = adapter.extras.get(url.get_backend_name())
            beside = "" if driver in adapter.drivers else f", which dblock needs beside {driver},"
            raise Unsupported(
                f"the driver {own}{beside} is not installed ({error}): "
                f"pip install 'dblock[{extra}]'"
            ) from error


def resolve(
    target: Target,
    *,
    timeouts: Timeouts,
    schema: str | None,
    prefix: str,
    trust_server: bool = False,
    drivers: Drivers = Drivers(),  # noqa: B008 - it is immutable
    any_loop: bool = False,
) -> tuple[Engine, Dialect]:
    """Return the engine to use and the dialect that speaks to it.

    If a lent engine has the driver of dblock's own connections, it is used as it is. For an engine
    with another driver, this creates an engine that connects to the same database. With
    ``any_loop`` an asyncio engine may go with ``drivers`` that are not asyncio's, and the other way
    round.

    Raises ValueError for a text that is not a database URL, TypeError for a target that is neither
    URL nor Engine, Unsupported for a database or driver that dblock does not support, or a driver
    that is not installed.
    """
    from sqlalchemy.engine import Engine

    _check(schema, prefix, trust_server)

    def speak(kind: type[Dialect], adapter: type[Adapter], url: URL) -> Dialect:
        _refuse_memory(kind, url)
        return kind(schema, prefix, timeouts, adapter(timeouts, trust_server))

    if not isinstance(target, Engine):
        url, kind, adapter = _read(target, drivers.adapters)
        dialect = speak(kind, adapter, url)
        return drivers.engine(url, dialect, url.get_driver_name()), dialect
    there = target.dialect
    kind, adapter = choose(drivers.adapters, there.name, there.driver)
    if there.is_async != adapter.is_async and not any_loop:
        raise Unsupported(
            "this engine is an asyncio one's: give that to dblock.aio.AsyncLocks"
            if there.is_async
            else "this engine is not an asyncio one: give it to dblock.Locks"
        )
    dialect = speak(kind, adapter, target.url)
    if there.driver in adapter.drivers and there.is_async == adapter.is_async:
        return target, dialect
    return drivers.engine(target, dialect, there.driver), dialect


def _read(
    target: str | URL, adapters: Mapping[str, type[Adapter]]
) -> tuple[URL, type[Dialect], type[Adapter]]:
    """Return the URL of a database, with the name of a driver, and the classes that speak to it."""
    from sqlalchemy.engine import URL, make_url
    from sqlalchemy.exc import ArgumentError

    if not isinstance(target, str | URL):
        hint = ""
        if type(target).__name__ == "AsyncEngine":
            hint = "; for asyncio give it to dblock.aio.AsyncLocks, or its .sync_engine's URL here"
        raise TypeError(
            f"a database is given as a URL or an SQLAlchemy Engine, not "
            f"{type(target).__name__}{hint}"
        )
    if isinstance(target, str):
        _refuse_open_at(target)
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
    kind, adapter = choose(adapters, backend, driver)
    return url.set(drivername=f"{backend}+{driver or adapter.drivers[0]}"), kind, adapter


# As SQLAlchemy reads a URL: the password ends at the first @.
_BEHIND_PASSWORD = re.compile(r"[\w+]+://[^:/]*:[^@]*@(.*)", re.DOTALL)


def _refuse_open_at(url: str) -> None:
    """Refuse a URL whose password may contain an @: the rest of the password would count as the
    host, and dblock would show it."""
    found = _BEHIND_PASSWORD.match(url)
    if found is not None and "@" in found[1]:
        raise ValueError(
            "this database URL has an @ too many: write %40 for an @ in the password, and for any "
            "behind it"
        )


def _check(schema: str | None, prefix: str, trust_server: bool) -> None:
    if schema is not None:
        check_identifier("schema", schema)
    check_identifier("prefix", prefix)
    check_flag("trust_server", trust_server)


def _connect_args(dialect: Dialect, url: URL) -> dict[str, Any]:
    """Return the timeouts' arguments that the URL does not set itself."""
    ours = dialect.adapter.connect_args()
    return {key: value for key, value in ours.items() if key not in url.query}


def choose(
    adapters: Mapping[str, type[Adapter]], backend: str, driver: str
) -> tuple[type[Dialect], type[Adapter]]:
    """Return the dialect and the adapter of the database that SQLAlchemy calls ``backend``.

    Raises Unsupported for an unknown database, or for a ``driver`` that its adapter does not know.
    """
    # The database with that name comes first, so that the others are not imported.
    for name in sorted(adapters, key=lambda name: name != backend):
        kind = DIALECTS[name]
        if backend in kind.backends:
            adapter = adapters[name]
            if driver and driver not in adapter.carried:
                extra = adapter.extras.get(backend)
                raise Unsupported(
                    f"dblock does not know the driver {driver}, but {', '.join(adapter.carried)}: "
                    f"use {backend}+{adapter.drivers[0]}://..."
                    + (f" (pip install 'dblock[{extra}]')" if extra else "")
                )
            return kind, adapter
    raise Unsupported(
        f"dblock does not know the database {backend!r}; it works on "
        "postgresql (pip install 'dblock[postgresql]'), mariadb (pip install 'dblock[mariadb]'), "
        "mysql (pip install 'dblock[mysql]') and sqlite (built in)"
    )


def _refuse_memory(kind: type[Dialect], url: URL) -> None:
    database = url.database or ":memory:"
    in_memory = database in (":memory:", "file:") or database.startswith("file::memory:")
    if kind.traits.one_writer and (in_memory or url.query.get("mode") == "memory"):
        raise Unsupported(
            "an SQLite database in memory is seen by one connection only, so nothing would be "
            "locked; give a file: sqlite:////path/to/file"
        )


# The keys in a URL's query that say where the database is. Any other key may hold a secret.
WHERE = ("host", "port", "dbname", "service", "unix_socket")


def address(url: str | URL, schema: str | None = None, prefix: str = "dblock_") -> str:
    """Return a URL without its secrets, and the schema and prefix of the tables.

    A text must be a URL that :func:`locate` has accepted.
    """
    within = [f"schema {schema}"] if schema is not None else []
    within += [f"prefix {prefix}"] if prefix != "dblock_" else []
    return ", ".join([_shown(url), *within])


def _shown(url: str | URL) -> str:
    if isinstance(url, str):
        if url.startswith("sqlite:"):  # a file's URL is read without importing SQLAlchemy
            return url.partition("?")[0]
        from sqlalchemy.engine import make_url

        url = make_url(url)
    shown = url.set(query={key: url.query[key] for key in WHERE if key in url.query})
    return shown._replace(password=None).render_as_string()
