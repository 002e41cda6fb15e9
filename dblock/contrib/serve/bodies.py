"""The bodies, headers and queries of requests, checked before any I/O.

A field has its check and its description in one place. No message repeats a value: it may be a
secret in the wrong field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from starlette.requests import Request

from ... import arguments
from ...arguments import LABEL_MAX, LIMIT_MAX, check_label
from .disconnect import Gone
from .problems import Problem, invalid
from .service import Limits

TOKEN = "[0-9a-f]{32}"
_WAIT = re.compile(r"[0-9]{1,9}")
#: The TTL of a request that names none, in seconds.
TTL = 30.0
TOKEN_MEANS = "32 hexadecimal digits (0-9a-f) that the client has made at random"


@dataclass(frozen=True)
class Field:
    """A field of a body: its check, which returns the value or raises ValueError, and its JSON
    Schema."""

    check: Callable[[object], Any]
    schema: Mapping[str, Any]
    required: bool = False
    #: Its value in a body that does not have it.
    default: Any = None


def text(most: int) -> dict[str, Any]:
    """Return the JSON Schema of a text that every database can store."""
    return {"type": "string", "minLength": 1, "maxLength": most, "pattern": r"^[^\u0000]*$"}


def check_token(value: object) -> str:
    """Return a lease's token. Raises ValueError, and does not repeat the token."""
    try:
        return arguments.check_token(value)
    except (TypeError, ValueError):
        raise ValueError(f"is {TOKEN_MEANS}") from None


def token_field() -> Field:
    """Return the field of the token."""
    schema = {"type": "string", "pattern": f"^{TOKEN}$", "description": f"{TOKEN_MEANS}."}
    return Field(check_token, schema, required=True)


def ttl_field(limits: Limits) -> Field:
    """Return the field of the TTL."""
    low, high = limits.ttl_min, limits.ttl_max
    default = min(TTL, high)

    def check(value: object) -> float:
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not low <= value <= high
        ):
            raise ValueError(f"is a number of seconds from {low:g} to {high:g}")
        return float(value)

    means = "The TTL in seconds, from the moment when the database grants or renews the lease."
    schema = {"type": "number", "minimum": low, "maximum": high, "default": default}
    return Field(check, {**schema, "description": means}, default=default)


def slots_field() -> Field:
    """Return the field of a semaphore's limit."""

    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LIMIT_MAX:
            raise ValueError(f"is a whole number from 1 to {LIMIT_MAX}")
        return value

    means = "Take one of the slots of a semaphore. This is how many it has."
    schema = {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "description": means}
    return Field(check, schema)


def shared_field() -> Field:
    """Return the field of a shared lease."""

    def check(value: object) -> bool:
        if value is not True:
            raise ValueError("is true, or is left out")
        return True

    return Field(check, {"const": True, "description": "Share the name with others that do."})


def value_field() -> Field:
    """Return the field of a leader's value."""
    schema = {"description": "Any JSON value: an address, a part of the work."}
    return Field(lambda value: value, schema, required=True)


def owner_field() -> Field:
    """Return the field of the owner label."""

    def check(value: object) -> str:
        try:
            label = check_label(value)
        except (TypeError, ValueError):
            label = ""
        if not 1 <= len(label) <= LABEL_MAX:
            raise ValueError(f"is a text of 1 to {LABEL_MAX} characters without NUL")
        return label

    means = "The holder's label, for people: a host, a process, its purpose."
    return Field(check, {**text(LABEL_MAX), "description": means})


class RequestBody:
    """A JSON object with these fields and no others."""

    def __init__(
        self, limits: Limits, either: tuple[str, str] | None = None, **fields: Field
    ) -> None:
        """``either`` names two fields of which a body has one at most."""
        self._most = limits.body
        self._either = either
        self._fields = fields
        self._required = [name for name, field in fields.items() if field.required]

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the body."""
        made = {
            "type": "object",
            "properties": {name: dict(field.schema) for name, field in self._fields.items()},
            "required": self._required,
            "additionalProperties": False,
        }
        return made if self._either is None else {**made, "not": {"required": [*self._either]}}

    async def read(self, request: Request) -> dict[str, Any]:
        """Return the fields of a request's body. Raises Problem."""
        given = _parsed(await _received(request, self._most))
        checked = {
            name: field.default for name, field in self._fields.items() if field.default is not None
        }
        for name, value in given.items():
            field = self._fields.get(name)
            if field is None:
                raise invalid(f"The body has the fields {', '.join(self._fields)}, and no others.")
            try:
                checked[name] = field.check(value)
            except ValueError as error:
                raise invalid(f"The field {name} {error}.") from None
        for name in self._required:
            if name not in checked:
                raise invalid(f"The body needs the field {name}.")
        if self._either is not None and checked.keys() >= set(self._either):
            raise invalid(f"The body has either the field {' or the field '.join(self._either)}.")
        return checked


async def _received(request: Request, most: int) -> bytes:
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > most:
        raise _too_large(most)
    body = b""
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise Gone
        body += message.get("body", b"")
        if len(body) > most:
            raise _too_large(most)
        more = message.get("more_body", False)
    return body


def _too_large(most: int) -> Problem:
    # The rest of the body is not read, so the connection ends.
    detail = f"A body has at most {most} bytes."
    return Problem("too-large", detail, ("Connection", "close"))


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        given = json.loads(body.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError):  # UnicodeDecodeError too
        raise invalid("The body is a JSON object in UTF-8, and each field is in it once.") from None
    if not isinstance(given, dict):
        raise invalid("The body is a JSON object.")
    return given


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError
    return made


def _no_constant(text: str) -> NoReturn:
    raise ValueError  # NaN and Infinity are no JSON


def lock_token(request: Request) -> str:
    """Return the token in the header Lock-Token. Raises Problem."""
    given = request.headers.getlist("lock-token")
    try:
        return check_token(given[0] if len(given) == 1 else None)
    except ValueError as error:
        raise invalid(f"This needs one header Lock-Token, which {error}.") from None


def preferred_wait(request: Request, limits: Limits) -> int | None:
    """Return for how many seconds the client wants to wait (RFC 7240); None without a wish.

    The service waits no longer than its limit: it says so in Preference-Applied.
    """
    for header in request.headers.getlist("prefer"):
        for preference in header.split(","):
            name, _, value = preference.partition(";")[0].partition("=")
            if name.strip().lower() == "wait":
                value = value.strip()
                if not _WAIT.fullmatch(value):
                    raise invalid("Prefer: wait= is a whole number of seconds.")
                return min(int(value), int(limits.wait))
    return None


def query(request: Request, *allowed: str) -> dict[str, str]:
    """Return the parameters of a request's query. Raises Problem for others than ``allowed``."""
    if not request.scope["query_string"]:
        return {}
    given = request.query_params.multi_items()
    found = dict(given)
    if len(found) != len(given) or found.keys() - set(allowed):
        has = f"has the parameters {', '.join(allowed)}, each once" if allowed else "is empty"
        raise invalid(f"The query of this path {has}.")
    return found
