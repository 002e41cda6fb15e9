"""The figures in benchmarks/README.md, between two marks."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from .figures import Figure
from .report import tables, target_table

PAGE = Path(__file__).parent / "README.md"
BEGIN = "<!-- The figures: python -m benchmarks --publish -->\n"
END = "<!-- The end of the figures -->\n"


def text(figures: Sequence[Figure]) -> str:
    """Return what the page has to say between its two marks."""
    parts = [target_table(figures, markdown=True), *tables(figures, markdown=True)]
    console = Console(file=io.StringIO(), width=10_000)
    for part in parts:
        console.print(part)
    output = console.file
    assert isinstance(output, io.StringIO)
    lines = [line.strip() for line in output.getvalue().splitlines()]
    return "\n".join(lines).strip() + "\n"


def publish(figures: Sequence[Figure]) -> None:
    """Write the tables into the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{text(figures)}\n{END}{after}")
