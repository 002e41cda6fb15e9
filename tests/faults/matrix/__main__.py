"""``python -m tests.faults.matrix [KIND ...] [--publish]``: run the matrix and print it."""

from __future__ import annotations

import sys
from argparse import ArgumentParser

from rich.console import Console
from rich.progress import track

from tests.faults.matrix.expected import ROWS, Fault, Row
from tests.faults.matrix.page import publish, table, text_of
from tests.faults.matrix.site import KINDS, Outcome, Site

Outcomes = dict[tuple[str, str, Fault], Outcome]


def run(kind: str) -> Outcomes:
    """Run every cell on a server of its own."""
    outcomes: Outcomes = {}
    with KINDS[kind]() as server:
        site = Site(server)
        for fault in track(list(Fault), kind, console=Console(stderr=True)):
            for row, outcome in zip(ROWS, site.meet(fault, ROWS), strict=True):
                outcomes[row.operation, row.statement, fault] = outcome
    return outcomes


def report(kind: str) -> int:
    """Run and print the matrix of one database; return how many cells are not as demanded."""
    outcomes, wrong = run(kind), 0

    def cell(row: Row, fault: Fault) -> str:
        nonlocal wrong
        outcome = outcomes[row.operation, row.statement, fault]
        if outcome.fits(row.cells[fault]):
            return str(outcome)
        wrong += 1
        return f"**{outcome}** (not: {row.cells[fault]})"

    text = text_of(table(cell))
    print(f"## {kind}: {len(outcomes)} cells, {wrong} not as demanded\n\n{text}")
    return wrong


def main() -> int:
    parser = ArgumentParser(prog="python -m tests.faults.matrix", description=__doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--publish", action="store_true", help="write docs/faults.md; run nothing")
    options = parser.parse_args()
    if unknown := set(options.kinds) - set(KINDS):
        parser.error(f"no such kind of database: {', '.join(unknown)}")
    if options.publish:
        publish()
        return 0
    return 1 if sum([report(kind) for kind in options.kinds or KINDS]) else 0


if __name__ == "__main__":
    sys.exit(main())
