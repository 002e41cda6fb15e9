"""Which caller may do what with which names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol, get_args

from starlette.requests import HTTPConnection

from .problems import Problem

Right = Literal["read", "hold", "admin"]
RIGHTS: tuple[Right, ...] = get_args(Right)
#: Where a request's scope has the caller's name, for the log.
CALLER = "dblock.caller"


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: its rights on the names that begin with one of its prefixes.

    ``name`` is for the log and for owner labels. It is None where no tokens are used.
    """

    name: str | None
    prefixes: tuple[str, ...]
    rights: frozenset[Right]

    def may(self, right: Right, name: str) -> bool:
        """Whether the caller has a right on a name, or on all names with a prefix."""
        return right in self.rights and name.startswith(self.prefixes)


class Rights(Protocol):
    """Says which caller a request is from."""

    def caller(self, request: HTTPConnection) -> Caller:
        """Return whose request it is. Raises Problem if it is nobody's."""

    def check(self, request: HTTPConnection, right: Right, name: str) -> Caller:
        """Return whose request it is. Raises Problem if the caller lacks a right on ``name``.

        ``name`` may be a prefix: then the caller needs the right on all names that begin with it.
        """
        found = self.caller(request)
        if not found.may(right, name):
            raise Problem(403, "forbidden", f'This needs the right "{right}" on {name!r}.')
        request.scope[CALLER] = found.name
        return found


class Everyone(Rights):
    """Everyone who reaches the service may do everything: where no tokens are used."""

    _CALLER = Caller(None, ("",), frozenset(RIGHTS))

    def caller(self, request: HTTPConnection) -> Caller:
        return self._CALLER
