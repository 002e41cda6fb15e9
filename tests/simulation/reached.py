"""Which statements of dblock a schedule reaches: a mutant that is not reached is not killed.

Statements of functions are marked in memory, as they are imported. Whoever marks does so in a
process of its own, before dblock is imported.
"""

from __future__ import annotations

import ast
import builtins
import difflib
import pickle
import sys
import time
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from random import Random
from types import CodeType
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = "dblock"
#: Their statements' text is made once, and kept: what reaches them later is not seen.
_KEPT = f"{PACKAGE}/dialects/"

#: A statement: a file as seen from the root, and its first line.
Place = tuple[str, int]


class Reaching(NamedTuple):
    """A schedule, as one line, and what it reaches."""

    line: str
    places: frozenset[Place]


class _Marked(SourceFileLoader):
    """Imports a module that tells each statement of its functions before it is carried out."""

    def get_code(self, fullname: str) -> CodeType:
        tree = ast.parse(Path(self.path).read_text())
        file = str(Path(self.path).relative_to(ROOT))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for statements in _suites(node):
                    statements[:] = list(_told(statements, file))
        code: CodeType = compile(ast.fix_missing_locations(tree), self.path, "exec")
        return code


class _Marking(PathFinder):
    """Finds the modules of dblock for :class:`_Marked`."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: Any = None
    ) -> ModuleSpec | None:
        spec = super().find_spec(fullname, path, target)
        ours = fullname.split(".")[0] == PACKAGE
        if ours and spec is not None and (spec.origin or "").endswith(".py"):
            assert spec.origin is not None
            spec.loader = _Marked(fullname, spec.origin)
        return spec


def _suites(function: ast.AST) -> Iterator[list[ast.stmt]]:
    """The statements of a function, in lists of those that follow each other."""
    for name in ("body", "orelse", "finalbody"):
        statements = getattr(function, name, None)
        if isinstance(statements, list) and statements and isinstance(statements[0], ast.stmt):
            yield statements
            for one in statements:
                if not isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    yield from _suites(one)
    for inner in (*getattr(function, "handlers", ()), *getattr(function, "cases", ())):
        yield from _suites(inner)


def _told(statements: list[ast.stmt], file: str) -> Iterator[ast.stmt]:
    for one in statements:
        place = ast.Tuple([ast.Constant(file), ast.Constant(one.lineno)], ast.Load())
        call = ast.Call(ast.Name("__reached__", ast.Load()), [place], [])
        if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)):
            yield ast.copy_location(ast.Expr(call), one)
        yield one


def explore(stores: Sequence[str], seconds: float) -> list[Reaching]:
    """Try schedules of no or one change, so many seconds on each store; in a process of its own.

    Those that are told apart by what happens in them or by what they reach are returned.
    """
    reached: set[Place] = set()
    vars(builtins)["__reached__"] = reached.add
    sys.meta_path.insert(0, _Marking)
    from tests.simulation.explore import Search, deviations, faults
    from tests.simulation.exploring import line, store_of
    from tests.simulation.scenarios import SCENARIOS
    from tests.simulation.schedule import Schedule
    from tests.simulation.stores import HAS

    found, random = [], Random(1)
    for name in stores:
        store = store_of(name)
        chosen = {key: one for key, one in SCENARIOS.items() if one.needs <= HAS[name]}
        until, left = time.monotonic() + seconds, len(chosen)
        for key, scenario in chosen.items():
            search = Search(scenario, store)
            plain, _ = search.run(Schedule())
            changes = [*deviations(plain), *faults(plain, more=store.faults)]
            random.shuffle(changes)
            end = time.monotonic() + max(0.0, until - time.monotonic()) / left
            left -= 1
            known = set()
            for schedule in (Schedule(), *(Schedule().plus(*change) for change in changes)):
                reached.clear()
                outcome, _ = search.run(schedule)
                if (about := (outcome.story, frozenset(reached))) not in known:
                    known.add(about)
                    found.append(Reaching(line(name, key, outcome), about[1]))
                if time.monotonic() > end:
                    break
    random.shuffle(found)
    found.sort(key=lambda one: not one.line.endswith(":"))  # those without a change at first
    return found


def dump(found: Sequence[Reaching], file: Path) -> None:
    """Keep them for another time."""
    file.write_bytes(pickle.dumps(list(found)))


def load(file: Path) -> list[Reaching]:
    """Return what :func:`dump` has kept."""
    found: list[Reaching] = pickle.loads(file.read_bytes())
    return found


def about(file: str, text: str, known: Sequence[Reaching]) -> list[str]:
    """The schedules that reach what is another in a file; all, where that cannot be known."""
    before = (ROOT / file).read_text()
    places = {(file, line) for line in _others(before, text)}
    reaching = [one.line for one in known if one.places & places]
    kept = file.startswith(_KEPT) or not reaching
    return [one.line for one in known] if kept else reaching


def _others(before: str, after: str) -> Iterator[int]:
    """The first lines of the statements that are others."""
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    statements = [node for node in ast.walk(ast.parse(before)) if isinstance(node, ast.stmt)]
    for tag, first, last, _, _ in matcher.get_opcodes():
        if tag == "equal":
            continue
        for number in range(first + 1, max(last, first + 1) + 1):
            around = [one for one in statements if one.lineno <= number <= (one.end_lineno or 0)]
            if around:
                yield max(one.lineno for one in around)
