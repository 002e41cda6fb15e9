"""Which of the mutants the simulation kills by itself: ``python -m tests.simulation.teeth``.

Each mutant is planted in memory, in a process forked before dblock was imported, so that it costs
no more than importing dblock. Its ``dies_in`` is the schedule that it does not survive: a search
writes it. A mutant that no schedule can show says why, as ``beyond``: no search looks for it.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import multiprocessing
import re
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from types import ModuleType
from typing import NamedTuple

from tests.mutants.code import Code
from tests.mutants.mutant import Mutant
from tests.mutants.recording import record
from tests.simulation.folder import prepared
from tests.simulation.reached import ROOT, Reaching, about, dump, explore, load

#: Seconds after which a mutant goes round in circles.
HANGS = 15.0
#: And after which it does so while its store is made, which may be a server.
SET_UP = 120.0
#: Seconds of one search at random.
PIECE = 5.0


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
        file = ROOT / self._file
        within = [str(file.parent)] if file.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(
            name, file, loader=self, submodule_search_locations=within
        )

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
    #: Where else to look for one, for so many seconds: in these schedules, and then at random.
    lines: list[str]
    seconds: float


class Verdict(NamedTuple):
    """What became of a mutant: the line that kills it, or None."""

    name: str
    line: str | None
    seconds: float


def attempt(task: Task) -> Verdict:
    """See whether a mutant dies; in a process of its own."""
    sys.meta_path.insert(0, Planted(task.file, task.text))
    signal.signal(signal.SIGALRM, _give_up)
    signal.setitimer(signal.ITIMER_REAL, SET_UP, 1.0)
    began = time.monotonic()
    try:
        there = _set_up(task)
        signal.setitimer(signal.ITIMER_REAL, task.seconds + HANGS, 1.0)
        began = time.monotonic()
        line = _kill(task, began) if there else task.line
    except Exception as error:  # it cannot even be imported, or set up
        line = None
        print(f"{task.name}: {type(error).__name__}: {error}", file=sys.stderr)
    return Verdict(task.name, line, time.monotonic() - began)


def _set_up(task: Task) -> bool:
    """Make the store of the schedule that has killed the mutant before.

    False if dblock refuses to: that kills the mutant too.
    """
    from dblock.errors import DBLockError
    from tests.simulation.exploring import store_of

    if task.line is not None:
        try:
            store_of(task.line.split()[0])
        except DBLockError:
            return False
    return True


def _give_up(*args: object) -> None:
    """End a run that does not by itself."""
    raise TimeoutError("it goes on and on")


def _kill(task: Task, began: float) -> str | None:
    if task.line is not None and fails(task.line):
        return task.line
    until = began + task.seconds
    for line in task.lines:
        if time.monotonic() > until:
            return None
        if fails(line):
            return _shortest(line)
    return _at_random(task, until)


def fails(line: str) -> bool:
    """Whether a schedule fails: without a mutant that is a defect, or a check that is wrong.

    So does one whose store cannot even be set up, where dblock refuses to.
    """
    from dblock.errors import DBLockError
    from tests.simulation.exploring import replay

    try:
        return replay(line).violation is not None
    except DBLockError:
        return True


def _shortest(line: str) -> str:
    """Return a line that fails with as few changes as still fail."""
    from tests.simulation.explore import Search
    from tests.simulation.exploring import line as line_of
    from tests.simulation.exploring import replay, store_of
    from tests.simulation.scenarios import SCENARIOS

    store, scenario = line.partition(":")[0].split()
    if line.endswith(":"):
        return line
    search = Search(SCENARIOS[scenario], store_of(store))
    return line_of(store, scenario, search.shrink(replay(line)))


def _at_random(task: Task, until: float) -> str | None:
    """Look in schedules of several changes, of the scenarios that reach it."""
    from tests.simulation.explore import Search
    from tests.simulation.exploring import line, store_of
    from tests.simulation.scenarios import SCENARIOS

    random = Random(task.name)
    places = sorted({one.partition(":")[0] for one in task.lines})
    while places and time.monotonic() < until:
        store, scenario = random.choice(places).split()
        search = Search(SCENARIOS[scenario], store_of(store))
        search.wander(random, _before(min(time.monotonic() + PIECE, until)))
        if search.failures:
            return line(store, scenario, search.shrink(search.failures[0]))
    return None


def _before(moment: float) -> Callable[[], bool]:
    return lambda: time.monotonic() < moment


#: What dblock stands on, imported once for all.
_GROUND = (
    *("sqlalchemy", "sqlalchemy.orm", "sqlalchemy.dialects.sqlite", "alembic.command"),
    *("sqlalchemy.dialects.postgresql.psycopg", "sqlalchemy.dialects.mysql.pymysql"),
    *("psycopg", "pymysql", "greenlet", "tenacity", "sqlite3", "tests.mutants.catalogue"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.teeth", description=__doc__)
    parser.add_argument(
        "-k", metavar="NAME", default="", help="only mutants with such names: a pattern"
    )
    parser.add_argument(
        "--in", dest="within", default="", help="only those in such files: a pattern"
    )
    parser.add_argument("-j", metavar="N", type=int, default=2, help="so many at a time")
    parser.add_argument("--store", action="append", help="search on these only")
    parser.add_argument(
        "--search",
        type=float,
        metavar="S",
        help="look for a schedule, so many seconds a mutant, and write it into the mutant's source",
    )
    parser.add_argument(
        "--explore",
        type=float,
        metavar="S",
        default=60.0,
        help="before a search: see what schedules reach, so many seconds on each store",
    )
    parser.add_argument("--reached", type=Path, metavar="FILE", help="keeps what was seen so")
    options = parser.parse_args(arguments)
    for name in _GROUND:
        importlib.import_module(name)
    from tests.mutants.catalogue import CATALOGUE

    code, fork = Code(ROOT), multiprocessing.get_context("fork")
    began, survivors = time.monotonic(), []
    chosen = {
        mutant.name: mutant
        for mutant in CATALOGUE
        if re.search(options.k, mutant.name)
        and re.search(options.within, code.find(mutant.where)[0].file)
        and (mutant.dies_in or (options.search and not mutant.beyond))
    }
    with prepared():
        known = _known(options) if options.search else []
        tasks = (_task(mutant, code, known, options.search) for mutant in chosen.values())
        with fork.Pool(options.j, maxtasksperchild=1) as pool, fork.Pool(1) as without:
            for name, line, seconds in pool.imap_unordered(attempt, tasks, 1):
                word = "killed" if line else "SURVIVED"
                if line and without.apply(fails, (line,)):
                    word, line = f"FAILS WITHOUT {line}", None
                print(f"{word:9} {name} ({seconds:.1f} s) {line or ''}", flush=True)
                if line is None:
                    survivors.append(name)
                if options.search and line != chosen[name].dies_in:
                    record(name, line)
    took = time.monotonic() - began
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} mutants were killed in {took:.0f} s.")
    return 1 if survivors and not options.search else 0


def _known(options: argparse.Namespace) -> list[Reaching]:
    """Return what schedules reach, as a process without a mutant has seen it."""
    if options.reached and options.reached.exists():
        return load(options.reached)
    stores = options.store or ["sqlite", "model"]
    with multiprocessing.get_context("fork").Pool(1) as pool:
        known = pool.apply(explore, (stores, options.explore))
    if options.reached:
        dump(known, options.reached)
    return known


def _task(
    mutant: Mutant,
    code: Code,
    known: Sequence[Reaching],
    seconds: float | None,
) -> Task:
    file, text = mutant.plant(code)
    return Task(mutant.name, file, text, mutant.dies_in, about(file, text, known), seconds or 0.0)


if __name__ == "__main__":
    sys.exit(main())
