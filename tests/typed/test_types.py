"""What type checkers make of a program that uses all of dblock.

The programs beside this file are checked by ``mypy --strict`` and by pyright. What they say of a
type is right, and each wrong use is reported: where it is not, its ``type: ignore`` is unnecessary.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PROGRAMS = tuple(HERE / f"{name}.py" for name in ("threads", "tasks", "frameworks"))

MODULES = (
    "dblock",
    "dblock.aio",
    "dblock.aio.fencing",
    "dblock.contrib.django",
    "dblock.contrib.flask",
    "dblock.contrib.opentelemetry",
    "dblock.contrib.serve",
    "dblock.contrib.starlette",
    "dblock.doctor",
    "dblock.events",
    "dblock.fencing",
    "dblock.schema",
    "dblock.testing",
)
#: What has no underscore and is dblock's own all the same.
INSIDE = frozenset(
    (
        *("begin", "lead", "stand", "term_class"),
        *("drawing", "endless", "sleep_after", "usual"),
    )
)
SETTINGS = {
    "typeCheckingMode": "standard",
    "enableTypeIgnoreComments": True,
    "reportUnnecessaryTypeIgnoreComment": "error",
}


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """The programs in a folder of their own, without this project's settings."""
    for program in PROGRAMS:
        shutil.copy(program, tmp_path)
    return tmp_path


def check(*command: str, at: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=at, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_mypy(programs: Path) -> None:
    files = [program.name for program in PROGRAMS]
    check("mypy", "--strict", "--config-file=", "--cache-dir=.mypy", *files, at=programs)


def test_pyright(programs: Path) -> None:
    (programs / "pyrightconfig.json").write_text(json.dumps(SETTINGS))
    check("basedpyright", "--pythonpath", sys.executable, at=programs)


def public() -> Iterator[tuple[str, str]]:
    """Every public name, and every public method or property with the class that has it."""
    for name in MODULES:
        module = importlib.import_module(name)
        here = (one for one, found in vars(module).items() if own(found, name))
        for public_name in getattr(module, "__all__", None) or here:
            found = getattr(module, public_name)
            yield name, public_name
            if inspect.isclass(found) and not issubclass(found, BaseException):
                yield from ((public_name, member) for member in members(found))


def own(found: object, module: str) -> bool:
    return getattr(found, "__module__", "") == module and not inspect.isclass(found)


def members(kind: type) -> set[str]:
    return {
        name
        for base in kind.__mro__
        if base.__module__.startswith("dblock")
        for name, found in vars(base).items()
        if not name.startswith("_")
        and (callable(found) or isinstance(found, property | classmethod | staticmethod))
    } - INSIDE


def test_every_public_name_is_used() -> None:
    said = "\n".join(program.read_text() for program in PROGRAMS)
    used = set(re.findall(r"\b\w+\b", said))
    called = set(re.findall(r"\.(\w+)\b", said))
    missing = [
        f"{where}.{name}"
        for where, name in public()
        if name not in (called if where[0].isupper() else used)
    ]
    assert missing == []
