"""Views that run once for an Idempotency-Key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec

from flask import Request, Response, current_app, request
from sqlalchemy.orm import scoped_session

from ...decorating import check_runnable, wraps
from .. import http
from ..http import Answer, Answering, Rules
from ..sessions import uncommitted

if TYPE_CHECKING:
    from ...io.borrowed import Borrowable
    from ...locks import Locks

P = ParamSpec("P")


def decorator(
    locks: Callable[[], Locks], session: Borrowable, rules: Rules[Request]
) -> Callable[[Callable[P, Any]], Callable[P, Any]]:
    def decorate(view: Callable[P, Any]) -> Callable[P, Any]:
        @wraps(check_runnable(view, "outside the transaction"))
        def once(*args: P.args, **kwargs: P.kwargs) -> Any:
            if not rules.cover(request.method):
                return view(*args, **kwargs)
            asked: Request = request._get_current_object()  # type: ignore[attr-defined]
            with Answering(rules, _response) as answering:
                header = request.headers.get(http.HEADER)
                path = request.root_path + request.path
                query = request.query_string.decode("latin-1")
                call_of = rules.call(asked, request.method, path, query, header)
                call = call_of(_payload(asked, rules))
                once_of = partial(locks().once, session)
                with _transaction(session), answering.once(call, once_of) as recorded:
                    if recorded.replayed:
                        return _response(Answer.replayed(recorded.result))
                    response = current_app.make_response(view(*args, **kwargs))
                    said, status = partial(_said, response), response.status_code
                    answering.record(recorded, response, status, recorded.active, said)
                    return response
            return answering.response

        return once

    return decorate


@contextmanager
def _transaction(session: Any) -> Iterator[None]:
    """Commit the session's transaction, which may have begun before, or roll it back."""
    try:
        with uncommitted(session() if isinstance(session, scoped_session) else session):
            yield
        session.commit()
    except BaseException:
        session.rollback()
        raise


def _payload(asked: Request, rules: Rules[Request]) -> object:
    # Cached, so that the view can read it as JSON or as a form.
    return asked.get_data() if rules.fingerprint is None else rules.fingerprint(asked)


def _said(response: Response) -> dict[str, Any]:
    """Return what JSON says of a response."""
    if response.is_streamed or response.direct_passthrough:
        raise http.streamed(response)
    reason = http.reason_of(response.status_code, response.status.partition(" ")[2])
    headers = tuple(response.headers.items())
    return Answer(response.status_code, headers, response.get_data(), reason).recorded()


def _response(answer: Answer) -> Response:
    status = answer.status if answer.reason is None else f"{answer.status} {answer.reason}"
    return Response(answer.body, status, list(answer.headers))
