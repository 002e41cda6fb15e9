"""Cuts off what is done to a database after so many statements, as the end of a process does."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

CHANGES = ("ALTER", "CREATE", "DELETE", "DROP", "EXECUTE", "INSERT", "SET", "UPDATE")


class CutOff(BaseException):
    """The process ends here. What handles errors does not see it."""


@contextlib.contextmanager
def after(number: int) -> Iterator[None]:
    """Raise CutOff once so many statements of SQLAlchemy's, of any engine, changed something."""
    count = 0

    def executed(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        nonlocal count
        count += statement.split(maxsplit=1)[0] in CHANGES
        if count == number:
            raise CutOff

    event.listen(Engine, "after_cursor_execute", executed)
    try:
        yield
    finally:
        event.remove(Engine, "after_cursor_execute", executed)


def everywhere(run: Callable[[], object], repeat: Callable[[], object], *, step: int = 1) -> int:
    """Cut ``run`` off after each of its changes, or each so manieth, and have it repeated.

    Return after how many changes it was not cut off any more.
    """
    number = 1
    while True:
        try:
            with after(number):
                run()
        except CutOff:
            repeat()
            number += step
        else:
            return number
