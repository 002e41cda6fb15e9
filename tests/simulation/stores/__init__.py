"""The databases of the simulation: real ones, whose clocks are virtual."""

from __future__ import annotations

from tests.simulation.store import Store
from tests.simulation.stores.mariadb import MariaDBStore
from tests.simulation.stores.sqlite import SQLiteStore

STORES: dict[str, type[Store]] = {
    "sqlite": SQLiteStore,
    "mariadb": MariaDBStore,
}
