"""Which of the mutants the simulation kills by itself: ``python -m tests.simulation.teeth``.

Each mutant is planted in memory, in a process forked before dblock was imported, so that it costs
no more than importing dblock.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import multiprocessing
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from tests.simulation.folder import prepared

ROOT = Path(__file__).parents[2]


class Planted(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module of dblock from another text than its file has."""

    def __init__(self, file: str, text: str) -> None:
        path = Path(file).with_suffix("")
        parts = path.parent.parts if path.name == "__init__" else path.parts
        self._name = ".".join(parts)
        self._file = file
        self._text = text

    def find_spec(
        self, name: str, path: object = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._name:
            return None
        package = self._file.endswith("__init__.py")
        return importlib.util.spec_from_loader(name, self, is_package=package)

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = str(ROOT / self._file)
        exec(compile(self._text, module.__file__, "exec"), module.__dict__)


class Task(NamedTuple):
    """What to do about a mutant."""

    name: str
    file: str
    text: str
    #: The schedule that has killed it before.
    line: str | None
    #: Where else to look for one: on these stores, for so many seconds.
    stores: list[str] | None
    seconds: float


class Verdict(NamedTuple):
    """What became of a mutant: the line that kills it, or None."""

    name: str
    line: str | None
    seconds: float


def attempt(task: Task) -> Verdict:
    """See whether a mutant dies; in a process of its own."""
    sys.meta_path.insert(0, Planted(task.file, task.text))
    began = time.monotonic()
    try:
        line = _kill(task, began)
    except Exception as error:  # it cannot even be imported, or set up
        line = None
        print(f"{task.name}: {type(error).__name__}: {error}", file=sys.stderr)
    return Verdict(task.name, line, time.monotonic() - began)


def _kill(task: Task, began: float) -> str | None:
    from tests.simulation.explore import Bounds, Search
    from tests.simulation.exploring import line, replay, store_of
    from tests.simulation.scenarios import SCENARIOS
    from tests.simulation.stores import HAS, STORES

    if task.line is not None and replay(task.line).violation is not None:
        return task.line
    until = began + task.seconds
    searches = [
        (name, store, Search(scenario, store_of(store)))
        for name, scenario in SCENARIOS.items()
        for store in task.stores or STORES
        if scenario.needs <= HAS[store]
    ]
    for bounds in (Bounds(0, 0, 0), Bounds(0, 1, 1), Bounds(1, 0, 1)):
        for scenario, store, search in searches:
            if time.monotonic() < until:
                search.exhaust(bounds, goes_on=lambda: time.monotonic() < until)
            if search.failures:
                return line(store, scenario, search.shrink(search.failures[0]))
    return None


#: A line for each mutant that dies: its name, and the schedule that it does not survive.
LINES = Path(__file__).with_name("teeth.txt")
#: What dblock stands on, imported once for all.
_GROUND = (
    *("sqlalchemy", "sqlalchemy.orm", "sqlalchemy.dialects.sqlite", "alembic.command"),
    *("sqlalchemy.dialects.postgresql.psycopg", "sqlalchemy.dialects.mysql.pymysql"),
    *("psycopg", "pymysql", "greenlet", "tenacity", "sqlite3", "tests.mutants.catalogue"),
)


def read_lines() -> dict[str, str]:
    if not LINES.exists():
        return {}
    found = (text.split(": ", 1) for text in LINES.read_text().splitlines())
    return dict(found)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.teeth", description=__doc__)
    parser.add_argument("-k", metavar="NAME", default="", help="only mutants with this in the name")
    parser.add_argument("-j", metavar="N", type=int, default=2, help="so many at a time")
    parser.add_argument("--store", action="append", help="search on these only")
    parser.add_argument(
        "--search", type=float, metavar="S", help="look for a schedule, so many seconds a mutant"
    )
    options = parser.parse_args(arguments)
    for name in _GROUND:
        importlib.import_module(name)
    from tests.mutants.catalogue import CATALOGUE
    from tests.mutants.code import Code

    code, lines = Code(ROOT), read_lines()
    tasks = [
        Task(
            mutant.name,
            *mutant.plant(code),
            lines.get(mutant.name),
            options.store,
            options.search or 0.0,
        )
        for mutant in CATALOGUE
        if options.k in mutant.name and (options.search or mutant.name in lines)
    ]
    began = time.monotonic()
    survivors = []
    with (
        prepared(),
        multiprocessing.get_context("fork").Pool(options.j, maxtasksperchild=1) as pool,
    ):
        for name, line, seconds in pool.imap_unordered(attempt, tasks, 1):
            print(f"{'killed' if line else 'SURVIVED':9} {name} ({seconds:.1f} s) {line or ''}")
            lines.pop(name, None)
            if line is None:
                survivors.append(name)
            else:
                lines[name] = line
            if options.search:
                LINES.write_text("".join(f"{one}: {lines[one]}\n" for one in sorted(lines)))
    took = time.monotonic() - began
    print(f"{len(tasks) - len(survivors)} of {len(tasks)} mutants were killed in {took:.0f} s.")
    return 1 if survivors and not options.search else 0


if __name__ == "__main__":
    sys.exit(main())
