"""The matrix as a table, in Markdown: what is demanded, or what was found in a run."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from tests.faults.matrix.expected import MEANING, ROWS, Fault, Row
from tests.faults.matrix.expected_of_kinds import ROWS_OF_KINDS
from tests.faults.matrix.expected_of_waiting import WAITING_ROWS

PAGE = Path(__file__).parents[3] / "docs" / "faults.md"
BEGIN = "<!-- The fault matrix: python -m tests.golden matrix -->\n"
END = "<!-- The end of the fault matrix -->\n"
WAITING = "And at the statements of waiters, and of the holder that passes a name on to them:\n"
OTHERS = "And at the statements of the other kinds of locks:\n"


def table(cell: Callable[[Row, Fault], str], rows: Sequence[Row] = ROWS) -> Table:
    """Return a table; where a row is of some databases only it says of which."""
    where = len({row.on for row in rows}) > 1
    made = Table("operation", "statement", *["on"] * where, *Fault, box=MARKDOWN)
    for row in rows:
        cells = (cell(row, fault) if fault in row.cells else "" for fault in Fault)
        made.add_row(row.operation, row.statement, *[", ".join(row.on)] * where, *cells)
    return made


def text_of(made: Table) -> str:
    """Return it as text, each row on a line of its own."""
    console = Console(file=io.StringIO(), width=10_000)
    console.print(made)
    output = console.file
    assert isinstance(output, io.StringIO)
    return "".join(f"{line.strip()}\n" for line in output.getvalue().splitlines() if line.strip())


def published() -> str:
    """Return what the page has to say between its two marks."""
    legend = "".join(f"- **{fault}**: {meaning}\n" for fault, meaning in MEANING.items())
    first, second, third = (
        text_of(table(lambda row, fault: str(row.cells[fault]), rows))
        for rows in (ROWS, WAITING_ROWS, ROWS_OF_KINDS)
    )
    return f"{BEGIN}\n{legend}\n{first}\n{WAITING}\n{second}\n{OTHERS}\n{third}\n{END}"


def pages() -> dict[Path, str]:
    """Return the page with the table in it."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    return {PAGE: f"{before}{published()}{after}"}
