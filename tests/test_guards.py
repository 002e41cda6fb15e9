"""``python -m tests.mutants --tests-of NAME`` leads from a part of dblock to its tests."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.mutants.__main__ import main
from tests.mutants.catalogue import CATALOGUE
from tests.mutants.code import Code
from tests.mutants.copy import ROOT
from tests.mutants.guards import guards_of
from tests.mutants.mutant import Mutant

LEASE = """
LIMIT = 3

class Lease:
    def renew(self):
        self.term = later(LIMIT)

    def release(self):
        self.term = None

    def locked(self):
        return self.term is not None

class Shared(Lease):
    pass
"""
RENEW = """
def renew(lease):
    return lease.term > 0
"""
TESTS = {  # a mutant's place and the text that it replaces, and its test
    ("Lease.renew", "later(LIMIT)"): "tests/a.py::test_longer",
    ("Lease.renew", "self.term"): "tests/a.py::test_term",
    ("Lease", "= None"): "tests/b.py::test_free",
    ("renewing.renew", "> 0"): "tests/c.py::test_alive",
    ("boxes.LIMIT", "3"): "tests/a.py::test_longer",
}
CASES = {
    "Lease.renew": ["a.py::test_longer", "a.py::test_term"],
    "boxes.Lease": ["a.py::test_longer", "a.py::test_term", "b.py::test_free"],
    "Lease.release": ["b.py::test_free"],  # its mutant is found by its text, not by its place alone
    "renew": ["a.py::test_longer", "a.py::test_term", "c.py::test_alive"],
    "LIMIT": ["a.py::test_longer"],
    "boxes": ["a.py::test_longer", "a.py::test_term", "b.py::test_free"],
    "inner": ["c.py::test_alive"],  # a package is its modules
    "dblock/boxes.py": ["a.py::test_longer", "a.py::test_term", "b.py::test_free"],
    "inner/": ["c.py::test_alive"],
    "renewing.py": ["c.py::test_alive"],
    "Lease.locked": ["a.py::test_longer", "a.py::test_term", "b.py::test_free"],
    "dblock/inner/__init__.py": [],
    "ALONE": [],
    "Shared": ["a.py::test_longer", "a.py::test_term", "b.py::test_free"],
    "Shared.renew": ["a.py::test_longer", "a.py::test_term"],  # it is inherited
}


@pytest.fixture
def code(tmp_path: Path) -> Code:
    inner = tmp_path / "dblock" / "inner"
    inner.mkdir(parents=True)
    (tmp_path / "dblock" / "boxes.py").write_text(LEASE)
    (inner / "__init__.py").touch()
    (inner / "dblock.py").touch()  # its name is the end of one, and all of the package's
    (inner.parent / "__init__.py").touch()
    (inner.parent / "lonely.py").write_text("ALONE = True\n")
    (inner / "renewing.py").write_text(RENEW)
    return Code(tmp_path)


MUTANTS = [
    Mutant(f"number-{number}", "a promise", where, old, "", test)
    for number, ((where, old), test) in enumerate(TESTS.items())
]


@pytest.mark.parametrize("asked", CASES)
def test_the_tests_that_guard_a_place(asked: str, code: Code) -> None:
    said = guards_of(asked, code, MUTANTS)
    assert re.findall(r"^tests/(\S+)$", said, re.MULTILINE) == CASES[asked]


def test_each_test_is_named_once_with_its_mutants(code: Code) -> None:
    assert guards_of("boxes", code, MUTANTS) == (
        "These tests guard boxes, each with the mutants that it has to find:\n"
        "tests/a.py::test_longer\n"
        "    number-0, in Lease.renew: a promise\n"
        "    number-4, in boxes.LIMIT: a promise\n"
        "tests/a.py::test_term\n"
        "    number-1, in Lease.renew: a promise\n"
        "tests/b.py::test_free\n"
        "    number-2, in Lease: a promise\n"
    )


def test_a_function_without_a_mutant_leads_to_its_class(code: Code) -> None:
    said = guards_of("Lease.locked", code, MUTANTS)
    assert said.startswith("No mutant is in Lease.locked.\nThese tests guard dblock.boxes.Lease, ")


def test_a_place_without_a_mutant_leads_to_the_files_that_name_it(
    code: Code, tmp_path: Path
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_a.py").write_text("assert ALONE")
    (tmp_path / "tests" / "test_b.py").write_text("assert ALONE is ALONE")
    (tmp_path / "tests" / "test_c.py").write_text("STAND_ALONE = True")
    assert guards_of("ALONE", code, MUTANTS) == (
        "No mutant is in ALONE.\nNo mutant is in dblock.lonely.\n"
        "No mutant is around it either. Files of tests that name ALONE:\n"
        "tests/test_b.py\ntests/test_a.py\n"
    )


def test_other_places_of_the_same_name_are_named(code: Code) -> None:
    said = guards_of("Lease.renew", code, MUTANTS)
    assert said.startswith("dblock has other places of this name: --tests-of renew\n")
    assert "other places" not in guards_of("renew", code, MUTANTS)


@pytest.mark.parametrize(
    ("asked", "nearest"),
    [
        ("Lease.rnew", "Lease.renew"),
        ("Other.renew", ".*Lease.renew"),
        ("dblock/box.py", "dblock/boxes.py"),
        ("reew", "renew"),
        ("ease", "Lease"),
        ("xyzxyz", "none; say a function"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(asked: str, nearest: str, code: Code) -> None:
    with pytest.raises(LookupError, match=f"dblock has no '{asked}'. The nearest names: {nearest}"):
        guards_of(asked, code, MUTANTS)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--tests-of", "Lease.renew"]) == 0
    said = capsys.readouterr().out
    in_it = [mutant for mutant in CATALOGUE if mutant.where.endswith("Lease.renew")]
    assert in_it
    assert all(f"\n{one.test}\n" in said and f"    {one.name}, in " in said for one in in_it)


def test_the_command_with_an_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["--tests-of", "HeldLease.rnew"])
    said = capsys.readouterr().err
    assert "dblock has no 'HeldLease.rnew'. The nearest names: HeldLease.renew" in said


def test_every_mutant_is_found_by_its_place() -> None:
    code = Code(ROOT)
    for mutant in CATALOGUE[::25]:
        assert f"    {mutant.name}, in " in guards_of(mutant.where, code, CATALOGUE), mutant.name
