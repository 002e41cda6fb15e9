"""The standard streams, the tables on one, and the messages on the other."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

import click

from ..lock_state import printable

if TYPE_CHECKING:
    from rich.table import Table


def fill_closed() -> None:
    """Keep dblock's own files and sockets from getting the number of a closed standard stream.

    Writing to standard output fails as before, so that no output is lost unnoticed. Messages for
    standard error are dropped, as the user asked for.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            null = os.open(os.devnull, os.O_RDONLY)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            os.set_inheritable(number, True)
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - it stays open to the end
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


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
