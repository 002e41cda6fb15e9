"""Every mutant of the protocol and the statements dies in the simulation, or says why it cannot."""

from __future__ import annotations

from tests.mutants.catalogue import CATALOGUE
from tests.mutants.code import Code
from tests.simulation.reached import ROOT
from tests.simulation.schedule import Schedule

SEARCH = "python -m tests.simulation.teeth -k NAME --search 20, or write beyond="


def test_each_dies_in_a_schedule_or_is_beyond_the_simulation() -> None:
    code = Code(ROOT)
    undecided = [
        mutant.name
        for mutant in CATALOGUE
        if code.file(mutant.where).startswith(("dblock/protocol/", "dblock/dialects/"))
        and mutant.dies_in is None
        and mutant.beyond is None
    ]
    assert undecided == [], SEARCH


def test_none_is_both() -> None:
    assert [mutant.name for mutant in CATALOGUE if mutant.dies_in and mutant.beyond] == []


def test_each_schedule_can_be_read() -> None:
    for mutant in CATALOGUE:
        if mutant.dies_in is not None:
            where, colon, schedule = mutant.dies_in.partition(":")
            assert (len(where.split()), colon) == (2, ":"), mutant.name
            assert str(Schedule.parse(schedule)) == schedule.strip(), mutant.name
