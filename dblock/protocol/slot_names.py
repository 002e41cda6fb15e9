"""What the slots of a semaphore are called."""

from __future__ import annotations


def slot_name(name: str, number: int) -> str:
    """Return the name of a slot; the first one is number 1."""
    return f"{name}#{number}"


def number_of(name: str) -> int:
    """Return the number of a slot."""
    return int(name.rpartition("#")[2])
