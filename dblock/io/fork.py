"""What a forked child leaves to its parent: connections, threads, and whoever waits there."""

from __future__ import annotations

import weakref
from typing import Protocol, TypeVar

from ..system.platform import at_fork


class Heir(Protocol):
    """What a child has as a copy of its parent's, and does not go on with."""

    def forget_parent(self) -> None:
        """Begin anew, in the child."""


H = TypeVar("H", bound=Heir)

_heirs: weakref.WeakSet[Heir] = weakref.WeakSet()

# Connections of the parent: kept for ever, because closing one says goodbye to the server on the
# socket that the parent still uses.
_inherited: list[object] = []


def begins_anew(heir: H) -> H:
    """Have something begin anew in each forked child, as long as it exists; return it."""
    _heirs.add(heir)
    return heir


def leave_to_parent(inherited: object) -> None:
    """Keep a forked child from ever closing what is its parent's."""
    _inherited.append(inherited)


def _after_fork_in_child() -> None:
    for heir in list(_heirs):
        heir.forget_parent()


at_fork(after_in_child=_after_fork_in_child)
