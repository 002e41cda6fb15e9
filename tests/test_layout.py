"""The layout's rule: imports point one way, and the protocol does no I/O."""

from __future__ import annotations

import ast
from pathlib import Path

import dblock

PACKAGE = Path(dblock.__file__).parent

# From the ground up. A module imports modules of lower floors and of its own.
FLOORS = [
    {"version", "arguments", "errors", "clock", "printable"},
    {"process_lock", "fork", "driver_errors"},
    {"runtime"},
    {"timeouts", "policy", "protocol", "dialects", "events", "amounts", "compiled"},
    {"connections", "target"},
    {"driver", "borrowed", "schema", "retrying"},
    {"holds", "handle", "gate"},
    {"database", "keeper", "waiting"},
    {"lease", "row", "counter"},
    {"together", "cron", "doctor"},
    {"locks"},
    {"__init__"},
    {"aio"},
    {"testing"},
    {"cli", "__main__"},
    {"contrib"},
]


def floor(module: str) -> int:
    for number, modules in enumerate(FLOORS):
        if module in modules:
            return number
    raise AssertionError(f"dblock.{module} has no floor: put it on one in {__file__}")


def run_time_imports(path: Path) -> list[tuple[str, ast.stmt]]:
    """Return what a file imports when it runs, `if TYPE_CHECKING:` left out, as absolute names."""
    package = ["dblock", *path.relative_to(PACKAGE).parent.parts]
    found: list[tuple[str, ast.stmt]] = []

    def visit(node: ast.AST) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            found.extend((alias.name, node) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            names = [node.module] if node.module else [alias.name for alias in node.names]
            found.extend((".".join([*base, name]), node) for name in names)
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(path.read_text()))
    return found


def test_imports_point_down() -> None:
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        importer = path.relative_to(PACKAGE).with_suffix("").parts[0]
        for name, _ in run_time_imports(path):
            parts = name.split(".")
            if parts[0] != "dblock" or (len(parts) > 1 and parts[1] == importer):
                continue
            imported = "__init__" if parts[1:] in ([], ["__version__"]) else parts[1]
            if floor(imported) > floor(importer):
                wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert not wrong


def test_nobody_needs_what_is_for_tests() -> None:
    users = {
        path.relative_to(PACKAGE).parts[0]
        for path in PACKAGE.rglob("*.py")
        for name, _ in run_time_imports(path)
        if name.startswith("dblock.testing")
    }
    assert users == {"testing"}


def test_frameworks_are_imported_where_asked_for() -> None:
    wanted = {
        "contrib/django": "django",
        "contrib/flask": "flask",
        "contrib/opentelemetry.py": "opentelemetry",
    }
    for path in PACKAGE.rglob("*.py"):
        place = str(path.relative_to(PACKAGE))
        for name, _ in run_time_imports(path):
            root = name.split(".")[0]
            if root in wanted.values():
                assert any(place.startswith(own) and root == wanted[own] for own in wanted), path


def test_the_protocol_does_no_io() -> None:
    allowed = {
        "__future__",
        "collections",
        "contextlib",
        "dataclasses",
        "datetime",
        "enum",
        "functools",
        "itertools",
        "math",
        "typing",
    }
    for path in (PACKAGE / "protocol").glob("*.py"):
        for name, _ in run_time_imports(path):
            root = name.split(".")[0]
            assert root in allowed or name.startswith(
                ("dblock.protocol", "dblock.errors", "dblock.printable")
            ), f"{path.name} imports {name}: a protocol knows neither I/O nor clocks"


def test_time_and_randomness_are_the_runtimes() -> None:
    """So that whoever gives Locks a runtime of his own decides what time it is.

    Who has none is excused: no Locks are at hand there, or it is the driver that waits.
    """
    excused = {
        "runtime.py": {"clock", "random", "secrets", "time"},
        "aio/runtime.py": set[str](),
        "clock.py": {"time"},
        "policy.py": {"random", "time"},
        "retrying.py": {"clock", "time"},
        "dialects/reading.py": {"clock"},
        "dialects/postgresql.py": {"secrets"},
        "contrib/opentelemetry.py": {"time"},
        "schema": {"clock", "time"},
        "doctor": {"clock", "time"},
        "cli": {"time"},
    }
    for path in PACKAGE.rglob("*.py"):
        place = path.relative_to(PACKAGE)
        allowed = excused.get(str(place), excused.get(place.parts[0], set()))
        used = {name.removeprefix("dblock.") for name, _ in run_time_imports(path)}
        found = used & {"clock", "random", "secrets", "time"} - allowed
        assert not found, f"{place} imports {found}: a runtime has it"


def test_nobody_asks_for_a_databases_name() -> None:
    """Flags tell dialects apart. Django has its own names of databases, for its own connections."""
    askers = set()
    for path in PACKAGE.rglob("*.py"):
        if path.parent.name == "dialects" or "contrib" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Compare) and any(
                isinstance(side, ast.Constant) and side.value in {"postgresql", "mariadb", "sqlite"}
                for side in node.comparators
            ):
                askers.add(str(path.relative_to(PACKAGE)))
    assert not askers
