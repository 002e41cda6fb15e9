"""A forked child leaves its parent's connections, threads and waiters to the parent."""

from __future__ import annotations

import weakref
from typing import Protocol, TypeVar

from ..system.platform import at_fork


class Heir(Protocol):
    """An object that a child has copied from its parent, and must reset."""

    def forget_parent(self) -> None:
        """Reset the object, in the child."""


H = TypeVar("H", bound=Heir)

_heirs: weakref.WeakSet[Heir] = weakref.WeakSet()

# The parent's connections. The child keeps them forever, because closing one would send the server
# a goodbye on the socket that the parent still uses.
_inherited: list[object] = []


def begins_anew(heir: H) -> H:
    """Register an object to be reset in each forked child for as long as it exists; return it."""
    _heirs.add(heir)
    return heir


def leave_to_parent(inherited: object) -> None:
    """Keep the parent's object alive in a forked child, so that the child never closes it."""
    _inherited.append(inherited)


def _after_fork_in_child() -> None:
    for heir in list(_heirs):
        heir.forget_parent()


at_fork(after_in_child=_after_fork_in_child)
