"""The catalogue of mutants fits the code; ``python -m tests.mutants`` plants them."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutants.catalogue import CATALOGUE
from tests.mutants.mutant import Mutant

ROOT = Path(__file__).parent.parent
KINDS = {"postgresql", "mariadb", "sqlite"}


@pytest.mark.parametrize("mutant", CATALOGUE, ids=lambda mutant: mutant.name)
def test_the_mutant_can_be_planted(mutant: Mutant) -> None:
    source = (ROOT / mutant.file).read_text()
    planted = mutant.apply(source)
    assert planted != source
    ast.parse(planted)


@pytest.mark.parametrize("mutant", CATALOGUE, ids=lambda mutant: mutant.name)
def test_its_test_exists(mutant: Mutant) -> None:
    file, _, test = mutant.test.partition("::")
    name, _, parameters = test.partition("[")
    functions = {
        node.name
        for node in ast.walk(ast.parse((ROOT / file).read_text()))
        if isinstance(node, ast.FunctionDef)
    }
    assert name in functions
    first = parameters.rstrip("]").split("-")[0]
    assert first in {"", *KINDS, "lease", "renew", "guard", "backend", "durable", "volatile"}


def test_the_names_differ() -> None:
    assert len({mutant.name for mutant in CATALOGUE}) == len(CATALOGUE)
