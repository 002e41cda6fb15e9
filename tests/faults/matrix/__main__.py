"""``python -m tests.faults.matrix [KIND ...]``: run the matrix and print it."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from collections.abc import Sequence

from rich.console import Console
from rich.progress import track

from tests.faults.matrix.expected import ROWS, Fault, Row
from tests.faults.matrix.expected_of_kinds import ROWS_OF_KINDS
from tests.faults.matrix.expected_of_waiting import rows_on
from tests.faults.matrix.page import table, text_of
from tests.faults.matrix.site import KINDS, WAITED_ON, Outcome, Site

Outcomes = dict[tuple[str, str, Fault], Outcome]


def run(kind: str, rows: Sequence[Row]) -> Outcomes:
    """Run every cell on a server of its own."""
    outcomes: Outcomes = {}
    with WAITED_ON[kind]() as server:
        site = Site(server)
        for fault in track(list(Fault), kind, console=Console(stderr=True)):
            met = [row for row in rows if fault in row.cells]
            for row, outcome in zip(met, site.meet(fault, met), strict=True):
                outcomes[row.operation, row.statement, fault] = outcome
    return outcomes


def report(kind: str, rows: Sequence[Row]) -> int:
    """Run and print a matrix of one database; return how many cells are not as demanded."""
    outcomes, wrong = run(kind, rows), 0

    def cell(row: Row, fault: Fault) -> str:
        nonlocal wrong
        outcome = outcomes[row.operation, row.statement, fault]
        if outcome.fits(row.cells[fault]):
            return str(outcome)
        wrong += 1
        return f"**{outcome}** (not: {row.cells[fault]})"

    text = text_of(table(cell, rows))
    print(f"## {kind}: {len(outcomes)} cells, {wrong} not as demanded\n\n{text}")
    return wrong


def main() -> int:
    parser = ArgumentParser(prog="python -m tests.faults.matrix", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(WAITED_ON)}")
    options = parser.parse_args()
    if unknown := set(options.kinds) - set(WAITED_ON):
        parser.error(f"no such kind of database: {', '.join(unknown)}")
    kinds = options.kinds or WAITED_ON
    wrong = [report(kind, ROWS) for kind in kinds if kind in KINDS]
    wrong += [report(kind, rows_on(kind)) for kind in kinds]
    wrong += [report(kind, rows_on(kind, rows=ROWS_OF_KINDS)) for kind in kinds if kind in KINDS]
    return 1 if sum(wrong) else 0


if __name__ == "__main__":
    sys.exit(main())
