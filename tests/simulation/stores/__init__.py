"""The databases of the simulation: real ones, whose clocks are virtual."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from tests.simulation.store import Store
from tests.simulation.stores.mariadb import MariaDBStore
from tests.simulation.stores.model import ModelStore
from tests.simulation.stores.mysql import MySQLStore
from tests.simulation.stores.postgresql import PostgreSQLStore
from tests.simulation.stores.postgresql_server import SimulatedServer
from tests.simulation.stores.sqlite import SQLiteStore


@cache
def _postgresql() -> SimulatedServer:
    """Return the server of this process: a clock is a server's."""
    server = SimulatedServer()
    server.start()
    return server


def _on_postgresql(folder: Path, *, volatile: bool = False, pooled: bool = False) -> Store:
    return PostgreSQLStore(_postgresql(), volatile=volatile, pooled=pooled)


#: What makes each store of a process, with a folder for its files.
STORES: dict[str, Callable[[Path], Store]] = {
    "sqlite": SQLiteStore,
    "model": ModelStore,
    "postgresql": _on_postgresql,
    "postgresql-volatile": partial(_on_postgresql, volatile=True),
    "postgresql-pooled": partial(_on_postgresql, pooled=True),
    "mariadb": MariaDBStore,
    "mysql": MySQLStore,
}
#: What each has beside leases and row locks: see :attr:`.Store.has`.
HAS = {
    "sqlite": SQLiteStore.has,
    "model": ModelStore.has,
    "postgresql": PostgreSQLStore.has,
    "postgresql-volatile": PostgreSQLStore.has,
    "postgresql-pooled": PostgreSQLStore.has - {"calls"},
    "mariadb": MariaDBStore.has,
    "mysql": MySQLStore.has,
}


def prepare(folder: Path) -> None:
    """Make what stores of all processes begin with."""
    SQLiteStore.prepare(folder)
