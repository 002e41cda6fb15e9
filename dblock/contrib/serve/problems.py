"""Why a request is refused: problem details (RFC 9457)."""

from __future__ import annotations

import logging
import math
from typing import Any

from starlette.responses import Response

from ...errors import (
    DBLockError,
    LockLost,
    NotAcquired,
    OutcomeUnknown,
    SchemaMissing,
    Unavailable,
)
from ..http import Answer, Refused

logger = logging.getLogger("dblock.serve")

#: What the type of each problem begins with. Its last part is the problem's name.
TYPE = "urn:dblock:problem:"
#: Seconds after which a client asks again, when the database or the service cannot serve.
AGAIN = 1

#: The names of the problems, with the meaning of each.
MEANINGS = {
    "invalid": "The request is wrong, and the same request will be wrong again.",
    "unauthorized": "The request has no valid bearer token.",
    "forbidden": "The bearer token does not have the right for this name.",
    "not-found": "There is no such path, or nothing to release by force.",
    "method-not-allowed": "The path does not have this method.",
    "held": "The name was not free within the wait.",
    "lost": "The token does not hold the name.",
    "too-large": "The body is too large.",
    "internal": "The service has a defect, or the database cannot do this.",
    "unavailable": "The service or its database cannot serve now. Nothing changed.",
    "outcome-unknown": "The database's reply was lost. Repeat the request with the same token.",
}


class Problem(Refused):
    """The request is answered with problem details. ``members`` are for programs."""

    def __init__(
        self, status: int, kind: str, detail: str, *headers: tuple[str, str], **members: Any
    ) -> None:
        made = Answer.problem(
            status, detail, *headers, type=TYPE + kind, title=MEANINGS[kind], **members
        )
        super().__init__(made)


def response(problem: Refused) -> Response:
    """Return the response for a problem."""
    answer = problem.answer
    made = Response(answer.body, answer.status)
    for name, value in answer.headers:
        made.headers.append(name, value)
    made.headers["Cache-Control"] = "no-store"
    return made


def retry_after(seconds: float) -> tuple[str, str]:
    """Return the header that says when a client may ask again, in whole seconds."""
    return "Retry-After", str(max(1, math.ceil(seconds)))


def invalid(detail: str) -> Problem:
    """Return the problem of a wrong request."""
    return Problem(400, "invalid", detail)


def unavailable(detail: str) -> Problem:
    """Return the problem of a service that cannot serve now."""
    return Problem(503, "unavailable", detail, retry_after(AGAIN))


def of(error: DBLockError) -> Problem:
    """Return the problem that an error of dblock is to a client.

    The message of an error can name the database's host and role. A client does not get it, and
    the log does.
    """
    if isinstance(error, NotAcquired):
        return _held(error)
    if isinstance(error, LockLost):
        detail = f"The token does not hold the name: {error.reason or 'unknown'}."
        return Problem(410, "lost", detail, reason=error.reason or "unknown")
    logger.error("%s: %s", type(error).__name__, error)
    if isinstance(error, OutcomeUnknown):
        return Problem(504, "outcome-unknown", MEANINGS["outcome-unknown"], retry_after(AGAIN))
    if isinstance(error, Unavailable):
        return unavailable("The database cannot be reached, or cannot serve now.")
    if isinstance(error, SchemaMissing):
        return unavailable("The database is not set up: its operator has to run dblock upgrade.")
    return Problem(500, "internal", MEANINGS["internal"])


def _held(error: NotAcquired) -> Problem:
    state = error.holder
    if state is None:
        return Problem(409, "held", "The name was not free within the wait.", retry_after(AGAIN))
    frees_in = max(0.0, state.remaining) if state.remaining is not None else None
    members: dict[str, Any] = {"holder": state.owner if state.held else None, "fence": state.fence}
    if frees_in is not None:
        members["frees_in"] = round(frees_in, 3)
    return Problem(
        409,
        "held",
        f"The name was not free within the wait: {state.describe()}.",
        retry_after(frees_in or AGAIN),
        **members,
    )


def defect() -> Problem:
    """Return the problem of a request that has met a defect. The log has more."""
    return Problem(500, "internal", MEANINGS["internal"])
