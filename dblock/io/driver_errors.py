"""The exceptions of any driver: whether one is a driver's, and its message."""

from __future__ import annotations

from ..lock_state import printable


def is_driver_error(error: BaseException) -> bool:
    """Return whether a DBAPI module raised this (PEP 249: its errors derive from its ``Error``)."""
    return any(
        base.__name__ == "Error" and base.__module__.split(".")[0] != "builtins"
        for base in type(error).__mro__
    )


def first_line(error: BaseException) -> str:
    """Return a driver's message, one line of it, for people."""
    detail = error.args[1] if len(error.args) > 1 and isinstance(error.args[0], int) else error
    lines = str(detail).strip().splitlines()
    return printable(lines[0]) if lines else type(error).__name__
