"""Endpoints of Starlette and FastAPI that run once for an Idempotency-Key.

>>> from dblock.contrib.starlette import idempotent
>>> @idempotent(locks, caller=customer_of)                      # doctest: +SKIP
... async def place_order(request, session): ...
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from importlib.util import find_spec
from typing import Any, ParamSpec, cast

from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse

from ..aio import AsyncLocks
from ..arguments import Seconds
from ..decorating import check_coroutine, wraps
from . import http
from .http import Answer, Answering, Rules
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
    repeated request gets the recorded response, and the function does not run. The function returns
    a Response. A route of FastAPI may return any value that FastAPI can make a response of.

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
        fastapi = _fastapi()

        @wraps(function)
        async def once(*args: P.args, **kwargs: P.kwargs) -> Any:
            named = cast("dict[str, Any]", kwargs)
            beside = named.pop(fastapi.RESPONSE, None) if fastapi else None
            given = (*args, *kwargs.values())
            request = _only(Request, "a Request", given)
            if not rules.cover(request.method):
                return await function(*args, **kwargs)
            injected = None if beside is None else fastapi.Injected(request, beside, once)
            session = _only((AsyncSession, async_scoped_session), "an AsyncSession", given)
            found = locks if isinstance(locks, AsyncLocks) else locks(request)
            with Answering(rules, _response) as answering:
                header = ", ".join(request.headers.getlist(http.HEADER)) or None
                url = request.url
                call_of = rules.call(request, request.method, url.path, url.query, header)
                call = call_of(await _payload(request, rules))
                once_of = partial(found.once, session)
                async with _transaction(session), answering.once(call, once_of) as recorded:
                    if recorded.replayed:
                        return _replayed(recorded.result, injected)
                    returned = await function(*args, **kwargs)
                    if isinstance(returned, Response):
                        response, headers, more = returned, returned.raw_headers, {}
                    elif injected is not None:
                        response, headers, more = await injected.made(returned)
                    else:
                        raise _no_response(returned)
                    said, status = partial(_said, response, headers, more), response.status_code
                    answering.record(recorded, response, status, recorded.active, said)
                    return response
            return answering.response

        if fastapi:
            once.__signature__ = fastapi.with_response(function)  # type: ignore[attr-defined]
        return once

    return decorate


def _fastapi() -> Any:
    """Return the module for FastAPI, which need not be installed."""
    if find_spec("fastapi") is None:
        return None
    from . import fastapi

    return fastapi


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
    form = getattr(request, "_form", None)  # FastAPI has read it, for the function's parameters
    if form:
        return [[name, await _field(value)] for name, value in form.multi_items()]
    try:
        return await request.body()
    except RuntimeError as error:
        if form is not None:
            return b""
        raise TypeError(
            "the body of this request was read as a stream before: give idempotent() a fingerprint="
        ) from error


async def _field(value: str | UploadFile) -> object:
    """Return what JSON says of a field of a form. A file is at its beginning then."""
    if isinstance(value, str):
        return value
    digest = sha256()
    await value.seek(0)
    while part := await value.read(2**20):
        digest.update(part)
    await value.seek(0)
    return [value.filename, value.content_type, digest.hexdigest()]


def _said(
    response: Response, headers: Iterable[tuple[bytes, bytes]], more: dict[str, Any]
) -> dict[str, Any]:
    """Return what JSON says of a response, with these of its headers, and ``more``."""
    if isinstance(response, StreamingResponse | FileResponse) or not hasattr(response, "body"):
        raise http.streamed(response)
    told = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in headers)
    return {**Answer(response.status_code, told, bytes(response.body)).recorded(), **more}


def _no_response(returned: object) -> TypeError:
    return TypeError(
        f"an idempotent function returns a Response, and this one returned "
        f"{type(returned).__name__}. FastAPI makes a Response only of what its route returns: "
        "decorate the route itself, below @app.post, or return a Response"
    )


def _replayed(recorded: dict[str, Any], injected: Any) -> Response:
    response = _response(Answer.replayed(recorded))
    if injected is not None:
        injected.complete(response, recorded)
    return response


def _response(answer: Answer) -> Response:
    response = Response(answer.body, answer.status)
    for name, value in answer.headers:
        response.headers.append(name, value)
    return response
