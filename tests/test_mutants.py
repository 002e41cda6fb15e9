"""The catalogue of mutants fits the code; ``python -m tests.mutants`` plants them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants.catalogue import CATALOGUE
from tests.mutants.mutant import Mutant

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("mutant", CATALOGUE, ids=lambda mutant: mutant.name)
def test_the_mutant_can_be_planted(mutant: Mutant) -> None:
    source = (ROOT / mutant.file).read_text()
    planted = mutant.apply(source)
    assert planted != source
    ast.parse(planted)


def test_their_tests_exist() -> None:
    """As pytest itself collects them: one that is missing keeps all mutants from being run."""
    tests = sorted({mutant.test for mutant in CATALOGUE})
    collecting = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", *tests]
    found = subprocess.run(collecting, cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr


def test_the_names_differ() -> None:
    assert len({mutant.name for mutant in CATALOGUE}) == len(CATALOGUE)
