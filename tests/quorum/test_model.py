"""The model of the algorithm is right in all its states, and each planted error breaks it."""

from __future__ import annotations

import pytest

from tests.quorum.model import MUTANTS, Model, Violation

# An error of fences needs three attempts: two that hold the name, and one between them.
_ATTEMPTS = {"no-stamp": 3, "one-stamp": 3}
_RESTORES = ("no-cure", "no-pause", "no-read", "reads-too-few")


@pytest.mark.parametrize("changes", [False, True])
def test_nothing_is_violated(changes: bool) -> None:
    assert Model(renewals=changes, restores=changes).check() > 700


@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_planted_error_is_found(mutant: str) -> None:
    model = Model(
        _ATTEMPTS.get(mutant, 2),
        renewals=mutant == "minority-renewal",
        restores=mutant in _RESTORES,
        mutant=mutant,
    )
    with pytest.raises(Violation):
        model.check()
