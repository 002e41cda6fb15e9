"""The names of a semaphore's slots."""

from __future__ import annotations


def slot_name(name: str, number: int) -> str:
    """Return the name of a slot; the first one is number 1."""
    return f"{name}#{number}"


def is_slot(name: str, semaphore: str) -> bool:
    """Return whether a name is a slot's name of a semaphore."""
    before, sign, number = name.rpartition("#")
    return sign == "#" and before == semaphore and number.isdecimal()


def number_of(name: str) -> int:
    """Return the number of a slot."""
    return int(name.rpartition("#")[2])
