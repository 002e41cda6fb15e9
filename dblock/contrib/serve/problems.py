"""Why a request is refused: problem details (RFC 9457)."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.responses import Response

from ...errors import (
    DBLockError,
    LimitMismatch,
    LockLost,
    NotAcquired,
    OutcomeUnknown,
    SchemaMissing,
    Unavailable,
)
from ...lock_state import counted
from ..http import Answer, Rejected

logger = logging.getLogger("dblock.serve")

#: The beginning of each problem's type. The problem's name follows.
TYPE = "urn:dblock:problem:"
#: Seconds after which a client asks again, when the database or the service cannot serve.
AGAIN = 1.0


@dataclass(frozen=True)
class ProblemType:
    """A kind of problem: its status, its meaning, and the members that it adds (JSON Schema)."""

    status: int
    title: str
    members: Mapping[str, Any] = field(default_factory=dict)


KINDS = {
    "invalid": ProblemType(400, "The request is wrong. The same request will be wrong again."),
    "unauthorized": ProblemType(401, "The request has no valid bearer token."),
    "forbidden": ProblemType(403, "The caller may not do this."),
    "not-found": ProblemType(404, "There is no such path, or no hold to release by force."),
    "method-not-allowed": ProblemType(405, "The path does not have this method."),
    "held": ProblemType(
        409,
        "The name was not free within the wait.",
        {
            "holder": {
                "type": ["string", "null"],
                "description": "The owner label of the holder, if there is one.",
            },
            "fence": {"type": "integer", "description": "The fence of the name's last hold."},
            "frees_in": {
                "type": "number",
                "description": "Seconds until the lease expires, unless its holder renews it.",
            },
        },
    ),
    "other-slots": ProblemType(
        422,
        "The name has another number of slots, or is no semaphore.",
        {"slots": {"type": ["integer", "null"], "description": "How many slots it has."}},
    ),
    "lost": ProblemType(
        410,
        "The token does not hold the name.",
        {"reason": {"type": "string", "description": "Why the hold has ended."}},
    ),
    "other-fence": ProblemType(
        412,
        "The hold with this fence is over, and another hold has the name.",
        {"fence": {"type": "integer", "description": "The fence of the present hold."}},
    ),
    "too-large": ProblemType(413, "The body is too large."),
    "internal": ProblemType(500, "The service has a defect, or its database cannot do this."),
    "unavailable": ProblemType(503, "The service or its database cannot serve now."),
    "outcome-unknown": ProblemType(
        504, "The database's reply was lost. Repeat the request with the same token."
    ),
}


class Problem(Rejected):
    """The request is answered with problem details of one of the :data:`KINDS`."""

    def __init__(
        self, kind: str, detail: str, *headers: tuple[str, str], **members: object
    ) -> None:
        known = KINDS[kind]
        super().__init__(
            Answer.problem(
                known.status, detail, *headers, type=TYPE + kind, title=known.title, **members
            )
        )


def response(problem: Rejected) -> Response:
    """Return the response for a problem."""
    answer = problem.answer
    made = Response(answer.body, answer.status, {"Cache-Control": "no-store"})
    for name, value in answer.headers:
        made.headers.append(name, value)
    return made


def retry_after(seconds: float) -> tuple[str, str]:
    """Return the header that says when a client may ask again, in whole seconds."""
    return "Retry-After", str(max(1, math.ceil(seconds)))


def invalid(detail: str) -> Problem:
    """Return the problem of a wrong request."""
    return Problem("invalid", detail)


def unavailable(detail: str) -> Problem:
    """Return the problem of a service that cannot serve now."""
    return Problem("unavailable", detail, retry_after(AGAIN))


def defect() -> Problem:
    """Return the problem of a request that has met a defect. The log has more."""
    return Problem("internal", "The log of the service says more.")


def of(error: DBLockError) -> Problem:
    """Return the problem that an error of dblock is to a client.

    The message of an error can name the database's host and role. The log has it, a client does
    not get it.
    """
    if isinstance(error, NotAcquired):
        return held(error)
    if isinstance(error, LimitMismatch):
        slots = error.stored or None
        has = "is no semaphore" if slots is None else f"has {counted(slots, 'slot')}"
        return Problem("other-slots", f"{error.name!r} {has}.", slots=slots)
    if isinstance(error, LockLost):
        reason = error.reason or "unknown"
        return Problem("lost", f"The token does not hold the name ({reason}).", reason=reason)
    logger.error("%s: %s", type(error).__name__, error)
    if isinstance(error, OutcomeUnknown):
        return Problem(
            "outcome-unknown",
            "The token may hold the name until the TTL has passed.",
            retry_after(AGAIN),
        )
    if isinstance(error, Unavailable):
        return unavailable(
            "The database cannot be reached, or cannot serve now. Ask again with the same token, "
            "or release with it."
        )
    if isinstance(error, SchemaMissing):
        return unavailable("The database is not set up: its operator has to run dblock upgrade.")
    return defect()


def held(error: NotAcquired, *headers: tuple[str, str]) -> Problem:
    """Return the problem of a name that was not free, with more headers."""
    state = error.holder
    if state is None:
        headers = (retry_after(AGAIN), *headers)
        return Problem("held", "The name was not free.", *headers, holder=None)
    members: dict[str, object] = {"holder": state.owner if state.held else None}
    members["fence"] = state.fence
    frees_in = AGAIN
    if state.remaining is not None and state.remaining > 0:
        frees_in = state.remaining
        members["frees_in"] = round(frees_in, 3)
    detail = f"The name was not free: {state.describe()}."
    return Problem("held", detail, retry_after(frees_in), *headers, **members)
