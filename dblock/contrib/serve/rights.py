"""Which caller may do what with which names."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, get_args

from starlette.requests import HTTPConnection

from .problems import Problem

Right = Literal["read", "hold", "admin"]
RIGHTS: tuple[Right, ...] = get_args(Right)
#: The key of the caller's name in a request's scope, for the log.
CALLER = "dblock.caller"
_LOCAL = re.compile(r"(localhost|127(\.[0-9]{1,3}){3}|\[::1\])(:[0-9]*)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class AuthorizedCaller:
    """A caller, with its rights on the names that begin with one of its prefixes.

    ``name`` is for the log and for owner labels. It is None where no tokens are used.
    """

    name: str | None
    prefixes: tuple[str, ...]
    rights: frozenset[Right]

    def may(self, right: Right, name: str) -> bool:
        """Whether the caller has a right on a name, or on all names with a prefix."""
        return right in self.rights and name.startswith(self.prefixes)


class Rights(ABC):
    """Says which caller a request is from."""

    #: Whether a request needs a token.
    secured = True

    @abstractmethod
    def find(self, request: HTTPConnection) -> AuthorizedCaller:
        """Return the caller of a request. Raises Problem if there is none."""

    def caller(self, request: HTTPConnection) -> AuthorizedCaller:
        """Return the caller of a request, and note it for the log. Raises Problem."""
        found = self.find(request)
        request.scope[CALLER] = found.name
        return found

    def check(self, request: HTTPConnection, right: Right, name: str) -> AuthorizedCaller:
        """Return the caller of a request. Raises Problem if it lacks a right on ``name``.

        ``name`` may be a prefix: then the caller needs the right on all names that begin with it.
        """
        found = self.caller(request)
        if not found.may(right, name):
            names = repr(name) if name else "all names"
            raise Problem("forbidden", f'This needs the right "{right}" on {names}.')
        return found


class Everyone(Rights):
    """Without tokens every client that reaches the service may do everything.

    A web page can let a browser on this host send requests to it, under a host name of the page's
    own that leads to 127.0.0.1. With ``local`` only this host's names are answered.
    """

    secured = False
    _CALLER = AuthorizedCaller(None, ("",), frozenset(RIGHTS))

    def __init__(self, local: bool = False) -> None:
        self._local = local

    def find(self, request: HTTPConnection) -> AuthorizedCaller:
        """Return the caller with all rights."""
        if self._local and not _LOCAL.fullmatch(request.headers.get("host", "localhost")):
            raise Problem(
                "forbidden", "Without a file of tokens the header Host has to name localhost."
            )
        return self._CALLER
