"""The layout's rule: imports point one way, and the protocol does no I/O."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import dblock

PACKAGE = Path(dblock.__file__).parent

# From the ground up. A module imports modules of lower floors and of its own, also for its types
# alone: whoever has to know of another to be read depends on it.
FLOORS = [
    {"arguments", "decorating", "lock_state", "system"},
    {"errors", "formats", "policy"},
    {"events", "protocol"},
    {"dialects"},
    {"io"},
    {"conflicts", "holding", "schema"},
    {"counters", "fencing", "handles"},
    {"locks", "quorum"},
    {"__init__", "aio", "doctor"},
    {"cli", "testing"},
    {"contrib.http"},
    {"contrib.serve", "contrib.serve_commands"},
    {"contrib"},
    {"__main__"},
]


def floor(module: str) -> int:
    for number, modules in enumerate(FLOORS):
        if module in modules:
            return number
    raise AssertionError(f"dblock.{module} has no floor: put it on one in {__file__}")


def imports(path: Path) -> Iterator[tuple[str, str, bool]]:
    """What a file imports: the module, the name in it or "", and whether for its types alone."""
    package = ["dblock", *path.relative_to(PACKAGE).parent.parts]

    def visit(node: ast.AST, typing: bool) -> Iterator[tuple[str, str, bool]]:
        typing = typing or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
        if isinstance(node, ast.Import):
            yield from ((alias.name, "", typing) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, node.module] if node.module else base)
            yield from ((module, alias.name, typing) for alias in node.names)
        for child in ast.iter_child_nodes(node):
            yield from visit(child, typing)

    return visit(ast.parse(path.read_text()), False)


def run_time_imports(path: Path) -> set[str]:
    """What a file imports when it runs, as full names."""
    modules = names_of_modules()
    return {
        full if (full := f"{module}.{name}") in modules else module
        for module, name, typing in imports(path)
        if not typing
    }


@cache
def names_of_modules() -> dict[str, Path]:
    found = {}
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported_modules() -> dict[str, set[str]]:
    """What each of dblock's modules imports of dblock, for whatever reason."""
    modules = names_of_modules()
    return {
        importer: {
            f"{module}.{name}" if f"{module}.{name}" in modules else module
            for module, name, _ in imports(path)
        }
        & modules.keys() - {importer}
        for importer, path in modules.items()
    }


def test_imports_point_down() -> None:
    def top(module: str) -> str:
        if module == "dblock":
            return "__init__"
        first, *more = module.split(".")[1:]
        within = ".".join([first, *more[:1]])
        return within if any(within in modules for modules in FLOORS) else first

    wrong = [
        f"{importer} imports {module}"
        for importer, imported in imported_modules().items()
        for module in imported
        if floor(top(module)) > floor(top(importer))
    ]
    assert wrong == []


def test_there_are_no_circles() -> None:
    """Whoever reads a file understands it from what it imports, and never comes back to it."""
    left = imported_modules()
    count = 0
    while count != len(left):  # what nobody in a circle imports, and what imports nobody in one
        count = len(left)
        imported = set[str]().union(*left.values())
        left = {
            module: found
            for module, those in left.items()
            if (found := those & left.keys()) and module in imported
        }
    assert left == {}


def test_nobody_needs_what_is_for_tests() -> None:
    users = {
        path.relative_to(PACKAGE).parts[0]
        for path in PACKAGE.rglob("*.py")
        for name in run_time_imports(path)
        if name.startswith("dblock.testing")
    }
    assert users == {"testing"}


def test_frameworks_are_imported_where_asked_for() -> None:
    wanted = {
        "contrib/django": "django",
        "contrib/fastapi.py": "fastapi",
        "contrib/flask": "flask",
        "contrib/serve": "uvicorn",
        "contrib/opentelemetry.py": "opentelemetry",
    }
    for path in PACKAGE.rglob("*.py"):
        place = str(path.relative_to(PACKAGE))
        for name in run_time_imports(path):
            root = name.split(".")[0]
            if root in wanted.values():
                assert any(place.startswith(own) and root == wanted[own] for own in wanted), path


def test_the_protocol_does_no_io() -> None:
    allowed = {
        "__future__",
        "abc",
        "collections",
        "contextlib",
        "dataclasses",
        "datetime",
        "enum",
        "functools",
        "hashlib",
        "itertools",
        "math",
        "typing",
    }
    for path in (PACKAGE / "protocol").rglob("*.py"):
        for name in run_time_imports(path):
            root = name.split(".")[0]
            assert root in allowed or name.startswith(
                (
                    "dblock.protocol",
                    "dblock.errors",
                    "dblock.lock_state",
                )
            ), f"{path.name} imports {name}: a protocol knows neither I/O nor clocks"


def test_time_and_randomness_are_the_runtimes() -> None:
    """So that whoever gives Locks a runtime of his own decides what time it is.

    Who has none is excused: no Locks are at hand there, or it is the driver that waits.
    """
    excused = {
        "io/runtime.py": {"clock", "random", "secrets", "time"},
        "aio/runtime.py": set[str](),
        "system/clock.py": {"time"},
        "policy.py": {"random", "time"},
        "conflicts.py": {"clock", "time"},
        "dialects/mariadb/deadlines.py": {"clock"},
        "dialects/postgresql/read_deadline.py": {"clock"},
        "dialects/postgresql/sender.py": {"clock"},
        "dialects/postgresql/migrations.py": {"secrets"},
        "contrib/opentelemetry.py": {"time"},
        "contrib/serve/application.py": {"time"},
        "contrib/serve/health.py": {"time"},
        "contrib/serve/tokens_file.py": {"secrets"},
        "schema": {"clock", "time"},
        "doctor": {"clock", "time"},
        "cli": {"time"},
    }
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE)
        allowed = excused.get(str(place), excused.get(place.parts[0], set()))
        used = {name.removeprefix("dblock.system.") for name in run_time_imports(path)}
        found = used & {"clock", "random", "secrets", "time"} - allowed
        assert not found, f"{place} imports {found}: a runtime has it"


def test_nobody_asks_for_a_databases_name() -> None:
    """Flags tell dialects apart. Django has its own names of databases, for its own connections."""
    askers, names = set(), {"postgresql", "mysql", "mariadb", "sqlite"}
    for path in PACKAGE.rglob("*.py"):
        if "dialects" in path.parts or "contrib" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare) and any(
                isinstance(side, ast.Constant) and side.value in names for side in node.comparators
            ):
                askers.add(str(path.relative_to(PACKAGE)))
    assert not askers


# Budgets. Each may only shrink: no entry is added, and none gets larger. An entry that is no longer
# needed fails the test, so that it is removed.
LONGEST_FILE, MOST_PARAMETERS, MOST_FIELDS = 400, 7, 10

LONG_FILES: dict[str, int] = {}

#: The arguments of the first four are options that users give by keyword.
MANY_PARAMETERS = {
    "aio.locks.AsyncLocks.__init__": 8,
    "aio.locks.AsyncLocks.cron": 8,
    "contrib.django.idempotent": 8,
    "handles.options.lease_options": 14,
}

#: LockState is a public contract.
MANY_FIELDS = {
    "lock_state.LockState": 11,
    "dialects.dialect.Dialect": 31,
}

#: Classes of Django's migrations and models; a dialect's part of a statement, by subject; and the
#: names that the protocol or the dialects use twice.
SAME_NAMES = {
    *("Command", "Meta", "Migration"),
    *("ElectionStatements", "LeaseStatements", "MemberStatements"),
    *("MigrationStatements", "QueueStatements"),
    *("ReaderStatements", "RetiringStatements", "RowStatements", "SlotStatements", "Sender"),
    *("Attempt", "Opener"),
}

ClassOrFunction = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def definitions() -> Iterator[tuple[str, ClassOrFunction]]:
    """Yield each class and function of dblock with its qualified name."""

    def visit(node: ast.AST, within: str) -> Iterator[tuple[str, ClassOrFunction]]:
        for child in ast.iter_child_nodes(node):
            name = within
            if isinstance(child, ClassOrFunction):
                name = f"{within}.{child.name}"
                yield name, child
            yield from visit(child, name)

    for module, path in names_of_modules().items():
        for name, node in visit(ast.parse(path.read_text()), module):
            yield name.removeprefix("dblock."), node


def test_files_are_short() -> None:
    lengths = {
        str(path.relative_to(PACKAGE)): len(path.read_text().splitlines())
        for path in PACKAGE.rglob("*.py")
    }
    check_budget(lengths, LONGEST_FILE, LONG_FILES)


def test_functions_have_few_parameters() -> None:
    counts = {}
    for name, node in definitions():
        if isinstance(node, ast.ClassDef) or any(
            "option" in ast.unparse(decorator) for decorator in node.decorator_list
        ):
            continue  # click calls a command with all its options
        found = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        counts[name] = len([one for one in found if one.arg not in ("self", "cls")])
    check_budget(counts, MOST_PARAMETERS, MANY_PARAMETERS)


def test_classes_have_few_fields() -> None:
    counts = {
        name: len(set(fields(node)))
        for name, node in definitions()
        if isinstance(node, ast.ClassDef)
    }
    check_budget(counts, MOST_FIELDS, MANY_FIELDS)


def fields(of: ast.ClassDef) -> Iterator[str]:
    """Yield the names that a class declares, and those that its methods set on ``self``."""
    for declared in of.body:
        if isinstance(declared, ast.AnnAssign) and isinstance(declared.target, ast.Name):
            yield declared.target.id
    for node in ast.walk(of):
        match node:
            case ast.Attribute(ast.Name("self"), name, ast.Store()) if name != "__class__":
                yield name


def test_a_class_name_has_one_meaning() -> None:
    found = [node.name for _, node in definitions() if isinstance(node, ast.ClassDef)]
    assert {name for name in found if found.count(name) > 1} == SAME_NAMES


def check_budget(found: dict[str, int], most: int, budget: dict[str, int]) -> None:
    over = {name: number for name, number in found.items() if number > most}
    new = {name: number for name, number in over.items() if number > budget.get(name, most)}
    assert new == {}, f"more than {most}, or more than the budget"
    assert {name: over.get(name) for name in budget} == budget, "smaller: lower the budget"
