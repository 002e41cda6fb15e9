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

from ...dialects import ADAPTERS
from ...errors import Unsupported
from ...timeouts import Timeouts

ALIAS = "dblock_alias"
IN_MEMORY = "is an SQLite database in memory, seen by one process, where nothing can be locked"


def engine(alias: str, timeouts: Timeouts) -> Engine:
    """Return an engine for dblock's own connections to a database of the settings."""
    wrapper = connections[alias]
    if wrapper.vendor not in _CONNECT:
        raise Unsupported(
            f"the database {alias!r} is {wrapper.vendor}: dblock works on PostgreSQL, MariaDB and "
            'SQLite; name another one in DBLOCK = {"DATABASE": ...}'
        )
    drivername, dialect, connect = _CONNECT[wrapper.vendor]
    ours = ADAPTERS[dialect](timeouts).connect_args()
    # Read anew for each connection: a test-run changes the database's name, others a password.
    # One in memory is refused when connected to, not when a module with a lock is imported.
    named = "memory" if in_memory(wrapper) else str(wrapper.settings_dict["NAME"] or "default")
    made = create_engine(
        URL.create(drivername, database=named),
        creator=lambda: connect(connections.create_connection(alias), ours),
        poolclass=NullPool,  # what is idle is in dblock's own, where Django's end finds it
    )
    made.update_execution_options(**{ALIAS: alias})
    return made


def alias_of(made: Engine) -> str:
    """Return the alias that an engine was made for."""
    alias: str = made.get_execution_options()[ALIAS]
    return alias


def in_memory(wrapper: BaseDatabaseWrapper) -> bool:
    """Whether this is SQLite without a file, as Django's tests have it unless told."""
    sqlite: Any = wrapper
    return wrapper.vendor == "sqlite" and bool(sqlite.is_in_memory_db())


def _postgresql(wrapper: BaseDatabaseWrapper, ours: dict[str, Any]) -> Any:
    import psycopg
    from psycopg import sql

    params = {**ours, **wrapper.get_connection_params()}
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


def _mysql(wrapper: BaseDatabaseWrapper, ours: dict[str, Any]) -> Any:
    import pymysql

    params = {**ours, **wrapper.get_connection_params()}
    params.pop("conv", None)  # Django's conversions, of mysqlclient's types
    return pymysql.connect(**params)


def _sqlite(wrapper: BaseDatabaseWrapper, ours: dict[str, Any]) -> Any:
    if in_memory(wrapper):
        raise Unsupported(
            f"{wrapper.alias!r} {IN_MEMORY}; give a file, "
            'for tests in DATABASES[...]["TEST"]["NAME"]'
        )
    params = {**ours, **wrapper.get_connection_params()}
    params.pop("detect_types", None)
    return sqlite3.connect(**params)


_CONNECT: dict[str, tuple[str, str, Callable[[BaseDatabaseWrapper, dict[str, Any]], Any]]] = {
    "postgresql": ("postgresql+psycopg", "postgresql", _postgresql),
    "mysql": ("mysql+pymysql", "mariadb", _mysql),
    "sqlite": ("sqlite+pysqlite", "sqlite", _sqlite),
}
