"""The catalogue of mutants fits the code; ``python -m tests.mutants`` plants them."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.mutants.__main__ import Times, judge
from tests.mutants.catalogue import CATALOGUE
from tests.mutants.code import Code
from tests.mutants.copy import Copy, Verdict
from tests.mutants.mutant import Mutant
from tests.mutants.recording import FOLDER, record
from tests.support import eventually

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def code() -> Code:
    return Code(ROOT)


@pytest.mark.parametrize("mutant", CATALOGUE, ids=lambda mutant: mutant.name)
def test_the_mutant_can_be_planted(mutant: Mutant, code: Code) -> None:
    file, planted = mutant.plant(code)
    assert planted != code.texts[file]
    ast.parse(planted)


def test_their_tests_exist() -> None:
    """As pytest itself collects them: one that is missing keeps all mutants from being run."""
    tests = sorted({mutant.test for mutant in CATALOGUE})
    collecting = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", *tests]
    found = subprocess.run(collecting, cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_names_differ_and_are_written_out() -> None:
    assert len({mutant.name for mutant in CATALOGUE}) == len(CATALOGUE)
    source = "".join(file.read_text() for file in FOLDER.glob("*.py"))
    assert [mutant.name for mutant in CATALOGUE if f'"{mutant.name}",' not in source] == []


SOURCE = """
LIMIT = 3

class Box:
    @property
    def free(self):
        if self.size > LIMIT:
            return None
        return f"{self.size} < {LIMIT}"

def free(size):
    return f"{size} < {LIMIT}"
"""
WRAPPED = """
class Box:
    @property
    def free(self):
        while True:
            if (
                self.size  # of what is in it
                > LIMIT
            ):
                return None
"""


def code_of(root: Path, **modules: str) -> Code:
    for name, text in modules.items():
        file = root / "dblock" / f"{name}.py"
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return Code(root)


@pytest.mark.parametrize(
    ("where", "old", "new", "line"),
    [
        ("Box.free", "self.size > LIMIT", "False", "        if False:"),
        ("Box", "self.size > LIMIT", "False", "        if False:"),
        ("Box.free", "return None", "pass\npass", "            pass\n            pass"),
        ("Box.free", "@property", "", "    \n"),
        ("boxes.free", "<{LIMIT}", "", '    return f"{size} "'),
        ("LIMIT", "3", "4", "LIMIT = 4"),
        ("dblock.boxes", "(size)", "()", "def free():"),
    ],
)
def test_a_mutant_is_where_its_name_says(
    tmp_path: Path, where: str, old: str, new: str, line: str
) -> None:
    code = code_of(tmp_path, boxes=SOURCE)
    file, text = code.replace(where, old, new)
    assert file == "dblock/boxes.py"
    assert f"\n{line}" in text
    assert line not in SOURCE


@pytest.mark.parametrize(
    ("where", "old", "why"),
    [
        ("Box.full", "LIMIT", "'Box.full' names nothing"),
        ("free", "LIMIT", "'free' names dblock.boxes.Box.free, dblock.boxes.free"),
        ("ox.free", "LIMIT", "'ox.free' names nothing"),
        ("boxes.free", "LIMI", "has 0 times, not 1"),
        ("Box.free", "LIMIT", "has 2 times, not 1"),
    ],
)
def test_a_mutant_has_one_place(tmp_path: Path, where: str, old: str, why: str) -> None:
    with pytest.raises(LookupError, match=why):
        code_of(tmp_path, boxes=SOURCE).replace(where, old, "")


def test_a_mutant_goes_with_its_function_however_that_is_laid_out(tmp_path: Path) -> None:
    code = code_of(tmp_path, boxes="LIMIT = 3\n", elsewhere=WRAPPED)
    file, text = code.replace("Box.free", "self.size > LIMIT", "False")
    assert file == "dblock/elsewhere.py"
    assert "if (\n                False\n            ):" in text


def test_what_is_planted_is_what_runs_and_nothing_of_it_stays(tmp_path: Path) -> None:
    """Also where it is as long as what was there, and all of this takes less than a second."""
    copy, module = Copy(tmp_path, {}), "dblock/protocol/test_it.py"
    (copy.directory / module).write_text(text := "def test_it() -> None:\n    assert 1 == 1\n")

    def run() -> str:
        return copy.run([module], "-n", "0").word

    assert run() == "passed"
    with copy.planted(module, text.replace("== 1", "== 2")):
        assert run() == "failed"
    assert run() == "passed"


def test_a_test_that_does_not_end_is_killed(tmp_path: Path) -> None:
    copy = Copy(tmp_path, {})
    (copy.directory / "test_it.py").write_text("import time\ntime.sleep(3600)\n")
    assert copy.run(["test_it.py"], "-n", "0", within=1.0).word == "failed"


def test_what_a_test_leaves_behind_is_killed(tmp_path: Path) -> None:
    copy, pid = Copy(tmp_path, {}), tmp_path / "pid"
    (copy.directory / "test_it.py").write_text(
        "import os, pathlib\n"
        "def test_it():\n"
        "    pid = os.posix_spawnp('sleep', ['sleep', '3600'], os.environ)\n"
        f"    pathlib.Path({str(pid)!r}).write_text(str(pid))\n"
    )
    assert copy.run(["test_it.py"], "-n", "0").word == "passed"
    command = Path(f"/proc/{pid.read_text()}/cmdline")
    eventually(lambda: not command.exists() or command.read_bytes() == b"")  # a zombie has none


class Told(Copy):
    """A copy in which tests end as is said."""

    def __init__(self, *words: str) -> None:
        self._words = list(words)

    @contextmanager
    def planted(self, file: str, text: str) -> Iterator[None]:
        yield

    def run(self, tests: Sequence[str], *options: str, within: float | None = None) -> Verdict:
        return Verdict(self._words.pop(0), "what pytest says", 0.1)


@pytest.mark.parametrize(
    ("words", "code", "first", "last"),
    [
        (["failed"], 0, "killed    {}: ", "1 of 1 mutants were killed in 0 s."),
        (["passed", "failed"], 0, "killed the 2nd time {}: ", "1 of 1 mutants were killed in 0 s."),
        (["passed", "passed"], 1, "SURVIVED the 2nd time {}: ", "SURVIVED  {}"),
        (["not run"], 1, "NOT RUN   {}: ", "NOT RUN   {}"),
    ],
)
def test_who_survives_does_so_twice_and_is_named_at_the_end(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    first: str,
    last: str,
) -> None:
    mutant, times = CATALOGUE[0], Times(tmp_path)
    times._seconds = {mutant.test: {"call": 0.1}}
    assert judge({mutant: ("", "")}, [Told(*words)], times) == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(first.format(mutant.name))
    assert lines[-1] == last.format(mutant.name)


RECORDED = """
SOME = (
    Mutant("first", "a promise", "boxes.free", "<", "<=", "tests/test_boxes.py"),
    Mutant(
        "second",
        "a promise",
        "boxes.free",
        "{LIMIT}",
        "{LIMIT + 1}",
        "tests/test_boxes.py",
        count=2,
    ),
)
"""
SHORT = "sqlite hand-off: a.select#1+8"
LONG = f"postgresql passed-to-who-does-not-renew: {' '.join(['b.register#1!promote:3'] * 4)}"


def test_where_a_mutant_dies_is_written_into_its_source(tmp_path: Path) -> None:
    (file := tmp_path / "boxes.py").write_text(RECORDED)

    def written() -> tuple[str | None, str]:
        """The field, which is above or below others, and the rest of the file."""
        text = file.read_text()
        found = re.search(r'^        dies_in=((?: *".*"\n?)+),\n', text, re.MULTILINE)
        if found is None:
            return None, text
        return ast.literal_eval(f"({found[1]})"), text.replace(found[0], "")

    for line in (SHORT, LONG, SHORT, None, LONG, None):
        record("second", line, tmp_path)
        assert written() == (line, RECORDED)
        assert max(map(len, file.read_text().splitlines())) <= 100
    with pytest.raises(LookupError, match="has a Mutant\\('third', "):
        record("third", SHORT, tmp_path)


def test_a_schedule_that_is_found_again_changes_no_source(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    for mutant in CATALOGUE:
        if mutant.dies_in:
            record(mutant.name, mutant.dies_in, tmp_path)
    for file in FOLDER.glob("*.py"):
        assert (tmp_path / file.name).read_text() == file.read_text()


def test_no_mutant_dies_of_a_name_that_is_not_there(code: Code, tmp_path: Path) -> None:
    for mutant in CATALOGUE:
        _, text = mutant.plant(code)
        (tmp_path / f"{mutant.name}.py").write_text(text)
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select=F821", str(tmp_path)]
    checked = subprocess.run(ruff, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout
