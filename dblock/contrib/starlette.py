"""Endpoints of Starlette and FastAPI that run once for an Idempotency-Key.

>>> from dblock.contrib.starlette import idempotent
>>> @idempotent(locks, caller=customer_of)                      # doctest: +SKIP
... async def place_order(request, session): ...
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, ParamSpec

from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse

from ..aio import AsyncLocks
from ..aio.handles import check_coroutine
from ..arguments import Seconds
from ..functions import wraps
from . import http
from .http import REFUSALS, Answer, Refused, Rules, Unrecorded
from .sessions import uncommitted

P = ParamSpec("P")

__all__ = ["idempotent"]


def idempotent(
    locks: AsyncLocks | Callable[[Request], AsyncLocks],
    *,
    caller: Callable[[Request], object],
    fingerprint: Callable[[Request], object] | None = None,
    methods: Iterable[str] = ("POST", "PATCH"),
    required: bool = True,
    keep: Seconds = 24 * 3600.0,
    wait: Seconds | None = 0.0,
) -> Callable[[Callable[P, Awaitable[Any]]], Callable[P, Coroutine[Any, Any, Any]]]:
    """Decorate a coroutine function: it runs once for each Idempotency-Key, in a transaction.

    Its arguments include a Request and an AsyncSession. Its changes in the session, the key and the
    response commit together: the decorator commits, or rolls back, and the function does neither. A
    repeated request gets the recorded response, and the function does not run.

    ``locks`` are AsyncLocks, or a function that returns them for a request. ``caller`` returns
    whose request it is, for example the key of the user who is logged in; callers share no keys.
    ``fingerprint`` returns a value that a repeated request must repeat, instead of its body.
    Requests with other ``methods`` run as usual. If ``required`` is false, a request without a key
    runs in a transaction too. The record stays for ``keep`` seconds. While another request with the
    key runs, this one waits for up to ``wait`` seconds.
    """
    rules = Rules(
        caller, fingerprint=fingerprint, methods=methods, required=required, keep=keep, wait=wait
    )

    def decorate(function: Callable[P, Awaitable[Any]]) -> Callable[P, Coroutine[Any, Any, Any]]:
        check_coroutine(function)

        @wraps(function)
        async def once(*args: P.args, **kwargs: P.kwargs) -> Any:
            given = (*args, *kwargs.values())
            request = _only(Request, "a Request", given)
            if not rules.cover(request.method):
                return await function(*args, **kwargs)
            session = _only((AsyncSession, async_scoped_session), "an AsyncSession", given)
            found = locks if isinstance(locks, AsyncLocks) else locks(request)
            try:
                header = ", ".join(request.headers.getlist(http.HEADER)) or None
                url = request.url
                call_of = rules.call(request, request.method, url.path, url.query, header)
                call = call_of(await _payload(request, rules))
            except Refused as refused:
                return _response(refused.answer)
            try:
                async with (
                    _transaction(session),
                    call.once(partial(found.once, session)) as recorded,
                ):
                    if recorded.replayed:
                        return _replayed(recorded.result)
                    response = await function(*args, **kwargs)
                    status = response.status_code if isinstance(response, Response) else 200
                    if not rules.record(status, recorded.active):
                        raise Unrecorded(response)
                    recorded.result = _recorded(response)
                    return response
            except Unrecorded as unrecorded:
                return unrecorded.response
            except REFUSALS as error:
                return _response(call.refusal(error))

        return once

    return decorate


@asynccontextmanager
async def _transaction(session: Any) -> AsyncIterator[None]:
    """Commit the session's transaction, which may have begun before, or roll it back."""
    try:
        found = session() if isinstance(session, async_scoped_session) else session
        with uncommitted(found.sync_session):
            yield
        await session.commit()
    except BaseException:
        await session.rollback()
        raise


def _only(kind: Any, what: str, given: tuple[Any, ...]) -> Any:
    found = [one for one in given if isinstance(one, kind)]
    if len(found) != 1:
        raise TypeError(
            f"an idempotent function is called with one Request and one AsyncSession; this call "
            f"has {len(found)} of {what}"
        )
    return found[0]


async def _payload(request: Request, rules: Rules[Request]) -> object:
    if rules.fingerprint is not None:
        return rules.fingerprint(request)
    try:
        return await request.body()
    except RuntimeError as error:
        raise TypeError(
            "the body of this request was read as a form, or as a stream, before: give "
            "idempotent() a fingerprint="
        ) from error


def _recorded(response: Any) -> dict[str, Any]:
    """Return what JSON says of what a function returned.

    FastAPI makes a response of what is none, also of one that is on record.
    """
    if isinstance(response, StreamingResponse | FileResponse):
        raise http.streamed(response)
    if isinstance(response, Response):
        headers = tuple(
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in response.raw_headers
        )
        return Answer(response.status_code, headers, bytes(response.body)).recorded()
    value = response.model_dump(mode="json") if hasattr(response, "model_dump") else response
    try:
        text = json.dumps(value)
    except (TypeError, ValueError):
        raise TypeError(
            "an idempotent function returns a Response, a model of Pydantic or what JSON can "
            f"express, not {type(response).__name__}"
        ) from None
    if len(text) > http.BODY_MAX:
        raise http.too_large(len(text))
    return {"value": json.loads(text)}  # of which FastAPI makes the same response


def _replayed(recorded: dict[str, Any]) -> Any:
    return recorded["value"] if "value" in recorded else _response(Answer.replayed(recorded))


def _response(answer: Answer) -> Response:
    response = Response(answer.body, answer.status)
    for name, value in answer.headers:
        response.headers.append(name, value)
    return response
