"""The figures in benchmarks/README.md: a picture above, and the tables between two marks."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from .figures import Figure
from .report import draw_bars, tables, target_table

PAGE = Path(__file__).parent / "README.md"
PICTURE = PAGE.with_name("figures.svg")
#: What the picture shows: a scenario, a quantity of it, and what that is in words.
SHOWN = (
    ("lease, postgresql", "total", "nobody else wants it: acquire + release, us"),
    ("8 processes", "hand-off p50", "8 processes want it: release to next holder, us"),
)
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


def draw(figures: Sequence[Figure], path: Path = PICTURE) -> None:
    """Draw the picture that the page opens with. Raises ImportError without matplotlib."""
    import matplotlib
    from matplotlib.figure import Figure as Picture

    # The same picture for the same figures, and text that stays text.
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "dblock"}):
        picture = Picture(figsize=(11, 3.6), layout="constrained")
        for axis, (scenario, what, title) in zip(picture.subplots(1, 2), SHOWN, strict=True):
            found = [one for one in figures if (one.scenario, one.what) == (scenario, what)]
            draw_bars(axis, sorted(found, key=lambda figure: -figure.median))
            axis.set_title(title, fontsize=9)
        picture.savefig(path, metadata={"Date": None})


def publish(figures: Sequence[Figure]) -> None:
    """Write the tables into the page, and draw its picture."""
    draw(figures)
    before, _, rest = PAGE.read_text().partition(BEGIN)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{text(figures)}\n{END}{after}")
