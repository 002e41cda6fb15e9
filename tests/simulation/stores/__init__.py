"""The databases of the simulation: real ones, whose clocks are virtual."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.simulation.store import Store
from tests.simulation.stores.sqlite import SQLiteStore

#: What makes each store, given a folder for its files.
STORES: dict[str, Callable[[Path], Store]] = {"sqlite": SQLiteStore}
