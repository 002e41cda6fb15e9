"""Views that run once for an Idempotency-Key."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from asgiref.sync import iscoroutinefunction
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.http.request import RawPostDataException
from django.http.response import HttpResponseBase

from ...decorating import check_callable, is_coroutine_function, wraps
from .. import http
from ..http import Answer, Answering, Rules
from .handles import made

View = TypeVar("View", bound=Callable[..., Any])


def user_of(request: HttpRequest) -> object:
    """Return the key of the logged-in user; None for an anonymous request."""
    user = getattr(request, "user", None)
    return str(user.pk) if user is not None and user.is_authenticated else None


def decorator(alias: str | None, rules: Rules[HttpRequest]) -> Callable[[View], View]:
    def decorate(view: View) -> View:
        if is_coroutine_function(check_callable(view)) or iscoroutinefunction(view):
            raise TypeError(
                f"{view!r} is an async view, and Django has no transactions in those: write it as "
                "a plain `def`, which Django runs in a thread"
            )

        @wraps(view)
        def once(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if not rules.cover(request.method):
                return _given(view(request, *args, **kwargs))
            locks = made(alias)
            with Answering[HttpRequest, HttpResponseBase](rules, _response) as answering:
                query = request.META.get("QUERY_STRING", "")
                header = request.headers.get(http.HEADER)
                call_of = rules.call(request, request.method, request.path, query, header)
                call = call_of(_payload(request, rules))
                once_of = partial(locks.once, on=locks.alias)
                with (
                    transaction.atomic(using=locks.alias),
                    answering.once(call, once_of) as recorded,
                ):
                    if recorded.replayed:
                        return _response(Answer.replayed(recorded.result))
                    response = _given(view(request, *args, **kwargs))
                    active = recorded.active and not transaction.get_rollback(using=locks.alias)
                    said, status = partial(_said, response), response.status_code
                    answering.record(recorded, response, status, active, said)
                    return response
            return answering.response

        return once  # type: ignore[return-value]

    return decorate


def _given(response: object) -> HttpResponseBase:
    if not isinstance(response, HttpResponseBase):
        raise TypeError(
            f"an idempotent view returns an HttpResponse, not {type(response).__name__}"
        )
    return response


def _payload(request: HttpRequest, rules: Rules[HttpRequest]) -> object:
    if rules.fingerprint is not None:
        return rules.fingerprint(request)
    try:
        return request.body
    except RawPostDataException as error:
        raise TypeError(
            "the body of this request was read as a form before the view: give idempotent() a "
            "fingerprint=, such as lambda request: request.POST.dict()"
        ) from error


def _said(response: HttpResponseBase) -> dict[str, Any]:
    """Return what JSON says of a response."""
    render = getattr(response, "render", None)
    if callable(render):  # in the transaction, which its queries belong to
        response = render()
    if not isinstance(response, HttpResponse):
        raise http.streamed(response)
    reason = http.reason_of(response.status_code, response.reason_phrase)
    headers = tuple(response.headers.items())
    return Answer(response.status_code, headers, response.content, reason).recorded()


def _response(answer: Answer) -> HttpResponse:
    response = HttpResponse(answer.body, status=answer.status, reason=answer.reason)
    del response["Content-Type"]
    for name, value in answer.headers:
        response[name] = value
    return response
