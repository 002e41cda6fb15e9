"""docs/testing.md in an empty directory, with no server anywhere; and in Django's and Flask's."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import KINDS, NewDatabase
from tests.projects.test_django_project import RUNNERS
from tests.projects.test_django_project import Project as DjangoProject
from tests.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "testing.md"


def write(directory: Path, *names: str) -> int:
    """Write files of the page; return how many tests are in them."""
    tests = 0
    for name in names:
        (block,) = blocks(PAGE, f"python {name}")
        (directory / name).write_text(block)
        tests += len(re.findall(r"^ *def test_", block, re.MULTILINE))
    return tests


def run(directory: Path, *arguments: str, **environment: str) -> str:
    """Run Python there, as a user would who has not set the tests of dblock up."""
    inherited = {name: value for name, value in os.environ.items() if "PYTEST" not in name}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env=inherited | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_page_word_for_word(tmp_path: Path) -> None:
    ((line,),) = [block.splitlines() for block in blocks(PAGE, "console")]
    python, *command = shlex.split(line.removeprefix("$ "))
    assert python == "python"
    tests = write(tmp_path, "report.py", "test_report.py", "test_patched.py", "test_async.py")
    said = run(tmp_path, "-W", "error", *command, "-q", "-W", "error")
    assert f"{tests} passed" in said


def test_the_page_has_nothing_else() -> None:
    found = re.findall(r"^```python (.*)$", PAGE.read_text(), re.MULTILINE)
    tested = ["report.py", "test_report.py", "test_patched.py", "test_async.py"]
    assert found == [*tested, "tests.py", "test_shop.py"]
    assert not blocks(PAGE, "python")


def test_every_fault_is_on_the_page() -> None:
    from dblock.testing import Faults

    public = {name for name in vars(Faults) if not name.startswith("_")}
    public -= {"close", "locks", "async_locks"}  # by way of fixtures
    assert {name for name in public if f"{name}(" in PAGE.read_text()} == public


@pytest.mark.parametrize("kind", KINDS)
def test_django(new_database: NewDatabase, tmp_path: Path, kind: str) -> None:
    """SQLite's as it comes: in memory."""
    project = DjangoProject(tmp_path, new_database(kind))
    tests = write(tmp_path, "tests.py")
    for runner in RUNNERS:
        said = project.test(runner)
        assert f"Ran {tests} tests" in said or f"{tests} passed" in said


def test_flask(tmp_path: Path) -> None:
    for kind, name in (("python", "shop.py"), ("python config", "config.py")):
        (text,) = blocks(ROOT / "docs" / "flask.md", kind)
        (tmp_path / name).write_text(text)
    tests = write(tmp_path, "test_shop.py")
    url = f"sqlite:///{tmp_path}/shop.db"
    assert f"{tests} passed" in run(tmp_path, "-m", "pytest", "-q", DATABASE_URL=url)
    assert not (tmp_path / "shop.db").exists()
