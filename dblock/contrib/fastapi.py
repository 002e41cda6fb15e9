"""The routes of FastAPI that run once: the Response that FastAPI gives them, and their response.

FastAPI makes a response of a value when the route has returned, which is after the commit. This
module makes it before the commit, in the same way. FastAPI has no public function for that, so this
module calls its ``serialize_response``, and reads from the scope the route and the additions of its
router. ``tests/contrib/test_idempotency_fastapi.py`` compares each kind of route with the same
route without the decorator.
"""

from __future__ import annotations

import inspect
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from inspect import Parameter, Signature
from types import NoneType
from typing import Any, get_type_hints

from fastapi import Depends
from fastapi.datastructures import DefaultPlaceholder
from fastapi.routing import serialize_response
from fastapi.utils import is_body_allowed_for_status_code
from starlette.requests import Request
from starlette.responses import Response

from ..decorating import body_of
from .http import OF_ONE_ANSWER

RawHeader = tuple[bytes, bytes]

#: The parameter of a decorated function for FastAPI's Response.
RESPONSE = "dblock_response"

#: Newer versions write JSON directly if the route has no response class of its own.
_WRITES_JSON = "dump_json" in inspect.signature(serialize_response).parameters


async def _response(response: Response) -> Response:
    """Depend on FastAPI's Response; a function of its own may have it as well."""
    return response


def with_response(function: Callable[..., Any]) -> Signature:
    """Return a function's signature with a parameter for FastAPI's Response.

    Its annotations are no strings: older versions of FastAPI would look for their names in the
    module of the decorator.
    """
    if sys.version_info >= (3, 14):
        from annotationlib import Format

        found = inspect.signature(function, annotation_format=Format.FORWARDREF)
    else:
        found = inspect.signature(function)
    names = getattr(inspect.unwrap(body_of(function)), "__globals__", {})
    parameters = [
        one.replace(annotation=_meant(one.annotation, names)) for one in found.parameters.values()
    ]
    last = bool(parameters) and parameters[-1].kind is Parameter.VAR_KEYWORD
    mine = Parameter(RESPONSE, Parameter.KEYWORD_ONLY, default=Depends(_response))
    parameters.insert(len(parameters) - last, mine)
    returned = _meant(found.return_annotation, names)
    return found.replace(parameters=parameters, return_annotation=returned)


def _meant(annotation: Any, names: dict[str, Any]) -> Any:
    """Return the value of an annotation; a string that cannot be evaluated at run time as it is."""
    if not isinstance(annotation, str):
        return annotation

    def hinted() -> None: ...

    hinted.__annotations__ = {"it": annotation}
    try:
        meant = get_type_hints(hinted, names, include_extras=True)["it"]
    except Exception:  # the user's string may raise anything; FastAPI complains if it needs it
        return annotation
    return None if meant is NoneType else meant


class Injected:
    """FastAPI's Response of a request.

    Dependencies and the route set its status and its headers. FastAPI puts both into the response
    that it makes of what the route returns.
    """

    def __init__(self, request: Request, response: Response, decorated: object) -> None:
        self._route = _route(request)
        self._response = response
        self._before = self._headers()
        if any(call is decorated for call in _calls(self._route.dependant)):
            raise TypeError(
                "an idempotent function is a route of FastAPI's, and this one is a dependency of "
                "one, which would run for each repeated request: decorate the route"
            )

    async def made(self, value: Any) -> tuple[Response, list[RawHeader], dict[str, Any]]:
        """Return the response that FastAPI makes of a value, and its headers for the record.

        The record leaves out headers that dependencies have set, because they set them again each
        time. The rest of the record names the headers that the route has set, or deleted.
        """
        try:
            response = await _made(self._route, value, self._response.status_code)
        except Exception as error:
            error.add_note(f"FastAPI makes no response of what {self._route.path} returned")
            raise
        after = self._headers()
        changed = {name for name in self._before | after if self._before[name] != after[name]}
        changed -= OF_ONE_ANSWER
        recorded = [
            *response.raw_headers,
            *(one for one in self._response.raw_headers if _name(one) in changed),
        ]
        response.raw_headers.extend(self._response.raw_headers)
        return response, recorded, {"changed": sorted(changed)}

    def complete(self, response: Response, recorded: dict[str, Any]) -> None:
        """Add to a recorded response what dependencies have set this time.

        FastAPI adds nothing to a response that a route has made itself, and nothing is added here.
        """
        if "changed" in recorded:
            response.raw_headers.extend(
                one for one in self._response.raw_headers if _name(one) not in recorded["changed"]
            )

    def _headers(self) -> defaultdict[str, list[bytes]]:
        found = defaultdict[str, list[bytes]](list)
        for one in self._response.raw_headers:
            found[_name(one)].append(one[1])
        return found


def _name(header: RawHeader) -> str:
    return header[0].decode("latin-1").lower()


def _calls(dependant: Any) -> Iterator[Any]:
    for one in dependant.dependencies:
        yield one.call
        yield from _calls(one)


def _route(request: Request) -> Any:
    """Return the request's route, with what its router adds to it."""
    route = request.scope["route"]
    # Newer versions do not copy a route when its router is included.
    included = request.scope.get("fastapi", {}).get("effective_route_context")
    return included if getattr(included, "original_route", None) is route else route


async def _made(route: Any, value: Any, status: int | None) -> Response:
    """Return the response that FastAPI makes of what its route returned.

    ``status`` is the status of FastAPI's Response, if the route has set one. The headers of that
    Response are not in the result yet.
    """
    # The second field, of older versions, leaves out what models of Pydantic 1 inherit.
    field = getattr(route, "secure_cloned_response_field", route.response_field)
    kind = route.response_class
    options: dict[str, Any] = {}
    if isinstance(kind, DefaultPlaceholder):
        kind = kind.value
        if _WRITES_JSON and field is not None:
            kind = partial(Response, media_type="application/json")
            options["dump_json"] = True
    content = await serialize_response(
        field=field,
        response_content=value,
        include=route.response_model_include,
        exclude=route.response_model_exclude,
        by_alias=route.response_model_by_alias,
        exclude_unset=route.response_model_exclude_unset,
        exclude_defaults=route.response_model_exclude_defaults,
        exclude_none=route.response_model_exclude_none,
        **options,
    )
    status = status or route.status_code
    response: Response = kind(content) if status is None else kind(content, status_code=status)
    if not is_body_allowed_for_status_code(response.status_code):
        response.body = b""
    return response
