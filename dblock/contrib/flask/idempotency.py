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
from ..http import REFUSALS, Answer, Rejected, Rules, Unrecorded
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
            try:
                header = request.headers.get(http.HEADER)
                path = request.root_path + request.path
                query = request.query_string.decode("latin-1")
                call_of = rules.call(asked, request.method, path, query, header)
                call = call_of(_payload(asked, rules))
            except Rejected as refused:
                return _response(refused.answer)
            try:
                with _transaction(session), call.once(partial(locks().once, session)) as recorded:
                    if recorded.replayed:
                        return _response(Answer.replayed(recorded.result))
                    response = current_app.make_response(view(*args, **kwargs))
                    if not rules.record(response.status_code, recorded.active):
                        raise Unrecorded(response)
                    recorded.result = _answer(response).recorded()
                    return response
            except Unrecorded as unrecorded:
                return unrecorded.response
            except REFUSALS as error:
                return _response(call.refusal(error))

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


def _answer(response: Response) -> Answer:
    if response.is_streamed or response.direct_passthrough:
        raise http.streamed(response)
    reason = http.reason_of(response.status_code, response.status.partition(" ")[2])
    headers = tuple(response.headers.items())
    return Answer(response.status_code, headers, response.get_data(), reason)


def _response(answer: Answer) -> Response:
    status = answer.status if answer.reason is None else f"{answer.status} {answer.reason}"
    return Response(answer.body, status, list(answer.headers))
