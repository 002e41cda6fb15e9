"""An engine over an alias of DATABASES: it connects as Django does, with no second copy of what
that takes, and never over Django's own live connection."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from sqlalchemy import NullPool, create_engine
from sqlalchemy.engine import URL, Engine

from ...dialects import ADAPTERS, Adapter
from ...errors import Unsupported
from ...policy import Timeouts
from .drivers import driver_of

ALIAS = "dblock_alias"
IN_MEMORY = "is an SQLite database in memory, seen by one process, where nothing can be locked"


def engine(alias: str, timeouts: Timeouts) -> Engine:
    """Return an engine for dblock's own connections to a database of the settings."""
    wrapper = connections[alias]
    if wrapper.vendor not in _CONNECT:
        raise Unsupported(
            f"the database {alias!r} is {wrapper.vendor}: dblock works on PostgreSQL, MySQL, "
            'MariaDB and SQLite; name another one in DBLOCK = {"DATABASE": ...}'
        )
    drivername, dialect, connect = _CONNECT[wrapper.vendor]
    adapter = ADAPTERS[dialect](timeouts)
    # The settings are read again for each connection: a test run changes the database's name, an
    # application its password. A database in memory is refused at the first connection, not when a
    # module with a lock is imported.
    named = "memory" if in_memory(wrapper) else str(wrapper.settings_dict["NAME"] or "default")
    try:
        made = create_engine(
            URL.create(drivername, database=named),
            creator=lambda: connect(connections.create_connection(alias), adapter),
            poolclass=NullPool,  # dblock's Connections keep the idle ones, and can close them
        )
    except ModuleNotFoundError as error:
        extra = adapter.extras.get(wrapper.vendor)
        itself = " (Django itself uses psycopg 3 then)" if dialect == "postgresql" else ""
        raise Unsupported(
            f"the driver {adapter.drivers[0]}, which dblock's own connections need, is not "
            f"installed ({error}): pip install 'dblock[{extra}]'{itself}"
        ) from error
    made.update_execution_options(**{ALIAS: alias})
    return made


def alias_of(made: Engine) -> str:
    """Return the alias that an engine was made for."""
    alias: str = made.get_execution_options()[ALIAS]
    return alias


def in_memory(wrapper: BaseDatabaseWrapper) -> bool:
    """Whether this is SQLite without a file, the default of Django's tests."""
    sqlite: Any = wrapper
    return wrapper.vendor == "sqlite" and bool(sqlite.is_in_memory_db())


def _arguments(wrapper: BaseDatabaseWrapper, adapter: Adapter) -> dict[str, Any]:
    """Return Django's connection arguments, translated to dblock's own driver's."""
    params: dict[str, Any] = wrapper.get_connection_params()
    driver = driver_of(wrapper, adapter)
    if driver is not adapter:
        params = adapter.carried[driver.drivers[0]](params)
    return {**adapter.connect_args(), **params}


def _postgresql(wrapper: BaseDatabaseWrapper, adapter: Adapter) -> Any:
    import psycopg
    from psycopg import sql

    params = _arguments(wrapper, adapter)
    # Django's cursors and adapters are for its models; and it never prepares a statement.
    for name in ("cursor_factory", "context"):
        params.pop(name, None)
    options = wrapper.settings_dict["OPTIONS"]
    if "prepare_threshold" not in options:
        params.pop("prepare_threshold", None)
    connection = psycopg.connect(**params)
    if role := options.get("assume_role"):
        connection.autocommit = True
        connection.execute(sql.SQL("SET ROLE {}").format(sql.Identifier(role)))
    return connection


def _mysql(wrapper: BaseDatabaseWrapper, adapter: Adapter) -> Any:
    import pymysql
    from pymysql.constants import CLIENT

    from ...dialects.mariadb.adapter import PyMySQL

    params = {"client_flag": CLIENT.FOUND_ROWS, **_arguments(wrapper, adapter)}
    params.pop("conv", None)  # Django's conversions, of mysqlclient's types
    assert isinstance(adapter, PyMySQL)
    return adapter.connect_in_time(pymysql.connect, **params)


def _sqlite(wrapper: BaseDatabaseWrapper, adapter: Adapter) -> Any:
    if in_memory(wrapper):
        raise Unsupported(
            f"{wrapper.alias!r} {IN_MEMORY}; give a file, "
            'for tests in DATABASES[...]["TEST"]["NAME"]'
        )
    params = _arguments(wrapper, adapter)
    params.pop("detect_types", None)
    return sqlite3.connect(**params)


_CONNECT: dict[str, tuple[str, str, Callable[[BaseDatabaseWrapper, Adapter], Any]]] = {
    "postgresql": ("postgresql+psycopg", "postgresql", _postgresql),
    "mysql": ("mysql+pymysql", "mariadb", _mysql),
    "sqlite": ("sqlite+pysqlite", "sqlite", _sqlite),
}
