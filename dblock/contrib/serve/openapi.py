"""The description of the service in the words of OpenAPI 3.1, made of its routes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ... import __version__
from .problems import KINDS, TYPE
from .routing import Route

Schema = dict[str, Any]

SECONDS = {"type": "number", "minimum": 0}
MOMENT = {"type": ["string", "null"], "format": "date-time"}
LABEL = {"type": ["string", "null"]}
FENCE = {"type": "integer", "minimum": 0}

HOLD = {"$ref": "#/components/schemas/Hold"}
LEASE = {"$ref": "#/components/schemas/Lease"}
LEASES = {"$ref": "#/components/schemas/Leases"}


def _object(optional: Mapping[str, Any] | None = None, **properties: Any) -> Schema:
    return {
        "type": "object",
        "properties": {**properties, **(optional or {})},
        "required": list(properties),
        "additionalProperties": False,
    }


_SCHEMAS: dict[str, Schema] = {
    "Hold": {
        **_object(
            {
                "name": {
                    "type": "string",
                    "description": "The name of a slot, to renew and to release.",
                }
            },
            fence={**FENCE, "minimum": 1},
            expires_in=SECONDS,
        ),
        "description": "expires_in is in seconds, from before the service asked the database, and "
        "less a margin. A client counts it from before it sent its request.",
    },
    "Lease": _object(
        name={"type": "string"},
        state={"enum": ["held", "running", "done", "locked", "full", "expired", "free"]},
        holder={**LABEL, "description": "The owner label of the holder."},
        since=MOMENT,
        expires_at=MOMENT,
        expires_in={"type": ["number", "null"], "description": "By the database's clock."},
        fence=FENCE,
        readers={"type": ["integer", "null"]},
        slots={
            **_object(limit={"type": "integer"}, held={"type": "integer"}),
            "type": ["object", "null"],
        },
        row_lock={**_object(holder=LABEL, since=MOMENT), "type": ["object", "null"]},
        waiters={
            "type": "array",
            "items": _object(
                {"for": {"type": "string"}},
                waiter={"type": "string"},
                since=MOMENT,
                waited={"type": "number"},
            ),
        },
    ),
    "Leases": _object(
        leases={"type": "array", "items": LEASE},
        truncated={"type": "boolean", "description": "Whether names were left out."},
    ),
}


def parameter(name: str, where: str, schema: Mapping[str, Any]) -> Schema:
    """Return the description of a parameter."""
    return {"name": name, "in": where, "required": where == "path", "schema": dict(schema)}


def header(name: str, means: str) -> Schema:
    """Return the description of an answer's header."""
    return {name: {"description": means, "schema": {"type": "string"}}}


def answer(
    means: str,
    schema: Mapping[str, Any] | None = None,
    headers: Mapping[str, Any] | None = None,
    kind: str = "application/json",
) -> Schema:
    """Return the description of an answer."""
    made: Schema = {"description": means}
    if schema is not None:
        made["content"] = {kind: {"schema": dict(schema)}}
    if headers is not None:
        made["headers"] = dict(headers)
    return made


def operation(
    summary: str,
    *,
    answers: Mapping[int, Schema],
    problems: Iterable[str] = (),
    parameters: Sequence[Schema] = (),
    body: Schema | None = None,
    secured: bool = True,
) -> Schema:
    """Return the description of a route. ``problems`` are kinds of :data:`problems.KINDS`."""
    described = {str(status): made for status, made in answers.items()}
    for kind in problems:
        described[str(KINDS[kind].status)] = {"$ref": f"#/components/responses/{kind}"}
    made: Schema = {"summary": summary, "responses": described}
    if parameters:
        made["parameters"] = list(parameters)
    if body is not None:
        made["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": body}},
        }
    if not secured:
        made["security"] = []
    return made


def document(routes: Iterable[Route], *, secured: bool) -> Schema:
    """Return the description of these routes; ``secured`` says whether callers need tokens."""
    paths: dict[str, Schema] = {}
    for route in routes:
        if route.operation:
            paths.setdefault(route.path, {})[route.method.lower()] = dict(route.operation)
    made: Schema = {
        "openapi": "3.1.0",
        "info": {
            "title": "dblock",
            "version": __version__,
            "description": "Leases in the database of an application, over HTTP.",
        },
        "paths": paths,
        "components": {
            "schemas": _SCHEMAS,
            "responses": {kind: _problem(kind) for kind in KINDS},
        },
    }
    if secured:
        made["security"] = [{"bearer": []}]
        made["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    return made


def _problem(kind: str) -> Schema:
    known = KINDS[kind]
    schema = {
        "type": "object",
        "properties": {
            "type": {"const": TYPE + kind},
            "title": {"type": "string"},
            "status": {"const": known.status},
            "detail": {"type": "string"},
            **known.members,
        },
        "required": ["type", "title", "status", "detail"],
    }
    return answer(known.title, schema, kind="application/problem+json")


def routes(described: Iterable[Route], *, secured: bool) -> list[Route]:
    """Return the route of the description."""
    body = json.dumps(document(described, secured=secured)).encode()

    async def get(request: Request) -> Response:
        return Response(body, media_type="application/json")

    return [Route("GET", "/openapi.json", get)]
