"""What is said beside a command's output."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import TextIO

import click

from ..printable import printable


def complain(message: str) -> None:
    """Say one line on standard error."""
    click.echo(f"dblock: {printable(message)}", err=True)


@contextlib.contextmanager
def warnings_told() -> Iterator[None]:
    """Say what is warned of like everything else, and once. Python's own options come first."""
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
