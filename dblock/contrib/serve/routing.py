"""Routes, and how a request's path chooses one.

Starlette's router would match the decoded path, in which a slash within a name looks like the end
of the name. So this router matches the path as the client sent it.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from starlette.requests import Request
from starlette.responses import Response

from ...arguments import check_name
from .problems import Problem, invalid

Handler = Callable[[Request], Awaitable[Response]]

#: Stands in a route's path for a lock's name.
NAME = "{name}"
_BROKEN = re.compile(rb"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class Route:
    """One request that the service answers.

    ``{name}`` in its path stands for a lock's name: the handler finds it in
    ``request.path_params["name"]``. ``operation`` describes it in the words of OpenAPI.
    """

    method: str
    path: str
    handler: Handler
    operation: Mapping[str, Any] = field(default_factory=dict)


class Router:
    """Finds the route of a request."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._plain: dict[bytes, dict[str, Route]] = {}
        self._named: dict[tuple[bytes, bytes], dict[str, Route]] = {}
        for route in self.routes:
            before, name, after = (part.encode() for part in route.path.partition(NAME))
            if name:
                methods = self._named.setdefault((before, after), {})
            else:
                methods = self._plain.setdefault(before, {})
            methods[route.method] = route
            if route.method == "GET":
                methods.setdefault("HEAD", route)

    def find(self, scope: MutableMapping[str, Any]) -> Route:
        """Return the route, and put the name into the scope. Raises Problem if there is none."""
        path = sent_path(scope)
        methods, name = self._plain.get(path), None
        if methods is None:
            methods, name = self._with_name(path)
        route = methods.get(scope["method"])
        if route is None:
            allowed = ("Allow", ", ".join(sorted(methods)))
            raise Problem("method-not-allowed", "This path has other methods.", allowed)
        if name is not None:
            scope["path_params"] = {"name": decoded(name)}
        return route

    def _with_name(self, path: bytes) -> tuple[dict[str, Route], bytes]:
        for (before, after), methods in self._named.items():
            if path.startswith(before) and path.endswith(after):
                name = path[len(before) : len(path) - len(after)]
                if b"/" not in name:
                    return methods, name
        if any(path.startswith(before) for before, _ in self._named):
            raise invalid("Write a slash in a name as %2F: a name is one segment of the path.")
        raise Problem("not-found", "There is no such path. GET /openapi.json names them.")


def sent_path(scope: Mapping[str, Any]) -> bytes:
    """Return the path as the client has sent it, below the place where the app is mounted."""
    sent: bytes | None = scope.get("raw_path")
    path: str = scope["path"]
    if sent is None:
        sent = quote(path).encode()
    root: str = scope.get("root_path", "").rstrip("/")
    if root and path.startswith(root):
        # Each segment of the root was a segment of the path, however it was encoded.
        below = sent.split(b"/", root.count("/") + 1)[root.count("/") + 1 :]
        return b"/" + below[0] if below else b""
    return sent


def decoded(name: bytes) -> str:
    """Return the lock's name that a segment of a path stands for. Raises Problem."""
    if b"%" in name:
        if _BROKEN.search(name):
            raise invalid("A % in the path is followed by two hexadecimal digits: write %25 for %.")
        name = unquote_to_bytes(name)
    try:
        return check_name(name.decode())
    except UnicodeDecodeError:
        raise invalid("The name in the path is not UTF-8.") from None
    except ValueError as error:
        raise invalid(f"{str(error)[:200]}.") from None
