"""Every mutant of the protocol and the statements dies in the simulation, or it is said why not."""

from __future__ import annotations

from pathlib import Path

from tests.mutants.catalogue import CATALOGUE
from tests.mutants.code import Code
from tests.simulation.reached import ROOT
from tests.simulation.teeth import read_lines

#: Mutants of which no schedule can tell, each with the reason.
BEYOND = Path(__file__).with_name("beyond.txt")


def test_all_are_told_of() -> None:
    code, lines = Code(ROOT), read_lines()
    beyond = dict(line.split(": ", 1) for line in BEYOND.read_text().splitlines())
    places = {mutant.name: code.find(mutant.where)[0].file for mutant in CATALOGUE}
    wanted = {
        name
        for name, file in places.items()
        if file.startswith(("dblock/protocol/", "dblock/dialects/"))
    }
    assert wanted - lines.keys() - beyond.keys() == set(), "see python -m tests.simulation.teeth -h"
    assert lines.keys() & beyond.keys() == set()
    assert (lines.keys() | beyond.keys()) <= places.keys()
