"""Tables, and the messages on standard error."""

from __future__ import annotations

import contextlib
import itertools
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

import click

from ..lock_state import printable

if TYPE_CHECKING:
    from rich.table import Table


def complain(message: str) -> None:
    """Print one line on standard error."""
    click.echo(f"dblock: {printable(message)}", err=True)


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Sequence[str] = (),
    styles: Iterable[str] = itertools.repeat(""),
) -> Table:
    """Return a table for a terminal. The columns ``right`` are aligned to the right."""
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, pad_edge=False)
    for heading in headings:
        made.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    for row, style in zip(rows, styles, strict=False):
        made.add_row(*(Text(field, style=style) for field in row))  # a name may look like markup
    return made


def print_table(made: Table) -> None:
    from rich.console import Console

    Console().print(made)


@contextlib.contextmanager
def warnings_told() -> Iterator[None]:
    """Print each warning once, as one line. Python's own options for warnings still count."""
    said: set[str] = set()

    def say(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if not issubclass(category, UserWarning):
            show(message, category, filename, lineno, file, line)
        elif str(message) not in said:
            said.add(str(message))
            complain(str(message))

    with warnings.catch_warnings():
        show, warnings.showwarning = warnings.showwarning, say
        yield
