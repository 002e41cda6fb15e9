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
from hashlib import sha256
from inspect import Parameter, Signature, signature
from typing import Any, ParamSpec, cast

from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session
from starlette.datastructures import UploadFile
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

#: The parameter for FastAPI's Response, if a function has none of its own.
_RESPONSE = "dblock_response"


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

    Its arguments are, among others, a Request and an AsyncSession. What it changes in the session,
    the key and the response commit together: the decorator commits, or rolls back, and the function
    does neither. A repeated request gets the recorded response, and the function does not run.

    ``locks`` are AsyncLocks, or a function that returns them for a request. ``caller`` returns
    whose request it is, for example the key of the user who is logged in; callers share no keys.
    ``fingerprint`` returns what a repeated request must have the same, instead of its body.
    Requests with other ``methods`` run as usual. If ``required`` is false, a request without a key
    runs in a transaction too. The record stays for ``keep`` seconds. While another request with
    the key runs, this one waits for up to ``wait`` seconds.
    """
    rules = Rules(
        caller, fingerprint=fingerprint, methods=methods, required=required, keep=keep, wait=wait
    )

    def decorate(function: Callable[P, Awaitable[Any]]) -> Callable[P, Coroutine[Any, Any, Any]]:
        check_coroutine(function)

        @wraps(function)
        async def once(*args: P.args, **kwargs: P.kwargs) -> Any:
            injected = cast("dict[str, Any]", kwargs).pop(_RESPONSE, None)
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
                    beside = injected or next(
                        (one for one in given if isinstance(one, Response)), None
                    )
                    if recorded.replayed:
                        return _replayed(recorded.result, beside)
                    response = await function(*args, **kwargs)
                    if not rules.record(_status(request, response, beside), recorded.active):
                        raise Unrecorded(response)
                    recorded.result = result = _recorded(response, beside)
                    # FastAPI makes the same response of it as of what is on record.
                    return result.get("value", response)
            except Unrecorded as unrecorded:
                return unrecorded.response
            except REFUSALS as error:
                return _response(call.refusal(error))

        once.__signature__ = _with_response(function)  # type: ignore[attr-defined]
        return once

    return decorate


def _with_response(function: Callable[..., Any]) -> Signature:
    """Return a function's signature, with a parameter for FastAPI's Response if it has none.

    FastAPI makes the response of what a function returns, and puts into it the status and the
    headers of that Response.
    """
    try:
        found = signature(function, eval_str=True)
    except NameError:  # FastAPI looks for the names in its own way
        found = signature(function)
    parameters = list(found.parameters.values())
    if not any(_is_response(one.annotation) for one in parameters):
        mine = Parameter(_RESPONSE, Parameter.KEYWORD_ONLY, default=None, annotation=Response)
        last = bool(parameters) and parameters[-1].kind is Parameter.VAR_KEYWORD
        parameters.insert(len(parameters) - last, mine)
    return found.replace(parameters=parameters)


def _is_response(annotation: object) -> bool:
    if isinstance(annotation, str):
        return annotation.rpartition(".")[2] == "Response"
    return isinstance(annotation, type) and issubclass(annotation, Response)


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
    form = getattr(request, "_form", None)  # FastAPI has read it for the function's parameters
    if form is not None:
        return [[name, await _said(value)] for name, value in form.multi_items()]
    try:
        return await request.body()
    except RuntimeError as error:
        raise TypeError(
            "the body of this request was read as a stream before: give idempotent() a fingerprint="
        ) from error


async def _said(value: str | UploadFile) -> object:
    """Return what JSON says of a field of a form."""
    if isinstance(value, str):
        return value
    digest = sha256()
    await value.seek(0)
    while part := await value.read(2**20):
        digest.update(part)
    await value.seek(0)
    return {"file": value.filename, "sha256": digest.hexdigest()}


def _status(request: Request, response: Any, beside: Response | None) -> int:
    """Return the status of what a function returned."""
    if isinstance(response, Response):
        return response.status_code
    # FastAPI's own choice: None until the function says one.
    chosen = None if beside is None else beside.status_code
    return chosen or getattr(request.scope.get("route"), "status_code", None) or 200


def _headers(response: Response) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name.decode("latin-1"), value.decode("latin-1")) for name, value in response.raw_headers
    )


def _recorded(response: Any, beside: Response | None) -> dict[str, Any]:
    """Return what JSON says of what a function returned.

    FastAPI makes a response of what is none, also of one that is on record. The status and the
    headers of that are in the Response ``beside``.
    """
    if isinstance(response, StreamingResponse | FileResponse):
        raise http.streamed(response)
    if isinstance(response, Response):
        return Answer(response.status_code, _headers(response), bytes(response.body)).recorded()
    try:
        text = json.dumps(_encoded(response))
    except (TypeError, ValueError):
        raise TypeError(
            "an idempotent function returns a Response, or what FastAPI can make one of, not "
            f"{type(response).__name__}"
        ) from None
    if len(text) > http.BODY_MAX:
        raise http.too_large(len(text))
    made: dict[str, Any] = {}
    if beside is not None:
        made = Answer(beside.status_code or 0, _headers(beside)).recorded()
    return {**made, "value": json.loads(text)}


def _encoded(value: Any) -> Any:
    """Return a value as Pydantic says it in JSON: a model, a list of models, a datetime. Of other
    objects, such as SQLAlchemy's, the attributes."""
    try:
        from pydantic_core import to_jsonable_python
    except ImportError:  # and so there is no FastAPI
        return value
    return to_jsonable_python(value, fallback=_attributes)


def _attributes(value: object) -> dict[str, Any]:
    return {name: one for name, one in vars(value).items() if not name.startswith("_")}


def _replayed(recorded: dict[str, Any], beside: Response | None) -> Any:
    if "value" not in recorded:
        return _response(Answer.replayed(recorded))
    if beside is not None:
        answer = Answer.replayed({"status": 0, "headers": [], "text": "", **recorded})
        if answer.status:
            beside.status_code = answer.status
        for name, value in answer.headers:
            beside.headers.append(name, value)
    return recorded["value"]


def _response(answer: Answer) -> Response:
    response = Response(answer.body, answer.status)
    for name, value in answer.headers:
        response.headers.append(name, value)
    return response
